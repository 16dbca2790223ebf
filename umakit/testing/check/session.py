# SPDX-License-Identifier: Apache-2.0
"""Building, running and checking batches of cases for one backend, possibly in several processes.

TVM works in one thread at a time, so parallel batches take processes. Processes are spawned, load
the backend from its folder, and exchange plain data.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path

from umakit.devices import HOST, find_device
from umakit.devices.execution import SilenceError
from umakit.errors import AcceleratorConfigError, DeviceError, TooLargeError, UmakitError
from umakit.files.processes import processor_seconds
from umakit.registration.backend import Backend
from umakit.testing.check.batch import Batch, build_batch, member_of, run_batch
from umakit.testing.check.cases import Case
from umakit.testing.check.checks import BATCH_CHECKS, LAST_CHECKS
from umakit.testing.check.claims import claims_of
from umakit.testing.check.report import Failure

REDUCED_SECONDS = 10.0
"""Processor time in seconds that a layer may use in a run of a reduction."""

ALONE = 12
"""Cases of a round of a reduction that are built, if a stage or a compiler refuses all together."""

MOST_REFUSED = 3
"""Number of cases refused alone by a stage or a compiler after which a batch has no more
results."""


Cases = Sequence[tuple[Case, bool]]
"""Cases, and whether the patterns accept their last layers."""


@dataclass(frozen=True)
class Outcome:
    """Results of cases.

    Attributes:
        ran: each case with a result, and whether the case ran on the accelerator.
        cycles: case, predicted and simulated cycles of layers with both.
        does_not_fit: cases that alone are too large for the device.
        not_run: cases that other cases kept from running.
        seconds: processor time, including compilers and simulators.
    """

    ran: list[tuple[Case, bool]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    cycles: list[tuple[Case, int, int]] = field(default_factory=list)
    does_not_fit: list[Case] = field(default_factory=list)
    not_run: list[Case] = field(default_factory=list)
    seconds: float = 0.0

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(
            self.ran + other.ran,
            self.failures + other.failures,
            self.cycles + other.cycles,
            self.does_not_fit + other.does_not_fit,
        )


class Session:
    """Draws, builds, runs and checks batches for one backend.

    Attributes:
        note: called with the number of cases of each finished batch.
    """

    def __init__(self, backend: Backend, folder: Path, device: str = HOST.name) -> None:
        self.backend, self._folder = backend, folder
        _ = backend.configuration  # a mistake in accel.toml is none of a layer
        self._device = find_device(device)
        self.claims = {claim.name: claim for claim in claims_of(backend)}
        self.note: Callable[[int], None] = lambda count: None
        self._numbers = itertools.count()
        self._compiles = False

    def batch_of(self, cases: Cases, timeout: float | None = None) -> tuple[Batch, list[Failure]]:
        """Return a batch that has run, and its failures.

        Args:
            cases: cases, and whether the patterns accept their last layers.
            timeout: as of `Rounds.run`.
        """
        members = [
            member_of(case, number, self.claims, accepted)
            for number, (case, accepted) in enumerate(cases)
        ]
        folder = self._folder / f"batch{next(self._numbers)}"
        batch = build_batch(members, [self.backend], folder, self._device)
        self._compiles = True
        run_batch(batch, timeout)
        self.note(len(cases))
        failures: dict[int, Failure] = {}
        for checks in (BATCH_CHECKS, LAST_CHECKS):
            found = [failure for each in checks for failure in each(batch)]
            for failure in found:
                failures.setdefault(id(failure.case), failure)
            if failures:
                break
        shutil.rmtree(folder, ignore_errors=True)
        return batch, list(failures.values())

    def _raise_if_of_all(self, cases: Cases) -> None:
        """Raise an error that single layers of two patterns share: no pattern is to blame.

        Raises:
            UmakitError: the error, in a file of the backend that all libraries contain.
        """
        ones = {case.pattern: (case, accepted) for case, accepted in cases if accepted}
        if len(ones) < 2 or self._compiles:
            return
        errors = []
        for one in list(ones.values())[:2]:
            try:
                self.batch_of([one])
            except UmakitError as error:
                errors.append(error)
        if len(errors) == 2 and str(errors[0]) == str(errors[1]):
            raise errors[0]

    def failing(self, cases: Sequence[Case]) -> dict[str, Failure]:
        """Return failures of accepted cases, by the text of the case.

        In a library, each case runs directly after the cases of its `before`. With several cases,
        the time limit of a layer is lower than with a single case.
        """
        wanted = [(case, replace(case, before=())) for case in cases]
        pairs = [(each, True) for case, own in wanted for each in (*case.before, own)]
        whole = {id(own): case for case, own in wanted}
        timeout = REDUCED_SECONDS if len(cases) > 1 else None
        try:
            found = self.batch_of(pairs, timeout)[1] if pairs else []
        except UmakitError:
            found = self.failures_of(pairs[:ALONE]).failures
        failures = [(whole.get(id(failure.case)), failure) for failure in found]
        return {str(case): replace(failure, case=case) for case, failure in failures if case}

    def failures_of(self, cases: Cases) -> Outcome:
        """Return the members and the failures of a batch.

        Cases that together are too large for the device run in several batches. If the compiler
        refuses cases together, halves are tried to find the cases that the compiler refuses alone,
        `MOST_REFUSED` at most.

        Raises:
            UmakitError: a stage found a mistake in `accel.toml`, or in a file that libraries of
                different layers contain.
        """
        if not cases:
            return Outcome()
        half = len(cases) // 2
        try:
            batch, failures = self.batch_of(cases)
        except AcceleratorConfigError:
            raise  # no case is to blame
        except SilenceError:
            return Outcome()
        except TooLargeError:
            if len(cases) == 1:
                return Outcome(does_not_fit=[cases[0][0]])
            return self.failures_of(cases[:half]) + self.failures_of(cases[half:])
        except UmakitError as error:
            if len(cases) == 1:
                case = cases[0][0]
                return Outcome(failures=[Failure(case.pattern, str(error), case)])
            self._raise_if_of_all(cases)
            found = self.failures_of(cases[:half])
            if len(found.failures) >= MOST_REFUSED:
                return found
            return found + self.failures_of(cases[half:])
        done = [each for each in batch.members if each.has_result]
        return Outcome(
            [(each.case, each.ran) for each in done],
            failures,
            [(each.case, *pair) for each in done for pair in each.cycles],
        )


def outcome_of(session: Session, cases: Cases) -> Outcome:
    """Build, run and check a batch."""
    started = processor_seconds()
    found = session.failures_of(cases)
    done = {id(case) for case, _ in found.ran} | {id(each.case) for each in found.failures}
    done |= {id(case) for case in found.does_not_fit}
    not_run = [case for case, _ in cases if id(case) not in done]
    return replace(found, not_run=not_run, seconds=processor_seconds() - started)


class Workers:
    """Runs batches in the given order; a context manager.

    Args:
        jobs: number of processes; 1 for this process, also for backends without a folder.
        folder: folder for files of the processes; the caller deletes the folder.
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

    def __exit__(self, *_: object) -> None:
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
        """Yield batches with their results, in order."""
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
