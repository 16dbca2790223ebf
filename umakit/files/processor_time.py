# SPDX-License-Identifier: Apache-2.0
"""Processor time, transfers and waiting of the processes of a session."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
        is_at_work: whether a process runs or could run.
    """

    processes: tuple[int, ...] = ()
    seconds: float = 0.0
    transferred: int = 0
    is_at_work: bool = False


def processor_seconds() -> float:
    """Return the processor time of this process and its ended children."""
    return sum(os.times()[:4])


def usage_of(session: int) -> Usage:
    """Return the usage by the processes of a session so far.

    Args:
        session: id of the session: the process id of its leader.
    """
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
    """Yield the usage by each process, as reported by `ps`, without transfers."""
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
