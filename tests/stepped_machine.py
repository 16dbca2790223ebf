# SPDX-License-Identifier: Apache-2.0
"""A machine of `umakit.machine.Machine` that goes from cycle to cycle, for comparison."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from umakit.machine import Command, Engine, Machine


@dataclass
class Ran:
    number: int
    command: Command
    engine: Engine
    start: int | None = None
    end: int | None = None

    def is_busy(self, now: int) -> bool:
        return self.start is not None and now < self.start + self.command.busy

    def has_ended(self, now: int) -> bool:
        return self.end is not None and self.end <= now


def clashes(machine: Machine, older: Ran, younger: Ran) -> bool:
    """Bank by bank, and byte by byte on the bus."""
    one_engine = older.engine is younger.engine
    exclusive = [memory.exclusive for memory in machine.memories for _ in range(memory.banks)]
    for bank, alone in enumerate(exclusive):
        first, second = (
            (bool(each.command.reads >> bank & 1), bool(each.command.writes >> bank & 1))
            for each in (older, younger)
        )
        if (first[0] and second[1]) or (first[1] and second[0]):
            return True
        if not one_engine and ((first[1] and second[1]) or (alone and any(first) and any(second))):
            return True
    if older.command.bus and younger.command.bus:
        does = {stream.name: stream.does for stream in machine.streams}
        kinds = [does[older.command.stream], does[younger.command.stream]]
        shared = set(range(*older.command.bus)) & set(range(*younger.command.bus))
        ordered = kinds == ["load", "load"] or (kinds[0] == kinds[1] and one_engine)
        return bool(shared) and not ordered
    return False


class Stepped:
    """Starts what can start in each cycle; `now` is the current one."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.now, self.all = machine, 0, list[Ran]()
        self.engine = {s.name: e for e in machine.engines for s in e.streams}
        self.fifos = {queue.name for queue in machine.queues if queue.in_order}

    def waits_in(self, queue: str) -> int:
        return sum(r.engine.queue == queue and not r.has_ended(self.now) for r in self.all)

    def keeps_order(self, older: Ran, younger: Ran) -> bool:
        if older.command.stream == younger.command.stream:
            return True
        if older.engine is younger.engine and older.engine.in_order:
            return True
        return older.engine.queue == younger.engine.queue and older.engine.queue in self.fifos

    def start(self) -> None:
        for place, ran in enumerate(self.all):
            older = [each for each in self.all[:place] if not each.has_ended(self.now)]
            inside = [r for r in self.all if r.engine is ran.engine and r.start is not None]
            held = [r for r in inside if not r.has_ended(self.now)]
            if (
                ran.start is None
                and len(held) < ran.engine.depth
                and not any(each.is_busy(self.now) for each in held)
                and not any(
                    (each.start is None and self.keeps_order(each, ran))
                    or clashes(self.machine, each, ran)
                    for each in older
                )
            ):
                ends = [each.end or 0 for each in inside]
                ran.start = self.now
                ran.end = max([self.now + ran.command.busy + ran.command.tail, *ends])

    def tick(self) -> None:
        self.start()
        self.now += 1

    def driver(self, commands: list[Command]) -> Iterator[None]:
        """Yields once for each cycle."""
        free = {queue.name: queue.entries for queue in self.machine.queues}
        entries, how = dict(free), {q.name: q.completion for q in self.machine.queues}
        for number, command in enumerate(commands):
            engine = self.engine[command.stream]
            queue = engine.queue
            for _ in range(command.issue - 1):
                yield
            while free[queue] == 0:
                if how[queue] == "interrupt":
                    yield  # clears the interrupt
                    yield  # reads
                elif how[queue] == "polling":
                    yield
                free[queue] = entries[queue] - self.waits_in(queue)
                if free[queue] == 0 and how[queue] != "polling":
                    before = self.waits_in(queue)
                    while self.waits_in(queue) == before:
                        yield
                    if how[queue] == "stall":
                        free[queue] = 1
            yield
            free[queue] -= 1
            self.all.append(Ran(number, command, engine))

    def run(self, commands: list[Command]) -> None:
        for _ in self.driver(commands):
            self.tick()
        while not all(each.has_ended(self.now) for each in self.all):
            self.tick()
