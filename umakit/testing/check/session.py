# SPDX-License-Identifier: Apache-2.0
"""Building, running and checking batches of cases for one backend."""

from __future__ import annotations

import itertools
import math
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from umakit.devices import HOST, find_device
from umakit.errors import AcceleratorConfigError, UmakitError
from umakit.registration.backend import Backend
from umakit.testing.check.batch import (
    LONGEST_RUN,
    Batch,
    Member,
    build_batch,
    member_of,
    run_batch,
)
from umakit.testing.check.cases import Case
from umakit.testing.check.checks import BATCH_CHECKS, LAST_CHECKS
from umakit.testing.check.claims import claims_of
from umakit.testing.check.report import Failure

LONGEST_REDUCED_RUN = 10.0
"""Seconds of a run of a reduction, in which most cases may not end."""

ALONE = 12
"""Cases of a round of a reduction that are built, if a stage or a compiler refuses all together."""


class Session:
    """Draws, builds, runs and checks batches for one backend.

    Args:
        backend: the backend.
        folder: for files.
        device: name of the device that libraries run on.
        end: value of `time.monotonic` after which cases that a stop kept from running stay so.

    Raises:
        AcceleratorConfigError: the backend's `accel.toml` cannot be used.
    """

    def __init__(
        self, backend: Backend, folder: Path, device: str = HOST.name, end: float = math.inf
    ) -> None:
        self.backend, self._folder, self.end = backend, folder, end
        _ = backend.configuration  # a mistake in accel.toml is none of a layer
        self._device = find_device(device)
        self.claims = {claim.name: claim for claim in claims_of(backend)}
        self._numbers = itertools.count()
        self._compiles = False

    def batch_of(
        self, cases: Sequence[tuple[Case, bool]], timeout: float = LONGEST_RUN
    ) -> tuple[Batch, list[Failure]]:
        """Return a batch that has run, and what is wrong with it.

        Args:
            cases: with what the patterns say about their last layers.
            timeout: seconds after which its program does not end any more.
        """
        members = [
            member_of(case, number, self.claims, accepted)
            for number, (case, accepted) in enumerate(cases)
        ]
        folder = self._folder / f"batch{next(self._numbers)}"
        batch = build_batch(members, [self.backend], folder, self._device)
        self._compiles = True
        run_batch(batch, timeout)
        failures: dict[int, Failure] = {}
        for checks in (BATCH_CHECKS, LAST_CHECKS):
            found = [failure for each in checks for failure in each(batch)]
            for failure in found:
                failures.setdefault(id(failure.case), failure)
            if failures:
                break
        shutil.rmtree(folder, ignore_errors=True)
        return batch, list(failures.values())

    def _raise_if_of_all(self, cases: Sequence[tuple[Case, bool]]) -> None:
        """Raise the error that layers of two patterns have one by one: none of them is to blame.

        Raises:
            UmakitError: the error, of a file of the backend that all libraries have.
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
        """Return failures by the text of the case, of cases that the patterns accept.

        Those behind a case that stops the run are left out.
        """
        pairs = [(case, True) for case in cases]
        try:
            found = self.batch_of(pairs, LONGEST_REDUCED_RUN)[1] if pairs else []
        except UmakitError:
            found = self.failures_of(pairs[:ALONE])[1]
        return {str(failure.case): failure for failure in found if failure.case is not None}

    def failures_of(
        self, cases: Sequence[tuple[Case, bool]], *, is_first: bool = True
    ) -> tuple[list[Member], list[Failure]]:
        """Return the members of a batch and what is wrong with them.

        Behind a case that stops the run there are no results, so the others run again without it,
        and then without all layers of the operators that stop it, while there is time. Of cases
        that the compiler refuses together, halves are tried until one is found that it refuses.

        Args:
            cases: with what the patterns say about their last layers.
            is_first: whether only the case that stops the run is left out, and not its operator.

        Raises:
            UmakitError: a stage found a mistake in the backend's `accel.toml`, or in a file that
                libraries of different layers have.
        """
        if not cases:
            return [], []
        try:
            batch, found = self.batch_of(cases)
        except AcceleratorConfigError:
            raise  # no case is to blame
        except UmakitError as error:
            if len(cases) == 1:
                case = cases[0][0]
                return [], [Failure(case.pattern, str(error), case)]
            self._raise_if_of_all(cases)
            half = len(cases) // 2
            members, failures = self.failures_of(cases[:half], is_first=is_first)
            if failures:
                return members, failures
            more, failures = self.failures_of(cases[half:], is_first=is_first)
            return members + more, failures
        stopped = [each for each in batch.members if each.stopped]
        if not stopped:
            return batch.members, found
        ended = {id(each.case) for each in stopped}
        found = [each for each in found if id(each.case) in ended]
        left_out = set() if is_first else {each.case.pattern for each in stopped}
        rest = [
            (case, accepted)
            for case, accepted in cases
            if id(case) not in ended and not any(layer.pattern in left_out for layer in case.layers)
        ]
        if time.monotonic() > self.end:
            return stopped, found
        members, others = self.failures_of(rest, is_first=False)
        return stopped + members, found + others
