# SPDX-License-Identifier: Apache-2.0
"""A check of a backend: batches of cases until enough are drawn or the time is over."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from umakit.devices import HOST, find_device
from umakit.errors import InputError, UmakitError
from umakit.files.staging import temporary_folder
from umakit.operators.drawing import NotDrawable
from umakit.registration.backend import Backend
from umakit.testing.check.batch import Batch, Member, build_batch, member_of, run_batch
from umakit.testing.check.beside import fails_beside_another
from umakit.testing.check.cases import Case, read_case
from umakit.testing.check.checks import BATCH_CHECKS, LAST_CHECKS
from umakit.testing.check.claims import Claim, accepts, claims_of
from umakit.testing.check.drawing import Walk
from umakit.testing.check.report import CheckReport, Counts, Failure
from umakit.testing.check.shrink import shrunk

SECONDS, DRAWS = 120.0, 1000
BATCH = 100
"""Cases in one library."""

ALONE = 12
"""Cases of a round of a reduction that are built, if a stage or a compiler refuses all together."""

CHAINED = 0.15
"""Share of cases that are chains of two layers."""

Tell = Callable[[str], None]

LEAST_SECONDS = 20.0
"""Time for reducing failures that are found late."""


class Session:
    """Draws, builds, runs and checks batches for one backend.

    Args:
        backend: the backend.
        folder: for files.
        device: name of the device that libraries run on.
    """

    def __init__(self, backend: Backend, folder: Path, device: str = HOST.name) -> None:
        self.backend, self._folder = backend, folder
        self._device = find_device(device)
        self.claims = {claim.name: claim for claim in claims_of(backend)}
        self._numbers = itertools.count()

    def batch_of(self, cases: Sequence[tuple[Case, bool]]) -> tuple[Batch, list[Failure]]:
        """Return a batch that has run, and what is wrong with it.

        Args:
            cases: with what the patterns say about their last layers.
        """
        members = [
            member_of(case, number, self.claims, accepted)
            for number, (case, accepted) in enumerate(cases)
        ]
        folder = self._folder / f"batch{next(self._numbers)}"
        batch = build_batch(members, [self.backend], folder, self._device)
        run_batch(batch)
        failures: dict[int, Failure] = {}
        for checks in (BATCH_CHECKS, LAST_CHECKS):
            found = [failure for each in checks for failure in each(batch)]
            for failure in found:
                failures.setdefault(id(failure.case), failure)
            if failures:
                break
        shutil.rmtree(folder, ignore_errors=True)
        return batch, list(failures.values())

    def failing(self, cases: Sequence[Case]) -> dict[str, Failure]:
        """Return failures by the text of the case, of cases that the patterns accept.

        Those behind a case that stops the run are left out.
        """
        pairs = [(case, True) for case in cases]
        try:
            found = self.batch_of(pairs)[1] if pairs else []
        except UmakitError:
            found = self.failures_of(pairs[:ALONE])[1]
        return {str(failure.case): failure for failure in found if failure.case is not None}

    def failures_of(
        self, cases: Sequence[tuple[Case, bool]], *, again: bool = True
    ) -> tuple[list[Member], list[Failure]]:
        """Return the members of a batch and what is wrong with them.

        Cases behind one that stops the run are run again without it, once; of cases that the
        compiler refuses together, halves are tried until one is found that it refuses.

        Args:
            cases: with what the patterns say about their last layers.
            again: whether the rest runs again.
        """
        if not cases:
            return [], []
        try:
            batch, found = self.batch_of(cases)
        except UmakitError as error:
            if len(cases) == 1:
                case = cases[0][0]
                return [], [Failure(case.pattern, str(error), case)]
            half = len(cases) // 2
            members, failures = self.failures_of(cases[:half], again=again)
            if failures:
                return members, failures
            more, failures = self.failures_of(cases[half:], again=again)
            return members + more, failures
        stopped = [number for number, each in enumerate(batch.members) if each.stopped]
        if not stopped:
            return batch.members, found
        ended = {id(cases[number][0]) for number in stopped}
        found = [each for each in found if id(each.case) in ended]
        if not again:
            return [], found
        rest = [pair for number, pair in enumerate(cases) if number not in stopped]
        members, others = self.failures_of(rest, again=False)
        return members, found + others


def check_backend(
    backend: Backend,
    *,
    seconds: float = SECONDS,
    seed: int = 0,
    operators: Sequence[str] = (),
    draws: int = DRAWS,
    device: str = HOST.name,
    tell: Tell = lambda sentence: None,
) -> CheckReport:
    """Draw layers at and around what a backend accepts, and check what it computes of them.

    Args:
        backend: the backend.
        seconds: after which no further batch begins; what is left of them, and some seconds at
            least, is for reducing failures.
        seed: equal seeds draw equal cases.
        operators: names of the patterns to check; default: all.
        draws: number of cases of all patterns together.
        device: name of the device that libraries run on.
        tell: called with each stage.

    Raises:
        InputError: the backend registers no such pattern.
    """
    started = time.monotonic()
    report = CheckReport(backend.target_name, seed)
    with temporary_folder("umakit-check-") as folder:
        session = Session(backend, folder, device)
        chosen = _chosen(session.claims, operators)
        report.operators = {name: Counts() for name in chosen}
        drawing = _draws(session, chosen, np.random.default_rng(seed))
        left = draws
        accepted: list[Case] = []
        undrawn = [_undrawn(name) for name in chosen if session.claims[name].drawing is None]
        while left > 0 and time.monotonic() - started < seconds and not report.failures:
            cases = list(itertools.islice(drawing, min(left, BATCH)))
            if not cases:
                break
            left -= len(cases)
            tell(f"{draws - left} of {draws} layers")
            _count(report, cases, *session.failures_of(cases))
            accepted += [case for case, is_accepted in cases if is_accepted]
        left_seconds = max(LEAST_SECONDS, seconds - (time.monotonic() - started))
        report.failures = _reduced(report.failures, session, left_seconds, tell)
        if accepted and not report.failures:
            tell("next to another accelerator")
            beside = folder / "beside"
            report.failures = fails_beside_another(
                backend, accepted[::-1], beside, find_device(device)
            )
    report.failures += undrawn
    _without_runs(report)
    report.seconds = time.monotonic() - started
    return report


def check_layer(backend: Backend, case: str, *, device: str = HOST.name) -> CheckReport:
    """Check one case, as a report prints it.

    Args:
        backend: the backend.
        case: text of the case.
        device: name of the device that it runs on.

    Raises:
        InputError: the text is no case of this backend.
    """
    started = time.monotonic()
    report = CheckReport(backend.target_name, 0)
    with temporary_folder("umakit-check-") as folder:
        session = Session(backend, folder, device)
        found = read_case(case)
        _chosen(session.claims, [layer.pattern for layer in found.layers])
        report.operators = {layer.pattern: Counts() for layer in found.layers}
        try:
            accepted = accepts(found, session.claims)
        except NotDrawable as reason:
            raise InputError(f"there is no such layer: {reason}", where=str(found)) from None
        cases = [(found, accepted)]
        _count(report, cases, *session.failures_of(cases))
    report.seconds = time.monotonic() - started
    return report


def _chosen(claims: dict[str, Claim], wanted: Sequence[str]) -> list[str]:
    for name in wanted:
        if name not in claims:
            known = ", ".join(claims) or "none"
            raise InputError(f"the backend registers no pattern {name!r}", fix=f"it has {known}")
    return [name for name in claims if not wanted or name in wanted]


def _draws(
    session: Session, names: Sequence[str], random: np.random.Generator
) -> Iterator[tuple[Case, bool]]:
    """Yield cases of all claims in turn, with what their patterns say."""
    walks = {}
    for name in names:
        claim = session.claims[name]
        if claim.drawing is None:
            continue
        walk = Walk(claim, random)
        if walk.has_any:
            walks[name] = walk
    for walk in walks.values():
        for layer, accepted in walk.edges():
            if accepted:
                yield Case((layer,)), True
    while walks:
        for walk in walks.values():
            layer, accepted = walk.draw()
            case = Case((layer,))
            if accepted and random.random() < CHAINED:
                other = walks[str(random.choice(list(walks)))]
                chain = Case((layer, other.draw()[0]))
                if _is_chain(session, chain):
                    case = chain
            yield case, accepted


def _is_chain(session: Session, case: Case) -> bool:
    try:
        return accepts(case, session.claims)
    except NotDrawable:
        return False


UNDRAWN = "give a network that has the operator to uma diff"


def _undrawn(name: str) -> Failure:
    return Failure(name, "layers of its operators cannot be drawn", None, UNDRAWN)


def _reduced(
    failures: Sequence[Failure], session: Session, seconds: float, tell: Tell
) -> list[Failure]:
    """Return the first failure of each pattern, with a case that is as simple as possible."""
    first: dict[str, Failure] = {}
    for failure in failures:
        first.setdefault(failure.pattern, failure)
    found = []
    for failure in first.values():
        if failure.case is not None:
            tell(f"reducing a failure of {failure.pattern}")
            failure = shrunk(failure, session.claims, session.failing, seconds / len(first))
        found.append(failure)
    return found


def _count(
    report: CheckReport,
    cases: Sequence[tuple[Case, bool]],
    members: Sequence[Member],
    failures: Sequence[Failure],
) -> None:
    for case, _ in cases:
        report.operators[case.pattern].drawn += 1
    for member in members:
        counts = report.operators[member.case.pattern]
        counts.ran += member.ran
        counts.refused += not member.ran
    for failure in failures:
        report.operators[failure.pattern].failed += 1
    report.failures += failures


def _without_runs(report: CheckReport) -> None:
    """Add a failure for each claimed operator of which no layer ran."""
    failed = {failure.pattern for failure in report.failures}
    for name, counts in report.operators.items():
        if not counts.ran and name not in failed and not report.failures:
            report.failures.append(
                Failure(
                    name, f"none of {counts.drawn} drawn layers ran on the accelerator", None,
                    "look at the constraints of the pattern: they may refuse every layer",
                )
            )  # fmt: skip
