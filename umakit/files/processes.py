# SPDX-License-Identifier: Apache-2.0
"""Runs programs with time limits, and ends them together with all processes they started.

The first limit counts the processor time of a program and its children. The second limit counts
idle time: no processor time used and no data transferred. Load from other programs affects neither
limit: a program that waits for a processor is not idle.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from umakit.errors import BuildError, DeviceError

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")

AT_WORK, ENDED = "RDU", "Z"
"""States of processes that run, could run or wait for a disk, and of processes that have ended."""


@dataclass(frozen=True)
class Usage:
    """Usage by the processes of a session.

    Attributes:
        processes: ids of the running processes.
        seconds: processor time of the processes, and of the children they have waited for.
        transferred: bytes read and written.
    """

    processes: tuple[int, ...] = ()
    seconds: float = 0.0
    transferred: int = 0
    is_at_work: bool = False


def processor_seconds() -> float:
    """Return the processor time of this process and its ended children."""
    return sum(os.times()[:4])


def usage_of(session: int) -> Usage:
    """Return the usage by the processes of a session so far."""
    found = list(_of_proc(session) if PROC.joinpath("self/stat").exists() else _of_ps(session))
    return Usage(
        tuple(process for each in found for process in each.processes),
        sum(each.seconds for each in found),
        sum(each.transferred for each in found),
        any(each.is_at_work for each in found),
    )


def _of_proc(session: int) -> Iterator[Usage]:
    for folder in PROC.iterdir():
        if not folder.name.isdecimal():
            continue
        words = _fields(folder / "stat")
        if len(words) < 15 or int(words[3]) != session:
            continue
        states = {words[0]}
        with contextlib.suppress(OSError):
            states |= {_fields(each / "stat")[0] for each in (folder / "task").iterdir()}
        yield Usage(
            () if words[0] == ENDED else (int(folder.name),),
            sum(map(int, words[11:15])) / TICKS,
            _transferred(folder),
            not states.isdisjoint(AT_WORK),
        )


def _fields(stat: Path) -> list[str]:
    """Return the fields from the state on; for an ended process, one unknown state."""
    try:
        return stat.read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return ["?"]


def _transferred(folder: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        lines = (folder / "io").read_text().splitlines()
        return sum(int(line.rpartition(" ")[2]) for line in lines[:2])
    return 0


def _of_ps(session: int) -> Iterator[Usage]:
    command = ["ps", "-A", "-o", "pid=,state=,time="]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        process, state, time = line.split()
        with contextlib.suppress(OSError):
            if os.getsid(int(process)) == session:
                numbers = () if state[0] == ENDED else (int(process),)
                yield Usage(numbers, _seconds(time), 0, state[0] in AT_WORK)


def _seconds(time: str) -> float:
    """Return a duration such as `1-02:03:04.50` in seconds."""
    days, _, rest = time.rpartition("-")
    seconds = 86400.0 * int(days or 0)
    for power, part in enumerate(reversed(rest.split(":"))):
        seconds += float(part) * 60.0**power
    return seconds


IDLE_SECONDS = 60.0
"""Default limit for programs that wait, and the default of `[simulator] timeout`."""

LEAST_LOOK, FIRST_LOOK, MOST_LOOK, GROWTH = 0.005, 0.02, 0.25, 1.4
"""Seconds between two looks at a program: minimum, first, maximum, and the factor of growth."""

LOOKS = 8
"""Minimum number of looks within the limit for programs that wait."""

LEAST_SECONDS, LEAST_SHARE = 0.03, 0.05
"""Seconds, and share of the waiting time. A program that waits with occasional polling uses less
processor time than their sum."""

ENDING_LOOKS = 100

TIME_LIMIT = "did not end within"
"""Words of the error about a program that used too much processor time."""

HANGS = "hangs: it used no processor time for"
"""Words of the error about a program that waits forever."""

LATE_HINT = "if it is only slow, give it more time with --timeout"
HANGS_HINT = (
    "see what it waits for; if it is right to wait as long, give it more with --timeout, or with "
    "timeout in [simulator] of accel.toml"
)


class TimeLimitError(DeviceError):
    """The program exceeded its limit of processor time."""


class HangsError(TimeLimitError):
    """The program exceeded its limit of waiting time."""


def is_of_limit(sentence: str) -> bool:
    """Return whether an error sentence reports an exceeded limit."""
    return TIME_LIMIT in sentence or HANGS in sentence


@dataclass(frozen=True)
class Limits:
    """Time limits of a program.

    Attributes:
        processor: limit in seconds of processor time, children included; None for no limit.
        idle: limit in seconds without processor time and transfers; None for no limit.
        progress: file of results; each added result restarts `processor`. None if `processor`
            covers the whole run.
    """

    processor: float | None = None
    idle: float | None = IDLE_SECONDS
    progress: Path | None = None


NO_LIMITS = Limits(None, None)


class Watch:
    """Watches the leader of a session, and ends the session when a limit is exceeded.

    Attributes:
        is_asked: whether a caller waits for an answer; false while the process waits for a request.
        is_late: whether the process exceeded the limit of processor time.
        hangs: whether the process exceeded the idle limit.
    """

    def __init__(self, process: subprocess.Popen[Any], limits: Limits) -> None:
        self._process, self._limits = process, limits
        self.is_asked = True
        self.is_late = self.hangs = False
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        if limits.processor is not None or limits.idle is not None:
            self._thread.start()

    def end(self) -> None:
        self._done.set()
        if self._thread.ident is not None:
            self._thread.join()

    def check(self, what: str, where: str) -> None:
        """Raise the TimeLimitError or HangsError of a process that exceeded a limit."""
        limits = self._limits
        if self.is_late:
            sentence = f"{what} {TIME_LIMIT} {limits.processor:g} s of processor time"
            raise TimeLimitError(sentence, where=where, fix=LATE_HINT)
        if self.hangs:
            sentence = f"{what} {HANGS} {limits.idle:g} s"
            raise HangsError(sentence, where=where, fix=HANGS_HINT)

    def _look_on(self) -> None:
        both = (self._limits.processor, self._limits.idle)
        shortest = min(each for each in both if each is not None)
        longest = min(MOST_LOOK, max(LEAST_LOOK, shortest / LOOKS))
        pause = min(FIRST_LOOK, longest)
        before, size, was_at_work = Usage(), 0, False
        begun = idle = used = idle_used = 0.0
        last = time.monotonic()
        while not self._done.wait(pause):
            now = time.monotonic()
            # Do not count time during which the machine was suspended.
            passed, last = min(now - last, 2 * pause), now
            found = usage_of(self._process.pid)
            used = max(used, found.seconds)  # may lack the time of ended processes
            grown = self._size()
            if grown != size:
                size, begun = grown, used
            is_busy = found.is_at_work and was_at_work  # others look around now and then
            worked = used - idle_used > LEAST_SECONDS + LEAST_SHARE * idle
            moved = found.transferred != before.transferred
            if is_busy or worked or moved or not self.is_asked:
                idle, idle_used = 0.0, used
            else:
                idle += passed
            before, was_at_work = found, found.is_at_work
            if self._limits.processor is not None and used - begun > self._limits.processor:
                self.is_late = True
            elif self._limits.idle is not None and idle >= self._limits.idle:
                self.hangs = True
            if self.is_late or self.hangs:
                end_session(self._process.pid)
                return
            pause = min(longest, pause * GROWTH)

    def _size(self) -> int:
        try:
            return 0 if self._limits.progress is None else self._limits.progress.stat().st_size
        except OSError:
            return 0


@contextlib.contextmanager
def started(
    command: Sequence[str | Path],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    limits: Limits = NO_LIMITS,
    **streams: Any,
) -> Iterator[tuple[subprocess.Popen[Any], Watch]]:
    """Start a program in a session that ends with the block or this process; yield it and its
    watch."""
    with contextlib.ExitStack() as stack:
        try:
            process = stack.enter_context(
                subprocess.Popen(
                    command, cwd=folder, env=environment, start_new_session=True, **streams
                )
            )
        except OSError as error:
            raise BuildError(f"cannot run {command[0]}: {error.strerror}") from None
        stack.callback(process.wait)
        stack.callback(end_session, process.pid)
        stack.enter_context(_guarded(process.pid))
        watch = Watch(process, limits)
        stack.callback(watch.end)
        yield process, watch


@contextlib.contextmanager
def _guarded(group: int) -> Iterator[None]:
    """End a group of processes when this process is killed and cannot clean up."""
    reading, writing = os.pipe()
    try:
        script = 'read nothing; kill -9 "-$0"'
        guard = subprocess.Popen(
            ["/bin/sh", "-c", script, str(group)], stdin=reading, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    finally:
        os.close(reading)
    try:
        yield
    finally:
        guard.kill()
        guard.wait()
        os.close(writing)


def end_session(session: int) -> None:
    for _ in range(ENDING_LOOKS):
        processes = usage_of(session).processes
        with contextlib.suppress(OSError):
            os.killpg(session, signal.SIGKILL)
        for process in processes:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        if set(processes) <= {session}:  # the leader stays listed until its parent waits for it
            return
        time.sleep(FIRST_LOOK)


def run_limited(
    command: Sequence[str | Path],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    limits: Limits = NO_LIMITS,
    *,
    what: str = "the program",
    where: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run a program like `subprocess.run`, within limits, and end the processes that it leaves."""
    # Files, not pipes: surviving child processes would keep a pipe open.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as messages:
        with started(
            command, folder, environment, limits,
            stdin=subprocess.DEVNULL, stdout=output, stderr=messages,
        ) as (process, watch):  # fmt: skip
            code = process.wait()
            watch.end()
        watch.check(what, where)
        words = [str(word) for word in command]
        return subprocess.CompletedProcess(words, code, _text(output), _text(messages))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace").replace("\r\n", "\n")


@contextlib.contextmanager
def beside(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> Iterator[Callable[[], str]]:
    """Run a command during a block; yield a function for its end as text, empty while it runs."""
    with tempfile.TemporaryFile() as printed, started(
        command, folder, environment,
        stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT,
    ) as (process, _):  # fmt: skip

        def ended() -> str:
            if process.poll() is None:
                return ""
            last = _text(printed).strip().rpartition("\n")[2]
            name = Path(command[0]).name
            return f"{name} ended with {process.returncode}" + (f": {last}" if last else "")

        yield ended
