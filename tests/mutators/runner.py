# SPDX-License-Identifier: Apache-2.0
"""Mutants are read in processes of their own, with limits of memory and time.

A server imports what is needed once; a child of it reads one mutant after the other until it dies,
and the next child goes on behind the mutant that it died of. Mutant `n` of seed `s` is always the
same file: `random.Random(f"{s}:{n}")` draws it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from mutators.base import Format, sentence_problem
from umakit.errors import UmakitError

SECONDS = 400
"""Limit of wall-clock time for one mutant, in seconds."""


@dataclass(frozen=True)
class Limits:
    """What reading one mutant may take.

    Attributes:
        memory: bytes of address space, besides what the process has.
        cpu_seconds: processor time.
    """

    memory: int = 4 << 30
    cpu_seconds: float = 40.0


@dataclass
class Summary:
    """What became of the mutants of one format.

    Attributes:
        counts: how many were accepted, refused or failed, and compared.
        failures: number of the mutant, what went wrong, and where its file is.
    """

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str, str]] = field(default_factory=list)


def file_of(form: Format, seed: str, number: int) -> bytes:
    """The mutant of a number."""
    return form.mutate(Random(f"{seed}:{number}"))


def run(
    form: Format,
    seed: str,
    numbers: Iterator[int],
    kept: Path,
    *,
    thorough: float,
    compared: float,
    limits: Limits = Limits(),
) -> Summary:
    """Read mutants and compare what is accepted.

    Args:
        form: a format that is prepared.
        seed: of the mutants.
        numbers: of the mutants, maybe without end.
        kept: folder for the files of failing mutants.
        thorough: share of the mutants that are compiled to C where they are accepted.
        compared: share of those that are built with sanitizers and compared.
        limits: of each mutant.
    """
    summary = Summary()
    pending: list[int] = []
    with tempfile.TemporaryDirectory(prefix="umakit-mutants-") as temporary:
        while True:
            pending = pending or [n for _, n in zip(range(50), numbers, strict=False)]
            if not pending:
                return summary
            for number, verdict, detail in _read_some(
                form, seed, pending, temporary, thorough, limits
            ):
                pending = pending[pending.index(number) + 1 :]
                if verdict == "accepted" and _is_drawn(seed, number, "compare", compared):
                    summary.counts["compared"] += 1
                    verdict, detail = _compare(form, seed, number, Path(temporary))
                summary.counts[verdict] += 1
                if verdict == "failed":
                    summary.counts[kind_of(detail)] += 1
                    summary.failures.append((number, detail, _keep(form, seed, number, kept)))


def kind_of(failure: str) -> str:
    """What a failure counts as: `time`, `memory` or `traceback`."""
    if "too slow" in failure:
        return "time"
    return "memory" if re.search("memory|MemoryError|SIGKILL|SIGABRT", failure) else "traceback"


def _is_drawn(seed: str, number: int, purpose: str, share: float) -> bool:
    return Random(f"{seed}:{number}:{purpose}").random() < share


def _keep(form: Format, seed: str, number: int, kept: Path) -> str:
    kept.mkdir(parents=True, exist_ok=True)
    path = kept / f"{form.name}-{seed}-{number}{form.suffix}"
    path.write_bytes(file_of(form, seed, number))
    return str(path)


# --- children ------------------------------------------------------------------------------------


def _read_some(
    form: Format,
    seed: str,
    numbers: list[int],
    temporary: str,
    thorough: float,
    limits: Limits,
) -> Iterator[tuple[int, str, str]]:
    """Verdicts of mutants in order, up to one that a child died of."""

    def work(report: Callable[[Any], None]) -> None:
        page = resource.getpagesize()
        used = int(Path("/proc/self/statm").read_text().split()[0]) * page
        resource.setrlimit(resource.RLIMIT_AS, (used + limits.memory, resource.RLIM_INFINITY))
        for number in numbers:
            report([number, "started", ""])
            signal.setitimer(signal.ITIMER_PROF, limits.cpu_seconds)
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            deep = _is_drawn(seed, number, "thorough", thorough)
            report([number, *_verdict(form, file_of(form, seed, number), Path(temporary), deep)])

    started = -1
    for number, verdict, detail in _in_child(work):
        if verdict == "ended":
            if started >= 0:
                yield started, "failed", detail
            return
        started = number if verdict == "started" else -1
        if verdict != "started":
            yield number, verdict, detail


def _verdict(form: Format, data: bytes, temporary: Path, thorough: bool) -> tuple[str, str]:
    folder = Path(tempfile.mkdtemp(dir=temporary))
    path = folder / f"mutant{form.suffix}"
    path.write_bytes(data)
    try:
        form.read(path, thorough)
    except UmakitError as error:
        problem = sentence_problem(error)
        if "more memory than there is" in str(error):
            problem = "only the limit of memory ended it"
        left = [entry.name for entry in folder.iterdir() if entry != path]
        if left and not problem:
            problem = f"a refusal leaves {left[0]!r} behind"
        return ("failed", f"{problem}: {error}") if problem else ("refused", str(error))
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if "/umakit/" in f.filename or "/cli/" in f.filename] or frames
        place = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "nowhere"
        return "failed", f"{type(error).__name__} at {place}: {str(error)[:300]}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return "accepted", ""


def _compare(form: Format, seed: str, number: int, temporary: Path) -> tuple[str, str]:
    """Compare one mutant with its reference, in a process without a limit of address space:
    the sanitizers reserve terabytes."""
    folder = Path(tempfile.mkdtemp(dir=temporary))
    path = folder / f"mutant{form.suffix}"
    path.write_bytes(file_of(form, seed, number))

    def work(report: Callable[[Any], None]) -> None:
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            difference = form.compare(path)
        except ReferenceRefuses:
            difference = ""
        except BaseException as error:
            difference = f"{type(error).__name__}: {str(error)[:300]}"
        report([number, "failed" if difference else "accepted", difference])

    try:
        for _, verdict, detail in _in_child(work):
            if verdict == "ended":
                return "failed", f"the comparison ended by {detail}"
            return verdict, detail
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return "failed", "the comparison said nothing"


class ReferenceRefuses(Exception):
    """The reference does not take the file either."""


def alone(work: Callable[[], Any]) -> Any:
    """The result of a function, called in a child: a reference may crash on a damaged file.

    Raises:
        ReferenceRefuses: it raised, or its process died.
    """
    with tempfile.NamedTemporaryFile() as result:

        def save(report: Callable[[Any], None]) -> None:
            import pickle

            Path(result.name).write_bytes(pickle.dumps(work()))
            report([0, "done", ""])

        verdicts = [verdict for _, verdict, _ in _in_child(save)]
        if verdicts[0] != "done":
            raise ReferenceRefuses
        import pickle

        return pickle.loads(Path(result.name).read_bytes())


def _in_child(work: Callable[[Callable[[Any], None]], None]) -> Iterator[tuple[int, str, str]]:
    """What a forked process reports, and at last how it ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            os.close(reading)
            os.setpgid(0, 0)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nowhere, stream)
            work(lambda item: _send(writing, item))
            status = 0
        os._exit(status)
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as stream:
            for line in stream:
                number, verdict, detail = json.loads(line)
                yield number, verdict, detail
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    yield 0, "ended", _ending(status)


def _send(pipe: int, item: Any) -> None:
    os.write(pipe, json.dumps(item).encode() + b"\n")


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return f"{name} (too slow)" if name in ("SIGPROF", "SIGALRM") else name
    return f"exit code {os.waitstatus_to_exitcode(status)}"


def until(seconds: float) -> Iterator[int]:
    """Numbers until the time is over."""
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        yield number
        number += 1
