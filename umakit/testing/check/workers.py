# SPDX-License-Identifier: Apache-2.0
"""Batches of a check, sequentially or in several processes.

TVM works in one thread at a time, so parallel batches take processes. Processes are spawned, load
the backend from its folder, and exchange plain data.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType

from umakit.errors import DeviceError
from umakit.files.processor_time import processor_seconds
from umakit.registration.backend import Backend
from umakit.testing.check.cases import Case
from umakit.testing.check.report import Failure
from umakit.testing.check.session import Session

Cases = Sequence[tuple[Case, bool]]
"""Cases, and whether the patterns accept their last layers."""


@dataclass(frozen=True)
class Outcome:
    """The result of a batch.

    Attributes:
        ran: each compiled case, and whether it ran on the accelerator.
        not_run: cases that other cases of the batch kept from running.
        does_not_fit: cases that are too large for the device.
        cycles: case, predicted and simulated cycles of layers with both.
        seconds: processor time of the batch, including compilers and simulators.
    """

    ran: list[tuple[Case, bool]]
    not_run: list[Case]
    does_not_fit: list[Case]
    failures: list[Failure]
    cycles: list[tuple[Case, int, int]]
    seconds: float


def outcome_of(session: Session, cases: Cases) -> Outcome:
    """Build, run and check a batch."""
    started = processor_seconds()
    found = session.failures_of(cases)
    ran = [(each.case, each.ran) for each in found.members]
    cycles = [(each.case, *pair) for each in found.members for pair in each.cycles]
    done = {id(each.case) for each in found.members} | {id(each.case) for each in found.failures}
    done |= {id(case) for case in found.does_not_fit}
    not_run = [case for case, _ in cases if id(case) not in done]
    seconds = processor_seconds() - started
    return Outcome(ran, not_run, found.does_not_fit, found.failures, cycles, seconds)


class Workers:
    """Runs batches in the given order; a context manager.

    Args:
        session: session for batches of this process.
        jobs: number of processes; 1 for this process, also for backends without a folder.
        folder: folder for files of the processes; the caller deletes the folder.
        device: name of the device for the libraries.
    """

    def __init__(self, session: Session, jobs: int, folder: Path, device: str) -> None:
        self._session = session
        self._jobs = jobs if (session.backend.folder / "backend.py").is_file() else 1
        self._given = (session.backend.folder, folder, device)
        self._pool: ProcessPoolExecutor | None = None
        self._before: set[int | None] = set()
        self._is_done = False

    def __enter__(self) -> Workers:
        if self._jobs > 1:
            self._before = {each.pid for each in multiprocessing.active_children()}
            spawn = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._jobs, spawn, _begin, self._given)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is None:
            return
        own = [each for each in multiprocessing.active_children() if each.pid not in self._before]
        if self._is_done:
            self._pool.shutdown()
            return
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in own:
            _kill(process)

    def outcomes(self, batches: Iterable[Cases]) -> Iterator[tuple[Cases, Outcome]]:
        """Yield batches with their results, in order.

        Raises:
            DeviceError: a process ended.
        """
        if self._pool is None:
            for cases in batches:
                yield cases, outcome_of(self._session, cases)
            return
        running: deque[tuple[Cases, Future[Outcome]]] = deque()
        for cases in batches:
            self._is_done = False
            running.append((cases, self._pool.submit(_run, cases)))
            if len(running) == self._jobs:
                yield _done(*running.popleft())
        while running:
            done = _done(*running.popleft())
            self._is_done = not running
            yield done


def _kill(process: BaseProcess) -> None:
    """End a process, including its compilers and simulators."""
    assert process.pid is not None
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:  # the process has ended, or has no group yet
        process.kill()
    process.join()


def _done(cases: Cases, future: Future[Outcome]) -> tuple[Cases, Outcome]:
    try:
        return cases, future.result()
    except BrokenProcessPool:
        raise DeviceError(
            "a process of the check ended", fix="--jobs 1 shows what it prints"
        ) from None


# --- in a process of its own ---------------------------------------------------------------------

_own_session: Session | None = None


def _begin(backend_folder: Path, folder: Path, device: str) -> None:
    from umakit.backend.registry import find_backend

    global _own_session
    parent = os.getppid()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    os.setpgrp()  # interrupts of a terminal are for the parent, which ends this process
    own = Path(tempfile.mkdtemp(dir=folder))
    tempfile.tempdir = str(own)
    backend: Backend = find_backend(backend_folder)
    _own_session = Session(backend, own, device)


def _end_with(parent: int) -> None:
    """End this process and its children once its parent has ended."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.killpg(0, signal.SIGKILL)


def _run(cases: Cases) -> Outcome:
    assert _own_session is not None
    return outcome_of(_own_session, cases)
