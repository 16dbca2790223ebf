# SPDX-License-Identifier: Apache-2.0
"""Calls of a backend's Python code, and texts and misspelt names in it.

Errors name the exception and its file and line.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from umakit.errors import BackendError, UmakitError, short_path
from umakit.text.spelling import closest

if TYPE_CHECKING:
    from umakit.registration.backend import Backend
    from umakit.registration.registered import BoardNotes, DeviceUse, Pattern, ReplaceCallExtern

T = TypeVar("T")

LONGEST = 300
"""Maximum number of characters of an exception's text in a message."""

PLACED = re.compile(r"\S+:\d+: ")
"""File and line at the begin of a message."""

_last_described: list[BaseException] = []


def last_raised() -> BaseException | None:
    """Return the exception that `raised` described last, with its traceback.

    An exception raised from it may lose its cause on the way through TVM.
    """
    return _last_described[-1] if _last_described else None


def raised(error: BaseException, backend: Backend | None) -> str:
    """Describe an exception: type, quoted text, and the backend's line that raised it."""
    return _described(error, None if backend is None else _place(error, str(backend.folder)))


def raised_in(error: BaseException, folders: Iterable[Path]) -> str:
    """Describe an exception that came through code in some folders; empty for other exceptions."""
    places = (_place(error, str(folder)) for folder in folders)
    place = next((each for each in places if each), None)
    return _described(error, place) if place else ""


def _described(error: BaseException, place: str | None) -> str:
    _last_described[:] = [error]
    text = _text(error)
    named = f'{_kind(error)}: "{text}"' if text else _kind(error)
    close = meant(error)
    named += f", did you mean {close}?" if close else ""
    return f"{named} ({place})" if place else named


def included_text(backend: Backend, includes: Callable[[], str]) -> str:
    """Return the text that a backend adds to the top of generated C files, after a check."""
    text: object = called(backend, "includes", includes)
    return _checked(backend, "includes", text)


def called_board_notes(
    backend: Backend, hook: Callable[[DeviceUse], BoardNotes], use: DeviceUse
) -> BoardNotes:
    from umakit.registration.registered import BoardNotes  # imports TVM

    notes: object = called(backend, "board_notes", lambda: hook(use))
    if not isinstance(notes, BoardNotes):
        raise BackendError(
            f"board_notes returned {type(notes).__name__}, which is not a BoardNotes",
            where=backend.target_name,
        )
    return notes


def call_replacement(backend: Backend | None) -> ReplaceCallExtern | None:
    """Return a backend's hook for external calls, with checks of its results; None without."""
    hook = backend.codegen.replace_call_extern if backend else None
    if backend is None or hook is None:
        return None

    def replace_call_extern(texts: Sequence[str]) -> str | None:
        what = "replace_call_extern"
        text: object = called(backend, what, lambda: hook(texts))
        return None if text is None else _checked(backend, what, text)

    return replace_call_extern


def _checked(backend: Backend, what: str, text: object) -> str:
    if not isinstance(text, str):
        raise BackendError(
            f"{what} returned {type(text).__name__}, which is not text", where=backend.target_name
        )
    return text


def called(backend: Backend, what: str, function: Callable[[], T]) -> T:
    """Call a hook of a backend and return its result; any exception becomes a BackendError."""
    try:
        return function()
    except UmakitError:
        raise
    except (Exception, SystemExit) as error:  # a team's code may raise anything
        raise BackendError(
            f"{what} raised {raised(error, backend)}", where=backend.target_name
        ) from error


def answer_of(backend: Backend, pattern: Pattern, ask: Callable[[], object]) -> bool | str:
    """Return a predicate's answer to a layer: True accepts; False or a sentence refuses."""
    what = f"predicate of pattern {pattern.name!r}"
    try:
        answer = called(backend, what, ask)
    except BackendError as error:
        raise with_place(error, pattern) from error
    if isinstance(answer, str):
        return answer
    if isinstance(answer, (bool, np.bool_)):
        return bool(answer)
    raise BackendError(
        f"{what} returned {type(answer).__name__}",
        where=backend.target_name,
        fix="return True, or a sentence that says why not",
    )


def with_place(error: BackendError, pattern: Pattern | None) -> BackendError:
    """Return an error of a backend with a place; the place of the pattern if the error has none."""
    # An error becomes one text on its way through TVM.
    if error.where or pattern is None or PLACED.match(str(error)):
        return error
    return type(error)(error.what, where=pattern.place, fix=error.fix)


def _kind(error: BaseException) -> str:
    kind = type(error)
    is_from_tvm = kind.__module__.partition(".")[0] in ("tvm", "tvm_ffi")  # without importing TVM
    return "TVM" if is_from_tvm and kind.__name__ != "ScheduleError" else kind.__name__


def _text(error: BaseException) -> str:
    """Return an exception's text on one line, without programs, backtraces and node numbers."""
    # A KeyError shows its key like `repr`, and once more after passing through TVM.
    text = str(error)
    if isinstance(error, KeyError) and error.args and isinstance(error.args[0], str):
        text = error.args[0]
        text = text[1:-1] if text[:1] in "'\"" and text[:1] == text[-1:] else text
    text = plain_tvm_text(text)
    text = text.removeprefix(f"{type(error).__name__}: ").replace('"', "'")
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _place(error: BaseException, folder: str) -> str | None:
    at: BaseException | None = error
    while at is not None:
        for frame in reversed(traceback.extract_tb(at.__traceback__)):
            if os.path.realpath(frame.filename).startswith(f"{folder}{os.sep}"):
                return f"{short_path(frame.filename)}:{frame.lineno}"
        at = at.__cause__ or at.__context__
    return None


# Texts of TVM's exceptions without details for its developers.
#
# A text of TVM may hold the whole program with a place marked in it, a backtrace of C++ files, the
# condition of a check in C++, and numbers of nodes that only the program printed with it explains.

MESSAGE = "Error message: "
"""Begins the message of a schedule primitive, behind the program."""

NODE = re.compile(r"\b(?:s_tir\.SBlock|tirx\.For|tirx\.\w+)#\d+")
BLOCK = re.compile(r'with T\.s?block\("([^"]+)"')
LOOP = re.compile(r"for ([\w, ]+) in ")
LOG_PREFIX = re.compile(r"^\[[\d:.]+\] \S+:\d+: ")
CHECK = re.compile(
    r"^Check failed: (?:\((?P<bracketed>.*?)\) is false|(?P<plain>.*?)): ?(?P<text>.*)$"
)
ARGUMENT = re.compile(
    r"^Mismatched type on argument #(\d+) when calling: `([\w.]+)\(.*`\. "
    r"Expected `(.*)` but got `(.*)`$"
)
KIND = re.compile(r"^(?:\w+Error|\w+\.\w+Error): ")


def plain_tvm_text(text: str) -> str:
    """Return the sentence in an exception's text, possibly from TVM, on one line."""
    program, _, message = text.rpartition(MESSAGE)
    lines = [line.strip() for line in message.splitlines()]
    lines = [line for line in lines if line and not line.startswith("note: run with `TVM_")]
    if not lines:
        return ""
    if any(line.startswith(("Traceback", "Stack trace", "File ")) for line in lines):
        lines = lines[-1:]
    sentence = LOG_PREFIX.sub("", " ".join(lines))
    if program or sentence.startswith("InternalError"):
        sentence = KIND.sub("", sentence)
    sentence = ARGUMENT.sub(r"argument \1 of \2 is `\4` instead of `\3`", sentence)
    if found := CHECK.match(sentence):
        condition = found["bracketed"] or found["plain"]
        sentence = found["text"].strip() or f"{condition} does not hold"
    return _with_names(sentence, program)


def _with_names(sentence: str, program: str) -> str:
    """Replace numbers of nodes by the names of blocks and loops in the program."""

    def named(found: re.Match[str]) -> str:
        _, _, behind = program.partition(f"# {found[0]}\n")
        line = behind.lstrip().partition("\n")[0]
        name = (BLOCK if "SBlock" in found[0] else LOOP).match(line)
        return f"'{name[1]}'" if name else ""

    return " ".join(NODE.sub(named, sentence).split()).replace(" .", ".")


KEYWORD = re.compile(r"([\w.]+)\(\) got an unexpected keyword argument '(\w+)'")
ATTRIBUTE = re.compile(r"'([\w.]+)'(?: object)? has no attribute '(\w+)'")
OPERATOR = re.compile(r"Operator ([\w.]+) is not registered")
PLACES = ("umakit.patterns", "umakit.tir", "umakit.machine", "umakit.backend")
"""Modules whose functions backends call."""


def meant(error: BaseException) -> str:
    """Return the name close to an exception's misspelt name; empty if none is close."""
    name = getattr(error, "name", None)
    if isinstance(error, AttributeError):
        return _attribute(error)
    if isinstance(error, NameError) and name:
        frame = _innermost(error)
        known = {**frame.f_globals, **frame.f_locals} if frame is not None else {}
        return _close(name, [*known, *dir(builtins)])
    if isinstance(error, ImportError) and not isinstance(error, ModuleNotFoundError):
        found = re.search(r"cannot import name '(\w+)' from '([\w.]+)'", str(error))
        return _close(found[1], dir(sys.modules.get(found[2]))) if found else ""
    keyword = KEYWORD.search(str(error)) if isinstance(error, TypeError) else None
    if keyword:
        return _close(keyword[2], _parameters(keyword[1], _innermost(error)))
    return ""


def _attribute(error: AttributeError) -> str:
    if error.name and error.obj is not None:
        return _close(error.name, _attributes_of(error.obj))
    found = ATTRIBUTE.search(str(error))
    if found is None:
        operator = OPERATOR.search(str(error))
        return _operator(operator[1]) if operator else ""
    module = sys.modules.get(found[1])
    for owner in (module, *(_member(place, found[1]) for place in PLACES)):
        if owner is not None:
            return _close(found[2], _attributes_of(owner))
    return ""


def _operator(name: str) -> str:
    """Return the close name of an operator; imports TVM, the origin of the exception."""
    from umakit import tvm_api

    return closest(name, tvm_api.operator_names())


def _attributes_of(owner: object) -> set[str]:
    fields = getattr(owner, "__dataclass_fields__", ())
    return {*dir(owner), *getattr(owner, "__all__", ()), *fields}


def _member(module: str, name: str) -> object:
    return getattr(sys.modules.get(module), name, None) if name.isidentifier() else None


def _close(name: str, others: Iterable[str]) -> str:
    return closest(name, [n for n in others if n.startswith("_") == name.startswith("_")])


def _innermost(error: BaseException) -> FrameType | None:
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return None if traceback is None else traceback.tb_frame


def _parameters(function: str, frame: FrameType | None) -> list[str]:
    first, *rest = function.split(".")
    own = None if frame is None else frame.f_globals.get(first)
    for start in (own, *(_member(place, first) for place in PLACES)):
        found = start
        for part in rest:
            found = getattr(found, part, None)
        if start is not None and callable(found):
            try:
                return list(inspect.signature(found).parameters)
            except (TypeError, ValueError):
                continue
    return []


def texts_in(folder: Path) -> Mapping[str, str]:
    """Return file and line, `passes.py:12`, of texts in a folder's Python files."""
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*.py")):
        try:
            nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError, SyntaxError, RecursionError):
            continue
        parts = {part for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in nodes:
            if node in parts:  # of a text with variables
                continue
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.setdefault(node.value, f"{short_path(path)}:{node.lineno}")
    return found


def place_of(text: str, folder: Path) -> str:
    """Return file and line of a text in the Python files of a folder; empty if there is none."""
    return texts_in(folder).get(text, "")
