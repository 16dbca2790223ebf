# SPDX-License-Identifier: Apache-2.0
"""Attribution of the array's idle cycles to loads, stores and the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from umakit.machine.description import Machine

NEVER = 1 << 62
"""A cycle number that is larger than all others."""


@dataclass(slots=True)
class CycleBreakdown:
    """The cycles of a run by the state of the array; they add up to the cycles of the run.

    Attributes:
        compute: a command occupied the array.
        drain: the array was idle while the results of the last command drained.
        load: the array waited for data to be loaded into the scratchpad.
        store: the array waited for a store that occupied banks or the DMA engine, or that was the
            last work.
        driver: the driver had not enqueued the next command.
        other: the array waited for another engine that computes.
        streams: the cycles of `load`, `store` and `other` by awaited stream.
    """

    compute: int = 0
    drain: int = 0
    load: int = 0
    store: int = 0
    driver: int = 0
    other: int = 0
    streams: dict[str, int] = field(default_factory=dict)

    @property
    def cycles(self) -> int:
        """Cycles of the run."""
        return self.compute + self.drain + self.load + self.store + self.driver + self.other

    def as_json(self) -> dict[str, int]:
        """All counts by name except `streams`; `other` only on machines with several computing
        engines."""
        counts = asdict(self)
        del counts["streams"]
        return {name: count for name, count in counts.items() if name != "other" or count}


@dataclass(frozen=True, slots=True)
class Schedule:
    """The times of commands by index, and the awaited commands of each start.

    Lists of times have two additional entries: for a command that never comes, and, last, for no
    command.

    Attributes:
        dependencies: the newest older command of each stream that has to end first.
        enqueued: the cycle in which the driver had enqueued the command.
        stalled_by: the command whose end freed its queue entry, if the driver waited; -1 for none.
        starts, completions: cycles of the start and of the completion of the command.
        orders: by engine, its commands in the order of their starts.
    """

    dependencies: list[tuple[int, ...]]
    enqueued: list[int]
    stalled_by: list[int]
    starts: list[int]
    completions: list[int]
    orders: dict[str, list[int]]

    @classmethod
    def empty(cls, dependencies: list[tuple[int, ...]], machine: Machine) -> Schedule:
        """Return the schedule before any command has started."""
        count = len(dependencies)
        return cls(
            dependencies=dependencies,
            enqueued=[NEVER] * (count + 2),
            stalled_by=[-1] * (count + 2),
            starts=[NEVER] * (count + 2),
            completions=[*[NEVER] * (count + 1), 0],
            orders={engine.name: [] for engine in machine.engines},
        )


def cycle_breakdown(
    streams: Sequence[str],
    busy: Sequence[int],
    schedule: Schedule,
    machine: Machine,
    explained: str | None = None,
) -> CycleBreakdown:
    """Attribute each cycle of a run to the array's work or to the cause of its stall.

    The array is the engine of the explained stream. An idle cycle is attributed along the critical
    path that ends with the start of the array's next command. This start waited for the command
    that ended last, whose start waited for another command, and so on, back to the cycle in which
    the array became idle.

    Args:
        explained: the explained stream; default: `Machine.explained`.
    """
    explained = explained or machine.explained
    found = Waits(streams, busy, schedule, machine)
    breakdown = found.breakdown
    idle_from = 0
    for index, stream in enumerate(streams):
        if stream == explained:
            start = schedule.starts[index]
            # The command started in the tail of the previous command.
            breakdown.drain -= max(0, idle_from - start)
            found.explain(index, min(idle_from, start))
            breakdown.compute += busy[index]
            idle_from = schedule.completions[index]
            breakdown.drain += idle_from - start - busy[index]
    if streams:
        last = max(range(len(streams)), key=schedule.completions.__getitem__)
        end = schedule.completions[last]
        if end > idle_from:
            found.add(last, end - max(schedule.starts[last], idle_from))
            found.explain(last, idle_from)
    return breakdown


def awaited_commands(
    streams: Sequence[str], busy: Sequence[int], schedule: Schedule, machine: Machine
) -> list[int]:
    """Return for each command the command whose end let it start; -1 for none.

    A command without such a command started when the driver had enqueued it.
    """
    found = Waits(streams, busy, schedule, machine)
    return [found.stalling_command(index) for index in range(len(streams))]


class Waits:
    """A breakdown that accumulates the idle cycles of an engine."""

    def __init__(
        self, streams: Sequence[str], busy: Sequence[int], schedule: Schedule, machine: Machine
    ) -> None:
        self.breakdown = CycleBreakdown()
        self._busy, self._schedule = busy, schedule
        does = {stream.name: stream.does for stream in machine.streams}
        self._does = [does[stream] for stream in streams]
        depths = {engine.name: engine.depth for engine in machine.engines}
        self._before = _predecessors(streams, machine)
        # By command: its engine's commands in order, its place among them, the engine's depth.
        self._places = {
            index: (order, number, depths[name])
            for name, order in schedule.orders.items()
            for number, index in enumerate(order)
        }
        self._streams = streams

    def add(self, index: int, cycles: int) -> None:
        """Add cycles in which the array waited for a command."""
        does, stream = self._does[index], self._streams[index]
        waits = self.breakdown.streams
        waits[stream] = waits.get(stream, 0) + cycles
        if does == "load":
            self.breakdown.load += cycles
        elif does == "store":
            self.breakdown.store += cycles
        else:
            self.breakdown.other += cycles

    def explain(self, index: int, floor: int) -> None:
        """Attribute the cycles from `floor` to the start of a command: the array is idle there."""
        schedule = self._schedule
        while (time := schedule.starts[index]) > floor:
            cause = self.stalling_command(index)
            number = index
            while cause < 0 and time > floor:  # for the driver
                cause = schedule.stalled_by[number]
                if cause >= 0:
                    begin = schedule.completions[cause]
                else:
                    begin = schedule.enqueued[number - 1] if number else 0
                self.breakdown.driver += time - max(begin, floor)
                time, number = begin, number - 1
            if time <= floor:
                return
            self.add(cause, time - max(schedule.starts[cause], floor))
            index = cause

    def stalling_command(self, index: int) -> int:
        """Return the command whose end let a command start; -1 if the command started when
        enqueued."""
        starts, completions = self._schedule.starts, self._schedule.completions
        start = starts[index]
        for each in self._schedule.dependencies[index]:
            if completions[each] == start:
                return each
        order, number, depth = self._places[index]
        if number >= 1:
            before = order[number - 1]
            if start in (starts[before] + self._busy[before], completions[before]):
                return before
        if number >= depth and completions[order[number - depth]] == start:
            return order[number - depth]
        ahead = self._before.get(index, -1)
        if ahead >= 0 and starts[ahead] == start:  # waited behind that command, for the same end
            return self.stalling_command(ahead)
        return -1


def _predecessors(streams: Sequence[str], machine: Machine) -> dict[int, int]:
    """Return for each command in a queue with `in_order` the command ahead of it."""
    ordered = {queue.name for queue in machine.queues if queue.in_order}
    queues = {each.name: engine.queue for engine in machine.engines for each in engine.streams}
    newest: dict[str, int] = {}
    found = {}
    for index, stream in enumerate(streams):
        queue = queues[stream]
        if queue in ordered:
            found[index] = newest.get(queue, -1)
            newest[queue] = index
    return found
