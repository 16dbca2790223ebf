# SPDX-License-Identifier: Apache-2.0
"""Reduction of failures in large libraries to the simplest cases that fail alone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from umakit.errors import UmakitError
from umakit.testing.check.cases import SEED, Case
from umakit.testing.check.groups import Group
from umakit.testing.check.report import Failure
from umakit.testing.check.session import Session
from umakit.testing.check.shrink import shrunk

NEAR, FURTHER = 3, 12
"""Number of preceding cases that are tried one by one before a failing case, and number of
libraries in which the search for a preceding case continues."""

FAILING = 3
"""Number of failures of a group among which the first that fails alone is reduced."""

CONFIRMED = 8
"""Number of cases of a library that are tried in libraries of their own."""

Tell = Callable[[str], None]


def reduced(
    group: Group,
    behind: Callable[[Case], Sequence[Case]],
    session: Session,
    seconds: float,
    tell: Tell,
) -> Failure:
    """Return a failure of a group, with a case as simple as possible that fails by itself.

    Args:
        group: the failures.
        behind: case -> the cases that ran before it in its library, the nearest one last.
        session: session that runs cases.
        seconds: limit of a reduction; see `shrunk`.
        tell: called with the progress.
    """
    session.note = _progress_of(tell)
    for failure in group.failures[:FAILING]:
        if failure.case is None:
            return failure
        alone = fails_alone(session, failure.case)
        if alone is not None:
            found = shrunk(alone, session.claims, session.failing, seconds)
            assert found.case is not None
            return _with_group(found if fails_alone(session, found.case) else alone, group)
    found = _behind(group.failures[0], behind, session)
    if found.case is not None and found.case.before:
        return said_behind(
            shrunk(found, session.claims, lambda cases: _first_alone(session, cases), seconds)
        )
    return _with_group(found, group)


def _progress_of(tell: Tell) -> Callable[[int], None]:
    """Return what counts layers that have run, and tells their number every two seconds."""
    tried, told = 0, time.monotonic()

    def note(count: int) -> None:
        nonlocal tried, told
        tried += count
        if time.monotonic() - told >= 2.0:
            told = time.monotonic()
            tell(f"{tried} layers tried")

    return note


def _first_alone(session: Session, cases: Sequence[Case]) -> dict[str, Failure]:
    """Return the failure of the first case that also fails in a library of its own.

    In a library with others, a case may fail because of the cases in front of its own `before`.
    """
    together = session.failing(cases)
    for case in [each for each in cases if str(each) in together][:CONFIRMED]:
        found = fails_alone(session, case)
        if found is not None:
            return {str(case): found}
    return {}


def fails_alone(session: Session, case: Case) -> Failure | None:
    """Return the failure of a case in a library with only the case and the cases before it."""
    batch = [(each, True) for each in (*case.before, replace(case, before=()))]
    try:
        failures = session.batch_of(batch)[1]
    except UmakitError as error:
        return Failure(case.pattern, str(error), case)
    last = [each for each in failures if each.case is batch[-1][0]]
    return replace(last[0], case=case) if last else None


def _with_group(failure: Failure, group: Group) -> Failure:
    if not group.shared:
        return failure
    return replace(failure, what=f"{failure.what}; {group.shared}")


def _behind(
    failure: Failure, behind: Callable[[Case], Sequence[Case]], session: Session
) -> Failure:
    """Return a failure with the fewest cases before its own behind which the case fails."""
    case = failure.case
    assert case is not None
    before = list(behind(case))
    for other in before[: -NEAR - 1 : -1]:
        found = fails_alone(session, replace(case, before=(other,)))
        if found is not None:
            return found
    found = fails_alone(session, replace(case, before=tuple(before))) if before else None
    if found is None:
        return replace(
            failure,
            what=f"{failure.what}; alone the layer is right, and behind the layers before it, too",
            fix="the same --seed shows it again: it depends on more than these layers",
        )
    for _ in range(FURTHER):
        assert found.case is not None
        kept = found.case.before
        half = len(kept) // 2
        parts = (kept[half:], kept[:half]) if half else ()
        for part in parts:
            less = fails_alone(session, replace(case, before=part))
            if less is not None:
                found = less
                break
        else:
            break
    return found


def is_same_cause(left: Failure, right: Failure) -> bool:
    """Whether two reduced failures have one cause: they fail in the same way, and one layer has all
    values of the other.

    Layers with other values of the same settings prove nothing: two kernels may have two bugs.
    """
    cases = [each.case for each in (left, right) if each.case and not each.case.before]
    if len(cases) < 2 or any(len(each.layers) > 1 for each in cases) or _kind(left) != _kind(right):
        return False
    few, many = sorted(({*each.layers[0].settings.items()} for each in cases), key=len)
    few = {(name, value) for name, value in few if name != SEED}
    return left.pattern == right.pattern and bool(few) and few <= many


def _kind(failure: Failure) -> str:
    """Return what is wrong without the names of shapes and without numbers."""
    return re.sub(r"^.*? of [^:]*: |\[.*?\]|-?\d+", "", failure.what.partition(";")[0])


def said_behind(failure: Failure) -> Failure:
    """Return a failure that a case only has behind others, with a sentence that says so."""
    assert failure.case is not None
    first = ", ".join(case.pattern for case in failure.case.before)
    return replace(
        failure,
        what=f"{failure.what}; alone the layer is right, and it is wrong directly after the {first}"
        " of this case",
        fix=failure.fix or "look for what the driver or the device keeps from the layer before",
    )
