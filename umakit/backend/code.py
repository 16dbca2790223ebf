# SPDX-License-Identifier: Apache-2.0
"""What is said when a backend's own Python raises something: its file and line, and what it was."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from umakit.errors import BackendError, UmakitError, short_path

if TYPE_CHECKING:
    from umakit.backend.base import ReplaceCallExtern, UMABackend

T = TypeVar("T")

LONGEST = 300
"""Characters of an exception's text."""

_last_described: list[BaseException] = []


def last_raised() -> BaseException | None:
    """The exception that `raised` put into words last, with its traceback.

    What is raised of it may lose it as its cause on the way through TVM.
    """
    return _last_described[-1] if _last_described else None


def raised(error: BaseException, backend: UMABackend | None) -> str:
    """An exception in words: type, text, and the place in the backend's folder that raised it.

    Args:
        error: caught around a call of the backend's code.
        backend: whose code it was; None if it was nobody's.
    """
    _last_described[:] = [error]
    kind = type(error)
    text = _text(error)
    from_tvm = kind.__module__.partition(".")[0] in ("tvm", "tvm_ffi")
    named = text if from_tvm and text else f"{kind.__name__}: {text}" if text else kind.__name__
    place = None if backend is None else _place(error, str(backend.folder))
    return f"{named} ({place})" if place else named


def included_text(backend: UMABackend, includes: Callable[[], str]) -> str:
    """What a backend adds to the top of generated C.

    Raises:
        BackendError: its function raised something, or returned no text.
    """
    text: object = _called(backend, "includes", includes)
    return _checked(backend, "includes", text)


def call_replacement(backend: UMABackend | None) -> ReplaceCallExtern | None:
    """A backend's hook for external calls; what it raises or returns is checked.

    Returns:
        A function as it was registered, which raises BackendError; None where there is none.
    """
    hook = backend.codegen.replace_call_extern if backend else None
    if backend is None or hook is None:
        return None

    def replace_call_extern(texts: Sequence[str]) -> str | None:
        what = "replace_call_extern"
        text: object = _called(backend, what, lambda: hook(texts))
        return None if text is None else _checked(backend, what, text)

    return replace_call_extern


def _checked(backend: UMABackend, what: str, text: object) -> str:
    if not isinstance(text, str):
        raise BackendError(
            f"{what} returned {type(text).__name__}, which is no text", where=backend.target_name
        )
    return text


def _called(backend: UMABackend, what: str, function: Callable[[], T]) -> T:
    """The result of a function of a backend.

    Args:
        backend: whose function it is.
        what: it is for, such as `replace_call_extern`.
        function: to call.

    Raises:
        BackendError: it raised something.
    """
    try:
        return function()
    except UmakitError:
        raise
    except Exception as error:  # a team's code may raise anything
        raise BackendError(
            f"{what} raised {raised(error, backend)}", where=backend.target_name
        ) from error


def _text(error: BaseException) -> str:
    """The last line of an exception's text, which in TVM's errors is what is wrong."""
    # A KeyError shows its key as `repr` does, and once more when it has passed through TVM.
    text = str(error)
    if isinstance(error, KeyError) and error.args and isinstance(error.args[0], str):
        text = error.args[0] if error.args[0][:1] in "'\"" else text
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1].removeprefix(f"{type(error).__name__}: ") if lines else ""
    return last if len(last) <= LONGEST else f"{last[:LONGEST]}..."


def _place(error: BaseException, folder: str) -> str | None:
    """The innermost line of a folder in the traceback of an exception, or of what caused it."""
    for frame in _frames(error):
        if os.path.realpath(frame.filename).startswith(f"{folder}{os.sep}"):
            return f"{short_path(frame.filename)}:{frame.lineno}"
    return None


def _frames(error: BaseException | None) -> Iterator[traceback.FrameSummary]:
    """Lines that an exception came through, from the inside to the outside."""
    while error is not None:
        yield from reversed(traceback.extract_tb(error.__traceback__))
        error = error.__cause__ or error.__context__
