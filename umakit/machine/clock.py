# SPDX-License-Identifier: Apache-2.0
"""Exact cycles of a list of commands on the simulated `systolic_array` with a command queue.

Loads, stores and jobs of the array are three streams, each in order. A command starts when it is
enqueued and the oldest of its stream, its engine can take it, and no older command that has not
ended conflicts with it. The DMA engine serves both loads and stores, of two that could start the
older one.

The driver enqueues in the order of the list, a cycle for each access of a register, the last one
for the write to CONTROL. Before that write it makes sure of a free entry: it counts those that it
knows of, and when it knows of none, it clears the interrupt COMMAND_DONE and reads QUEUE_FREE, a
cycle each. If there is none, it waits for the interrupt and does both again. A driver that polls
reads QUEUE_FREE in every cycle until there is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Literal

from umakit.machine.hardware import Hardware
from umakit.machine.stalls import NEVER, CycleBreakdown, Schedule, cycle_breakdown


@dataclass(frozen=True, slots=True)
class Command:
    """A command that the driver enqueues.

    Attributes:
        stream: the stream it belongs to: array, load or store.
        busy: cycles that it occupies its engine, at least 1.
        tail: cycles after these until its effect is complete.
        reads: bit mask of the scratchpad banks that it reads.
        writes: bit mask of the scratchpad banks that it writes.
        issue: register accesses by which the driver enqueues it, at least 1.
        bus: first and end address of a load's or store's bytes on the bus, if transfers in the
            other direction may access them too.
    """

    stream: Literal["load", "array", "store"]
    busy: int
    tail: int
    reads: int
    writes: int
    issue: int = 1
    bus: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """The times of a command, in cycles.

    Attributes:
        enqueued: the cycle in which the driver had enqueued it.
        start: its first cycle.
        busy_end: the cycle after the last one in which it occupied its engine.
        completion: the cycle from which its effect is visible.
    """

    enqueued: int
    start: int
    busy_end: int
    completion: int


@dataclass(frozen=True, slots=True)
class Run:
    """The result of running a list of commands.

    Attributes:
        cycles: from the driver's first access to the last completion.
        array_busy, dma_busy: cycles in which the array and the DMA engine were occupied.
        commands: the commands in the order of the list.
        schedule: the times of each command.
    """

    cycles: int
    array_busy: int
    dma_busy: int
    commands: Sequence[Command]
    schedule: Schedule

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
        """The cycles of the run by what the array did or was stalled by."""
        streams = [command.stream for command in self.commands]
        busy = [command.busy for command in self.commands]
        return cycle_breakdown(streams, busy, self.schedule)


def run(commands: Sequence[Command], hardware: Hardware) -> Run:
    """Simulate commands from an idle device with an empty queue.

    Without a queue the driver starts each command when the previous one has ended.

    Raises:
        ValueError: a command takes no cycles.
    """
    issue = [command.issue for command in commands]
    busy = [command.busy for command in commands]
    if commands and min(min(issue), min(busy)) < 1:
        raise ValueError("every command needs an access of a register and a busy cycle")
    schedule = Schedule.empty(_dependencies(commands))
    if hardware.command_queue:
        _overlap(commands, hardware, schedule)
    else:
        _one_after_the_other(commands, schedule)
    array_busy = sum([command.busy for command in commands if command.stream == "array"])
    return Run(
        cycles=max(schedule.completions[: len(commands)], default=0),
        array_busy=array_busy,
        dma_busy=sum(busy) - array_busy,
        commands=commands,
        schedule=schedule,
    )


def _one_after_the_other(commands: Sequence[Command], schedule: Schedule) -> None:
    time = 0
    for index, command in enumerate(commands):
        start = time + command.issue
        time = start + command.busy + command.tail
        schedule.stalled_by[index] = index - 1
        schedule.enqueued[index] = schedule.starts[index] = start
        schedule.completions[index] = time
        if command.stream != "array":
            schedule.dma_order.append(index)


class _Engine:
    """An engine that runs one command after the other.

    Attributes:
        free: the cycle from which it can take the next one.
    """

    __slots__ = ("_busy", "_end", "_pipelined", "_running", "_schedule", "_tail", "free")

    def __init__(
        self,
        commands: Sequence[Command],
        pipelined: bool,
        schedule: Schedule,
        running: list[tuple[int, int]],
    ) -> None:
        self._busy = [command.busy for command in commands]
        self._tail = [command.tail for command in commands]
        self._pipelined, self._schedule, self._running = pipelined, schedule, running
        self._end = self.free = 0

    def take(self, index: int, start: int) -> None:
        """Start a command."""
        busy_end = start + self._busy[index]
        before, end = self._end, busy_end + self._tail[index]
        if end < before:  # in order
            end = before
        # At most one is in its tail while one is busy.
        self.free = end if not self._pipelined else busy_end if busy_end > before else before
        self._end = end
        self._schedule.starts[index] = start
        self._schedule.completions[index] = end
        heappush(self._running, (end, index))


def _overlap(commands: Sequence[Command], hardware: Hardware, schedule: Schedule) -> None:
    """Compute the schedule, one start after the other in order of time.

    Of the oldest commands of the three streams it always takes the one that can start first. No
    command with an unknown start can precede it: what waits for another start becomes ready only
    after the completion of that command.
    """
    count = len(commands)
    enqueued, completions = schedule.enqueued, schedule.completions
    dependencies = schedule.dependencies
    running: list[tuple[int, int]] = []
    compute = _Engine(commands, hardware.preload, schedule, running)
    dma = _Engine(commands, hardware.outstanding, schedule, running)
    arrays, loads, stores = (
        iter([i for i, command in enumerate(commands) if command.stream == name] + [count])
        for name in ("array", "load", "store")
    )
    array, load, store = next(arrays), next(loads), next(stores)
    array_ready = load_ready = store_ready = NEVER
    driver = _driver([command.issue for command in commands], hardware, running, schedule)
    wake = next(driver)
    while array < count or load < count or store < count:
        if array_ready == NEVER:
            a, b, c = dependencies[array]
            array_ready = max(enqueued[array], completions[a], completions[b], completions[c])
        if load_ready == NEVER:
            a, b, c = dependencies[load]
            load_ready = max(enqueued[load], completions[a], completions[b], completions[c])
        if store_ready == NEVER:
            a, b, c = dependencies[store]
            store_ready = max(enqueued[store], completions[a], completions[b], completions[c])
        array_start = array_ready if array_ready > compute.free else compute.free
        load_start = load_ready if load_ready > dma.free else dma.free
        store_start = store_ready if store_ready > dma.free else dma.free
        is_load = load_start < store_start or (load_start == store_start and load < store)
        dma_start = load_start if is_load else store_start
        if wake <= array_start and wake <= dma_start:
            wake = next(driver)
        elif array_start <= dma_start:
            compute.take(array, array_start)
            array, array_ready = next(arrays), NEVER
        elif is_load:
            dma.take(load, load_start)
            schedule.dma_order.append(load)
            load, load_ready = next(loads), NEVER
        else:
            dma.take(store, store_start)
            schedule.dma_order.append(store)
            store, store_ready = next(stores), NEVER


def _driver(
    issue: list[int], hardware: Hardware, running: list[tuple[int, int]], schedule: Schedule
) -> Iterator[int]:
    """Enqueue all commands.

    Args:
        issue: register accesses for each command.
        running: a heap of (completion, index) of commands that have started; commands that have
            ended are removed when the driver looks for them.

    Yields:
        The cycle at which the driver continues once all earlier starts are known.
    """
    polls = hardware.completion == "polling"
    time = 0
    left = 0  # commands in the queue, as far as the driver knows
    for index, accesses in enumerate(issue):
        time += accesses - 1
        first = -1
        if left == hardware.command_queue:
            time += 1 if polls else 2
            yield time
            left -= _take_ended(running, time)
        if left == hardware.command_queue:
            # Something runs, and what starts before its end on the same engine ends after it; on
            # the other one only an end lets something start.
            time, first = running[0]
            time += 0 if polls else 2
            yield time
            left -= _take_ended(running, time)
        time += 1
        left += 1
        schedule.stalled_by[index] = first
        schedule.enqueued[index] = time
    yield NEVER


def _take_ended(running: list[tuple[int, int]], time: int) -> int:
    ended = 0
    while running and running[0][0] <= time:
        heappop(running)
        ended += 1
    return ended


def _dependencies(commands: Sequence[Command]) -> list[tuple[int, int, int]]:
    """Return the newest older array command, load and store that each command conflicts with.

    -1 stands for none. It is enough to wait for these, because the commands of a stream end in
    order.
    """
    banks = max([(each.reads | each.writes).bit_length() for each in commands], default=0)
    # The newest command of each stream that touches a bank, that reads it, and that writes it.
    on_array, on_load, on_store = ([-1] * banks for _ in range(3))
    to_array, to_load, to_store = ([-1] * banks for _ in range(3))
    by_array, by_load, by_store = ([-1] * banks for _ in range(3))
    # An array command and a transfer conflict in any shared bank, others if one of them reads
    # what the other writes: those that both write do so in their order.
    jobs = ((to_array, on_load, on_store), (by_array, on_load, on_store))
    transfers = ((on_array, to_load, to_store), (on_array, by_load, by_store))
    tables = {
        "array": (on_array, to_array, by_array, *jobs),
        "load": (on_load, to_load, by_load, *transfers),
        "store": (on_store, to_store, by_store, *transfers),
    }
    bits: dict[int, list[int]] = {}
    ranges: dict[str, list[tuple[int, int, int]]] = {"load": [], "store": []}
    result = []
    for index, command in enumerate(commands):
        touched, read, written, if_writes, if_reads = tables[command.stream]
        array = load = store = -1
        for mask in (command.writes, command.reads):
            if mask not in bits:
                bits[mask] = [bank for bank in range(banks) if mask >> bank & 1]
        for mask, (arrays, loads, stores) in (
            (command.writes, if_writes),
            (command.reads, if_reads),
        ):
            for bank in bits[mask]:
                array = arrays[bank] if arrays[bank] > array else array
                load = loads[bank] if loads[bank] > load else load
                store = stores[bank] if stores[bank] > store else store
        for bank in bits[command.reads]:
            touched[bank] = read[bank] = index
        for bank in bits[command.writes]:
            touched[bank] = written[bank] = index
        if command.bus is not None:
            if command.stream == "load":
                store = max(store, _newest_overlap(ranges["store"], command.bus))
            else:
                load = max(load, _newest_overlap(ranges["load"], command.bus))
            ranges[command.stream].append((index, *command.bus))
        result.append((array, load, store))
    return result


def _newest_overlap(ranges: list[tuple[int, int, int]], bus: tuple[int, int]) -> int:
    for index, first, end in reversed(ranges):
        if first < bus[1] and bus[0] < end:
            return index
    return -1
