# SPDX-License-Identifier: Apache-2.0
"""Attribution of the array's idle cycles to loads, stores and the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

NEVER = 1 << 62
"""A cycle number that is larger than all others."""


@dataclass(slots=True)
class CycleBreakdown:
    """The cycles of a run by the state of the array; they add up to the cycles of the run.

    Attributes:
        compute: a command occupied the array.
        drain: the array was idle while the results of the last command drained.
        load: the array waited for data to be loaded into the scratchpad.
        store: the array waited for a store, because it occupied banks or the DMA engine, or no
            other work was left.
        driver: the driver had not enqueued the next command.
    """

    compute: int = 0
    drain: int = 0
    load: int = 0
    store: int = 0
    driver: int = 0

    @property
    def cycles(self) -> int:
        """Cycles of the run."""
        return self.compute + self.drain + self.load + self.store + self.driver

    def as_json(self) -> dict[str, int]:
        """All fields by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Schedule:
    """The times of commands by index, and the commands that each start waited for.

    Lists have two additional entries: for a command that never comes, and, last, for no command.

    Attributes:
        dependencies: the newest older command of each stream that has to end first; -1 for none.
        enqueued: the cycle in which the driver had enqueued it.
        stalled_by: the command whose end freed its queue entry, if the driver waited; -1 for none.
        starts, completions: cycles of the start and of the completion of the command.
        dma_order: loads and stores in the order in which they started.
    """

    dependencies: list[tuple[int, int, int]]
    enqueued: list[int]
    stalled_by: list[int]
    starts: list[int]
    completions: list[int]
    dma_order: list[int]

    @classmethod
    def empty(cls, dependencies: list[tuple[int, int, int]]) -> Schedule:
        """Return the schedule before any command has started."""
        count = len(dependencies)
        return cls(
            dependencies=[*dependencies, (-1, -1, -1)],
            enqueued=[NEVER] * (count + 2),
            stalled_by=[-1] * (count + 2),
            starts=[NEVER] * (count + 2),
            completions=[*[NEVER] * (count + 1), 0],
            dma_order=[],
        )


def cycle_breakdown(
    streams: Sequence[str], busy: Sequence[int], schedule: Schedule
) -> CycleBreakdown:
    """Attribute each cycle of a run to the array's work or to the cause of its stall.

    An idle cycle is attributed along the critical path that ends with the start of the array's next
    command: that start waited for the command that ended last, whose start waited for another one,
    and so on, back to the cycle in which the array became idle.

    Args:
        streams: stream of each command.
        busy: cycles that each command occupies its engine.
    """
    breakdown = CycleBreakdown()
    place = {index: number for number, index in enumerate(schedule.dma_order)}
    idle_from = 0
    for index, stream in enumerate(streams):
        if stream == "array":
            start = schedule.starts[index]
            # This command started in the tail of the one before.
            breakdown.drain -= max(0, idle_from - start)
            _explain(index, min(idle_from, start), streams, busy, schedule, place, breakdown)
            breakdown.compute += busy[index]
            idle_from = schedule.completions[index]
            breakdown.drain += idle_from - start - busy[index]
    if streams:
        last = max(range(len(streams)), key=schedule.completions.__getitem__)
        end = schedule.completions[last]
        if end > idle_from:
            _add(breakdown, streams[last], end - max(schedule.starts[last], idle_from))
            _explain(last, idle_from, streams, busy, schedule, place, breakdown)
    return breakdown


def _add(breakdown: CycleBreakdown, stream: str, cycles: int) -> None:
    if stream == "load":
        breakdown.load += cycles
    else:
        breakdown.store += cycles


def _explain(
    index: int,
    floor: int,
    streams: Sequence[str],
    busy: Sequence[int],
    schedule: Schedule,
    place: dict[int, int],
    breakdown: CycleBreakdown,
) -> None:
    """Attribute the cycles from `floor` to the start of a command, in which the array is idle."""
    while (time := schedule.starts[index]) > floor:
        cause = _stalling_command(index, busy, schedule, place)
        number = index
        while cause < 0 and time > floor:  # for the driver
            cause = schedule.stalled_by[number]
            if cause >= 0:
                begin = schedule.completions[cause]
            else:
                begin = schedule.enqueued[number - 1] if number else 0
            breakdown.driver += time - max(begin, floor)
            time, number = begin, number - 1
        if time <= floor:
            return
        _add(breakdown, streams[cause], time - max(schedule.starts[cause], floor))
        index = cause


def _stalling_command(
    index: int, busy: Sequence[int], schedule: Schedule, place: dict[int, int]
) -> int:
    """Return the command whose end let this one start; -1 if it started when it was enqueued."""
    start, completions = schedule.starts[index], schedule.completions
    for each in schedule.dependencies[index]:
        if each >= 0 and completions[each] == start:
            return each
    number = place.get(index, 0)
    if number >= 1:
        before = schedule.dma_order[number - 1]
        if start in (schedule.starts[before] + busy[before], completions[before]):
            return before
    if number >= 2 and completions[schedule.dma_order[number - 2]] == start:
        return schedule.dma_order[number - 2]
    return -1
