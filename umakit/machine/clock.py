# SPDX-License-Identifier: Apache-2.0
"""Exact cycles of a list of commands on a machine.

A command starts when it is enqueued and the oldest of its stream, engine or queue, the engine is
free for the command, and no older running command conflicts with it; `Machine` defines conflicts.

The driver enqueues in the order of the list, a cycle for each access of a register, the last one
for the write that enqueues. Before this write the driver makes sure of a free entry in the
command's queue: the driver counts the known free entries, and asks the device when none is known,
as `Queue.completion` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from umakit.machine.description import Command, Completion, Engine, Machine, Stream
from umakit.machine.stalls import NEVER, CycleBreakdown, Schedule, cycle_breakdown

ASKED: dict[Completion, tuple[int, int]] = {
    "interrupt": (2, 2),
    "polling": (1, 0),
    "stall": (0, 0),
}
"""Cycles in which a driver asks for a free entry, and does so again after the end of a command."""

Ends = list[tuple[int, int]]
"""A heap of (completion, index) of the commands of a queue that have started."""


@dataclass(frozen=True, slots=True)
class Span:
    """The times of a command, in cycles.

    Attributes:
        enqueued: the cycle in which the driver had enqueued the command.
        busy_end: the cycle after the last busy cycle of the engine.
        completion: the cycle from which the effect is visible.
    """

    enqueued: int
    start: int
    busy_end: int
    completion: int


@dataclass(frozen=True, slots=True)
class Run:
    """The result of running a list of commands."""

    cycles: int
    busy: dict[str, int]
    commands: Sequence[Command]
    schedule: Schedule
    machine: Machine

    @property
    def timeline(self) -> list[Span]:
        """The times of each command, in the order of the list."""
        times = self.schedule
        return [
            Span(enqueued, start, start + command.busy, end)
            for command, enqueued, start, end in zip(
                self.commands, times.enqueued, times.starts, times.completions, strict=False
            )
        ]

    @property
    def breakdown(self) -> CycleBreakdown:
        """The cycles of the run by work and stalls of the array."""
        streams = [command.stream for command in self.commands]
        busy = [command.busy for command in self.commands]
        return cycle_breakdown(streams, busy, self.schedule, self.machine)


def run(commands: Sequence[Command], machine: Machine) -> Run:
    """Simulate commands from an idle machine with empty queues.

    Without queues the driver starts each command when the previous command has ended.

    Raises:
        ValueError: a command takes no cycles, or its stream is unknown to the machine.
    """
    issue = [command.issue for command in commands]
    busy = [command.busy for command in commands]
    if commands and min(min(issue), min(busy)) < 1:
        raise ValueError("every command needs an access of a register and a busy cycle")
    engines = {each.name: engine for engine in machine.engines for each in engine.streams}
    unknown = {command.stream for command in commands} - set(engines)
    if unknown:
        raise ValueError(f"no engine serves the stream {', '.join(sorted(unknown))}")
    schedule = Schedule.empty(dependencies_of(commands, machine), machine)
    if machine.has_queues:
        _overlap(commands, machine, schedule)
    else:
        _one_after_the_other(commands, engines, schedule)
    total = {
        engine.name: sum([busy[index] for index in schedule.orders[engine.name]])
        for engine in machine.engines
    }
    cycles = max(schedule.completions[: len(commands)], default=0)
    return Run(cycles, total, commands, schedule, machine)


def _one_after_the_other(
    commands: Sequence[Command], engines: dict[str, Engine], schedule: Schedule
) -> None:
    time = 0
    for index, command in enumerate(commands):
        start = time + command.issue
        time = start + command.busy + command.tail
        schedule.stalled_by[index] = index - 1
        schedule.enqueued[index] = schedule.starts[index] = start
        schedule.completions[index] = time
        schedule.orders[engines[command.stream].name].append(index)


class _Running:
    """An engine that runs one command after the other; it can take the next one from cycle
    `free`."""

    __slots__ = ("_busy", "_depth", "_ends", "_order", "_queue", "_schedule", "_tail", "free")

    def __init__(
        self,
        commands: Sequence[Command],
        engine: Engine,
        schedule: Schedule,
        queue: Ends,
    ) -> None:
        self._busy = [command.busy for command in commands]
        self._tail = [command.tail for command in commands]
        # The engine never holds more commands than there are.
        self._schedule, self._queue = schedule, queue
        self._depth = min(engine.depth, len(commands) + 1)
        self._order = schedule.orders[engine.name]
        self._ends = [0] * self._depth
        self.free = 0

    def take(self, index: int, start: int) -> None:
        busy_end = start + self._busy[index]
        ends = self._ends
        end = busy_end + self._tail[index]
        if end < ends[-1]:  # in order
            end = ends[-1]
        ends.append(end)
        before = ends[-self._depth]  # the end that lets the engine take another command
        self.free = busy_end if busy_end > before else before
        self._schedule.starts[index] = start
        self._schedule.completions[index] = end
        self._order.append(index)
        heappush(self._queue, (end, index))


def _overlap(commands: Sequence[Command], machine: Machine, schedule: Schedule) -> None:
    """Compute the schedule, one start after the other in order of time.

    Of the oldest commands of all lines, the command with the earliest possible start is next. No
    command with an unknown start can be earlier: a command that waits for another start becomes
    ready only after the completion of that command, or, behind that command in a queue, not before
    that start.
    """
    count = len(commands)
    enqueued, completions = schedule.enqueued, schedule.completions
    dependencies = [*schedule.dependencies, ()]
    running: dict[str, Ends] = {each.name: [] for each in machine.queues}
    lines = list(_lines(machine))
    served = {
        each.name: _Running(commands, each, schedule, running[each.queue])
        for each in machine.engines
    }
    line_of = {name: number for number, names in enumerate(lines) for name in names}
    engine_of = {name: served[machine.engine_of(name).name] for name in line_of}
    waiting: list[list[int]] = [[] for _ in lines]
    for index, command in enumerate(commands):
        waiting[line_of[command.stream]].append(index)
    following = [iter([*each, count]) for each in waiting]
    heads = [next(each) for each in following]
    takers = [*[engine_of[command.stream] for command in commands], next(iter(served.values()))]
    engines = [takers[head] for head in heads]
    ready, last = [NEVER] * len(lines), [0] * len(lines)  # last: the last start of each line
    numbers = range(len(lines))
    driver = _driver(commands, machine, running, schedule)
    awaited = next(driver)
    for _ in range(count):
        while True:
            start, first, chosen = NEVER, count, 0
            for number in numbers:
                time, head = ready[number], heads[number]
                if time == NEVER:
                    time = enqueued[head]
                    if last[number] > time:
                        time = last[number]
                    for each in dependencies[head]:
                        if completions[each] > time:
                            time = completions[each]
                    ready[number] = time
                if engines[number].free > time:
                    time = engines[number].free
                if time < start or (time == start and head < first):
                    start, first, chosen = time, head, number
            if _time_of(awaited) > start:
                break
            awaited = next(driver)
        engines[chosen].take(first, start)
        heads[chosen], ready[chosen], last[chosen] = next(following[chosen]), NEVER, start
        engines[chosen] = takers[heads[chosen]]


def _lines(machine: Machine) -> Iterator[list[str]]:
    """Yield the streams whose commands start in one order."""
    for queue in machine.queues:
        engines = [engine for engine in machine.engines if engine.queue == queue.name]
        if queue.in_order:
            yield [stream.name for engine in engines for stream in engine.streams]
            continue
        for engine in engines:
            names = [stream.name for stream in engine.streams]
            yield from [names] if engine.in_order else [[name] for name in names]


def _time_of(awaited: int | Ends) -> int:
    """Return the time itself, or the earliest of several ends; `NEVER` without ends."""
    if isinstance(awaited, int):
        return awaited
    return awaited[0][0] if awaited else NEVER


def _driver(
    commands: Sequence[Command], machine: Machine, running: dict[str, Ends], schedule: Schedule
) -> Iterator[int | Ends]:
    """Enqueue all commands; yield the cycle from which the driver continues once all earlier starts
    are known, or the queue in which the driver waits for the first end of a command."""
    entries = {each.name: each.entries for each in machine.queues}
    asked = {each.name: ASKED[each.completion] for each in machine.queues}
    queues = {each.name: engine.queue for engine in machine.engines for each in engine.streams}
    left = dict.fromkeys(entries, 0)  # commands in each queue, as far as the driver knows
    time = 0
    for index, command in enumerate(commands):
        queue = queues[command.stream]
        time += command.issue - 1
        first = -1
        if left[queue] == entries[queue]:
            time += asked[queue][0]
            yield time
            left[queue] -= _take_ended(running[queue], time)
        if left[queue] == entries[queue]:
            yield running[queue]
            time, first = running[queue][0]
            time += asked[queue][1]
            yield time
            left[queue] -= _take_ended(running[queue], time)
        time += 1
        left[queue] += 1
        schedule.stalled_by[index] = first
        schedule.enqueued[index] = time
    yield NEVER


def _take_ended(running: Ends, time: int) -> int:
    ended = 0
    while running and running[0][0] <= time:
        heappop(running)
        ended += 1
    return ended


def dependencies_of(commands: Sequence[Command], machine: Machine) -> list[tuple[int, ...]]:
    """Return the newest conflicting older command of each stream, for each command.

    Waiting for these commands is enough, because the commands of a stream end in order. The entries
    are in the order of `Machine.streams`.
    """
    banks = _banks_of(commands, machine)
    count = max((bank for each in banks.values() for bank in each), default=-1) + 1
    tables = {stream.name: _Table(count) for stream in machine.streams}
    others = {
        stream.name: [
            tables[other.name].seen_by(_is_same(machine, stream, other))
            for other in machine.streams
        ]
        for stream in machine.streams
    }
    exclusive = machine.exclusive_banks
    ranges = _Ranges(machine)
    result = []
    for index, command in enumerate(commands):
        writes, reads = banks[command.writes], banks[command.reads]
        found = []
        for if_writes, if_reads in others[command.stream]:
            newest = -1
            for bank in writes:
                if if_writes[bank] > newest:
                    newest = if_writes[bank]
            for bank in reads:
                if if_reads[bank] > newest:
                    newest = if_reads[bank]
            found.append(newest)
        tables[command.stream].add(index, reads, writes, banks[command.reads & exclusive])
        if command.bus is not None:
            found = ranges.add(index, command.stream, command.bus, found)
        result.append(tuple([each for each in found if each >= 0]))
    return result


class _Table:
    """The newest command of a stream that accesses each bank in some way."""

    def __init__(self, banks: int) -> None:
        self._touched, self._read, self._written, self._kept = ([-1] * banks for _ in range(4))

    def seen_by(self, is_same_engine: bool) -> tuple[list[int], list[int]]:
        """Return by bank the newest command to wait for before a write of the bank, and before a
        read."""
        if is_same_engine:
            return self._read, self._written
        return self._touched, self._kept

    def add(
        self, index: int, reads: Sequence[int], writes: Sequence[int], kept: Sequence[int]
    ) -> None:
        """Note a command; `kept` are the banks of `reads` that other engines cannot read
        meanwhile."""
        for bank in reads:
            self._touched[bank] = self._read[bank] = index
        for bank in kept:
            self._kept[bank] = index
        for bank in writes:
            self._touched[bank] = self._written[bank] = self._kept[bank] = index


class _Ranges:
    """The bytes on the bus that transfers access."""

    def __init__(self, machine: Machine) -> None:
        self._added: list[list[tuple[int, int, int]]] = [[] for _ in machine.streams]
        self._numbers = {each.name: number for number, each in enumerate(machine.streams)}
        # Loads only read; stores of one engine write in order.
        self._conflicts = {
            stream.name: [
                number
                for number, other in enumerate(machine.streams)
                if stream.does != other.does
                or (stream.does != "load" and not _is_same(machine, stream, other))
            ]
            for stream in machine.streams
        }

    def add(self, index: int, stream: str, bus: tuple[int, int], found: list[int]) -> list[int]:
        """Note a transfer; return by stream number the commands that the transfer waits for."""
        found = list(found)
        for number in self._conflicts[stream]:
            for other, first, end in reversed(self._added[number]):
                if first < bus[1] and bus[0] < end:
                    found[number] = max(found[number], other)
                    break
        self._added[self._numbers[stream]].append((index, *bus))
        return found


def _is_same(machine: Machine, stream: Stream, other: Stream) -> bool:
    """Whether one engine serves both streams."""
    return any(stream in each.streams and other in each.streams for each in machine.engines)


def _banks_of(commands: Sequence[Command], machine: Machine) -> dict[int, list[int]]:
    """Return the banks of each bit mask of commands, and of the exclusive banks in each mask.

    Banks that always occur together in masks are represented by one of them.
    """
    exclusive = machine.exclusive_banks
    masks: dict[int, None] = {}
    for command in commands:
        for mask in (command.reads, command.writes, command.reads & exclusive):
            masks[mask] = None
    groups: list[int] = []
    for mask in masks:
        groups = [part for each in groups for part in (each & mask, each & ~mask) if part] + (
            [rest] if (rest := mask & ~sum(groups)) else []
        )
    return {mask: [n for n, each in enumerate(groups) if each & mask] for mask in masks}
