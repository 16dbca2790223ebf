# SPDX-License-Identifier: Apache-2.0
"""Turns every exception that ends a command into one sentence and an exit code."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import typer
from umakit.cli.console import print_any_character, say

from umakit import errors
from umakit.errors import UmakitError, short_path
from umakit.registration.code import last_raised, raised_in

T = TypeVar("T")

PACKAGES = tuple(f"{Path(file).parent}{os.sep}" for file in (__file__, errors.__file__))
"""Folders of umakit's code."""

TRACEBACK = "UMAKIT_TRACEBACK"
"""Environment variable: `1` prints the traceback of every exception, `bugs` of umakit's bugs."""

INTERRUPTED = 130
BROKEN_PIPE = 128 + signal.SIGPIPE
BUG = 70
"""`EX_SOFTWARE` of BSD's sysexits.h."""

ADVICE = {
    errno.ENOSPC: "make room, or choose another place",
    errno.EDQUOT: "make room, or choose another place",
    errno.EFBIG: "a limit of the shell (ulimit -f) or of the file system is too low",
    errno.EACCES: "see who may read and write there",
    errno.EPERM: "see who may read and write there",
    errno.EROFS: "choose another place",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "a limit of the shell (ulimit -n) is too low",
    errno.ENOMEM: "give it more memory",
}


def answered(run: Callable[[], int]) -> int:
    """Run a command and return its exit code; print exceptions as one sentence.

    Exit codes: the code of the command or of a `UmakitError`; 2 if the system refused a file or the
    output; 130 after Ctrl-C; 141 if the reader closed the output, as shells report for other
    programs; 70 for a bug of umakit.
    """
    _open_streams()
    print_any_character()
    if not _enter_working_folder():
        _say("error: the working folder was deleted; change to another one")
        return 2
    with _interrupts() as interrupted, _watched_output() as output:
        try:
            code = _code_of(run)
            output.flush()
            return code
        except BaseException as error:
            return _exit_code(error, interrupted(), output.fault)


def _code_of(run: Callable[[], int]) -> int:
    try:
        return run()
    except typer.Exit as leaving:
        return leaving.exit_code


def _exit_code(error: BaseException, interrupted: bool, fault: OSError | None) -> int:
    """Print a sentence about an exception, and return the exit code.

    Args:
        fault: error of writing to standard output; None without one.
    """
    # A library may turn the interrupt into another exception.
    if interrupted or isinstance(error, (KeyboardInterrupt, typer.Abort)):
        _say("interrupted")
        return INTERRUPTED
    of_backend = "" if isinstance(error, UmakitError) else _raised_by_backend(error)
    if of_backend:
        _show_traceback(error, is_bug=False)
        _say(f"error: the Python of a backend raised {of_backend}; correct the line that is named")
        return 2
    if isinstance(error, SystemExit):  # rich and typer leave so when nobody reads the output
        if fault is not None:
            return _refused_by_system(fault, fault)
        return error.code if isinstance(error.code, int) else 1
    if isinstance(error, typer.BadParameter) and error.message:
        _say(f"error: {_wrong_value(error)}")
        return 2
    usage = getattr(error, "show", None)
    if usage is not None:
        usage()  # prints the usage and the mistake on the command line
        return int(getattr(error, "exit_code", 2))
    if isinstance(error, UmakitError):
        _show_traceback(error, is_bug=False)
        _say(f"error: {error}")
        return error.exit_code
    if isinstance(error, OSError) and error.errno is not None:
        return _refused_by_system(error, fault)
    if isinstance(error, MemoryError):
        _show_traceback(error, is_bug=False)
        _say("error: there is not enough memory for this; give it more, or a smaller network")
        return 2
    return _bug(error)


def _wrong_value(error: typer.BadParameter) -> str:
    text = error.message.rstrip(".")
    sentence = text[:1].lower() + text[1:]
    if error.param is not None:
        sentence = f"{(error.param.opts or [error.param.name])[0]}: {sentence}"
    return f"{sentence}; `{error.ctx.command_path} --help` says more" if error.ctx else sentence


def _refused_by_system(error: OSError, fault: OSError | None) -> int:
    if fault is None and error.errno == errno.EPIPE:
        fault = error
    if fault is not None and fault.errno == errno.EPIPE:
        return BROKEN_PIPE
    _show_traceback(error, is_bug=False)
    if fault is not None:
        _say(f"error: standard output cannot be written: {fault.strerror}")
        return 2
    place = f"{short_path(os.fsdecode(error.filename))}: " if error.filename else ""
    advice = ADVICE.get(error.errno or 0)
    _say(f"error: {place}{error.strerror}" + (f"; {advice}" if advice else ""))
    return 2


def _raised_by_backend(error: BaseException) -> str:
    """Describe an unexpected exception from a backend's Python code."""
    registry = sys.modules.get("umakit.backend.registry")
    if registry is None:  # none was loaded
        return ""
    return raised_in(error, registry.folders_of_loaded)


def _bug(error: BaseException) -> int:
    _show_traceback(error, is_bug=True)
    first = (str(error).strip().splitlines() or [""])[0]
    what = f"{type(error).__name__}: {first}" if first else type(error).__name__
    _say(
        f"error: this is a bug of umakit: {what} ({_place(error)}); please report it, with what "
        f"{TRACEBACK}=1 prints"
    )
    return BUG


def _place(error: BaseException) -> str:
    """Return file and line that raised an exception, in umakit if any frame is there."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(PACKAGES)]
    last = (ours or list(frames))[-1]
    return f"{Path(last.filename).parent.name}/{Path(last.filename).name}:{last.lineno}"


def _show_traceback(error: BaseException, *, is_bug: bool) -> None:
    wanted = os.environ.get(TRACEBACK, "")
    if wanted and (is_bug or wanted != "bugs"):
        with contextlib.suppress(OSError):
            for one in (last_raised(), error):
                if one is not None:
                    traceback.print_exception(one)


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # standard error may be closed as well
        say(text, error=True)


# --- the process --------------------------------------------------------------------------------


def _open_streams() -> None:
    """Reopen closed standard streams, so that no other file gets their descriptors.

    As in other programs, writing to a closed standard output fails.
    """
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, flags)  # takes the lowest free number, which is this descriptor
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            raw = io.FileIO(descriptor, "w", closefd=False)
            stream = io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8")
            setattr(sys, name, stream)


class _Output:
    """Standard output that records the first write error."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.fault: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, as a text stream does."""
        return self._watched(lambda: int(self._stream.write(text)))

    def flush(self) -> None:
        self._watched(self._stream.flush)

    def _watched(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except OSError as error:
            self.fault = error
            raise


@contextlib.contextmanager
def _watched_output() -> Iterator[_Output]:
    """Watch standard output; discard unwritable text when Python ends."""
    stream, output = sys.stdout, _Output(sys.stdout)
    sys.stdout = output
    try:
        yield output
    finally:
        sys.stdout = stream
        if output.fault is not None:
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)


def _enter_working_folder() -> bool:
    """Whether the working folder exists.

    If the folder was replaced, for example by compiling into it, enter the new folder of the same
    name.
    """
    for _ in range(2):
        with contextlib.suppress(OSError):
            Path.cwd()
            return True
        with contextlib.suppress(OSError):
            os.chdir(os.environ.get("PWD", ""))
    return False


@contextlib.contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Record and raise Ctrl-C. Yield a function that returns whether Ctrl-C was pressed."""
    pressed: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # ignored, as by nohup, or someone else's
        yield lambda: False
        return
    usual = sys.unraisablehook

    def unraisable(found: sys.UnraisableHookArgs) -> None:
        """Print exceptions of callbacks, except Ctrl-C, which is recorded."""
        if not (pressed and found.exc_type is KeyboardInterrupt):
            usual(found)

    signal.signal(signal.SIGINT, interrupt)
    sys.unraisablehook = unraisable
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)
        sys.unraisablehook = usual
