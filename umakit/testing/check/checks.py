# SPDX-License-Identifier: Apache-2.0
"""What is checked of each batch that has run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from umakit.partition.report import CPU
from umakit.testing.check.batch import Batch, Member, by
from umakit.testing.check.observed import (
    counters_are_consistent,
    faults_are_noticed,
    maps_its_own_buffers,
    old_data_is_not_read,
)
from umakit.testing.check.report import Failure
from umakit.testing.differences import Tolerance, compare

BatchCheck = Callable[[Batch], Sequence[Failure]]
"""Receives a batch that has run, and returns what is wrong with its members."""

NO_TEXT = ("", "the predicate returned False")


def results_are_right(batch: Batch) -> list[Failure]:
    """Every result equals the reference's."""
    return [failure for each in batch.members if (failure := _result(each)) is not None]


def _result(member: Member) -> Failure | None:
    if member.got is None or member.wanted is None or not member.ran:
        return None
    found = compare(member.got, member.wanted, Tolerance())
    if found.agrees:
        return None
    place = found.first
    got, wanted = member.got[place], member.wanted[place]
    return Failure(
        member.case.pattern,
        f"{member.title}: element {list(place)} of the result {by(member.wanted.shape)} is {got}"
        f" instead of {wanted}, {found.differing} of {found.elements} are wrong",
        member.case,
    )


def nothing_else_changes(batch: Batch) -> list[Failure]:
    """A layer writes only its result."""
    return [
        Failure(each.case.pattern, f"{each.title}: it writes {each.damaged[0]}", each.case)
        for each in batch.members
        if each.damaged
    ]


def runs_end_well(batch: Batch) -> list[Failure]:
    """Drivers return the status 0, and the program does not crash."""
    return [
        Failure(each.case.pattern, f"{each.title}: {each.stopped}", each.case, each.hint)
        for each in batch.members
        if each.stopped
    ]


def accepted_layers_run(batch: Batch) -> list[Failure]:
    """What the patterns accept runs on the accelerator; what stays on the CPU has a reason."""
    found = []
    for each in batch.members:
        if each.ran:
            continue
        name = each.case.pattern
        reason = each.reasons[0] if each.reasons else "no operator of that kind is left"
        if each.accepted:
            what = f"the pattern accepts the layer, which runs on the {CPU}: {reason}"
            found.append(Failure(name, what, each.case))
        elif any(reason in NO_TEXT for reason in each.reasons):
            found.append(
                Failure(
                    name, "the layer is refused without a reason", each.case,
                    "let the predicate return a sentence instead of False",
                )
            )  # fmt: skip
    return found


BATCH_CHECKS: list[BatchCheck] = [
    runs_end_well,
    accepted_layers_run,
    results_are_right,
    nothing_else_changes,
    old_data_is_not_read,
    maps_its_own_buffers,
    counters_are_consistent,
]
"""Checks of every batch, in order; the first failure of a case is reported."""

LAST_CHECKS: list[BatchCheck] = [faults_are_noticed]
"""Checks of batches in which nothing is wrong: they compare further runs with the first one."""
