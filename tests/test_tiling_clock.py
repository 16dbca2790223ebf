# SPDX-License-Identifier: Apache-2.0
"""The clock of command queues, beside a device that is stepped cycle by cycle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from comparisons import examples
from hypothesis import given
from hypothesis import strategies as st

from umakit.machine.clock import Run, Span, run
from umakit.machine.description import Command
from umakit.machine.hardware import Hardware

PLAIN = Hardware(rows=4, columns=4, scratchpad_bytes=1024, scratchpad_banks=4, command_queue=8)
PIPELINED = replace(PLAIN, preload=True, outstanding=True)


# ---- A device that is stepped ----


@dataclass
class Entry:
    number: int
    command: Command
    start: int = -1
    age: int = -1
    completion: int = -1


@dataclass
class Stepped:
    """A queue, the DMA engine, the array and the driver, one cycle after the other."""

    commands: list[Command]
    hardware: Hardware
    time: int = 0
    queue: list[Entry] = field(default_factory=list)  # not ended, oldest first
    dma: list[Entry] = field(default_factory=list)  # started and not ended, oldest first
    array: list[Entry] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    pending: bool = False  # the interrupt COMMAND_DONE
    seen: list[tuple[bool, bool, set[str]]] = field(default_factory=list)

    def engine(self, entry: Entry) -> list[Entry]:
        return self.array if entry.command.stream == "array" else self.dma

    def takes_another(self, entry: Entry) -> bool:
        engine = self.engine(entry)
        pipelined = self.hardware.preload if engine is self.array else self.hardware.outstanding
        if not pipelined:
            return not engine
        return len(engine) <= 1 and all(each.age >= each.command.busy for each in engine)

    def start(self) -> None:
        """All that can; older ones first."""
        for place, entry in enumerate(self.queue):
            older = self.queue[:place]
            if (
                entry.start < 0
                and self.takes_another(entry)
                and not any(
                    conflict(each.command, entry.command)
                    or (each.start < 0 and each.command.stream == entry.command.stream)
                    for each in older
                )
            ):
                entry.start, entry.age = self.time, 0
                self.engine(entry).append(entry)

    def tick(self) -> None:
        working = [each for each in self.array if each.age < each.command.busy]
        assert len(working) <= 1
        self.seen.append(
            (bool(working), bool(self.array), {each.command.stream for each in self.dma})
        )
        self.time += 1
        for engine in (self.dma, self.array):
            for entry in engine:
                entry.age += 1
            while engine and engine[0].age >= engine[0].command.busy + engine[0].command.tail:
                entry = engine.pop(0)
                entry.completion = self.time
                self.queue.remove(entry)
                self.pending = True
        self.start()

    def driver(self) -> Iterator[str]:
        """What it does with registers, in order, a cycle each; "wait" takes none itself."""
        free = self.hardware.command_queue
        for number, command in enumerate(self.commands):
            for _ in range(command.issue - 1):
                yield "write a register"
            while free == 0 and self.hardware.completion == "polling":
                yield "read QUEUE_FREE"
                free = self.hardware.command_queue - len(self.queue)
            while free == 0:
                yield "clear COMMAND_DONE"
                self.pending = False
                yield "read QUEUE_FREE"
                free = self.hardware.command_queue - len(self.queue)
                if free == 0:
                    yield "wait"
            yield "write CONTROL"
            free -= 1
            assert len(self.queue) < self.hardware.command_queue
            self.queue.append(Entry(number, command))
            self.entries.append(self.queue[-1])
            self.start()

    def run(self) -> int:
        for action in self.driver():
            if action == "wait":
                while not self.pending:
                    self.tick()
            else:
                self.tick()
        # The generator acts on an access when it is asked for the next one.
        while self.queue:
            self.tick()
        return max((each.completion for each in self.entries), default=0)


def conflict(older: Command, younger: Command) -> bool:
    if (older.stream == "array") != (younger.stream == "array"):
        return (older.reads | older.writes) & (younger.reads | younger.writes) != 0
    if older.stream != younger.stream and older.bus and younger.bus:
        first, end = older.bus
        if younger.bus[0] < end and first < younger.bus[1]:
            return True
    return (older.writes & younger.reads) | (older.reads & younger.writes) != 0


# ---- Comparison ----

MASKS = st.sampled_from([0, 1, 2, 4, 8, 3, 6, 12, 9])
RANGES = st.one_of(
    st.none(), st.tuples(st.integers(0, 20), st.integers(1, 6)).map(lambda x: (x[0], sum(x)))
)


@st.composite
def commands(draw: st.DrawFn) -> Command:
    stream = draw(st.sampled_from(["load", "array", "store"]))
    return Command(
        stream=stream,  # type: ignore[arg-type]
        busy=draw(st.integers(1, 12)),
        tail=draw(st.integers(0, 9)),
        reads=draw(MASKS),  # the clock does not care that no load does
        writes=draw(MASKS),
        issue=draw(st.sampled_from([1, 1, 2, 5, 9])),
        bus=None if stream == "array" else draw(RANGES),
    )


HARDWARE = st.builds(
    replace,
    st.just(PLAIN),
    preload=st.booleans(),
    outstanding=st.booleans(),
    command_queue=st.integers(1, 8),
    completion=st.sampled_from(["interrupt", "polling"]),
)


@examples(400)
@given(program=st.lists(commands(), max_size=24), hardware=HARDWARE)
def test_every_command_runs_when_the_stepped_device_runs_it(
    program: list[Command], hardware: Hardware
) -> None:
    device = Stepped(program, hardware)
    cycles = device.run()
    found = run(program, hardware.machine)
    assert [(span.start, span.completion) for span in found.timeline] == [
        (entry.start, entry.completion) for entry in device.entries
    ]
    assert [span.busy_end - span.start for span in found.timeline] == [c.busy for c in program]
    assert found.cycles == cycles
    check_waits(found, device.seen[:cycles])


def check_waits(found: Run, seen: list[tuple[bool, bool, set[str]]]) -> None:
    held = found.breakdown
    idle = [streams for _, occupied, streams in seen if not occupied]
    assert held.cycles == found.cycles == len(seen)
    assert held.compute == found.busy["array"] == sum(works for works, _, _ in seen)
    assert held.drain == sum(occupied and not works for works, occupied, _ in seen)
    # What is to blame was there; and where nothing runs it can only be the driver.
    assert 0 <= held.load <= sum("load" in streams for streams in idle)
    assert 0 <= held.store <= sum("store" in streams for streams in idle)
    assert held.driver >= sum(not streams for streams in idle)


@examples(50)
@given(program=st.lists(commands(), max_size=10), pipelined=st.booleans())
def test_without_a_queue_one_command_follows_the_other(
    program: list[Command], pipelined: bool
) -> None:
    hardware = replace(PIPELINED if pipelined else PLAIN, command_queue=0)
    found = run(program, hardware.machine)
    assert found.cycles == sum(each.issue + each.busy + each.tail for each in program)
    held = found.breakdown
    assert held.driver == sum(each.issue for each in program)
    assert held.compute + held.drain == sum(
        each.busy + each.tail for each in program if each.stream == "array"
    )
    assert held.cycles == found.cycles


# ---- By hand ----


def tile(bank: int, load: int, compute: int, store: int, tail: int = 0) -> list[Command]:
    """Load into one bank, compute from there into the next one, store that."""
    operand, result = 1 << bank, 2 << bank
    return [
        Command("load", load, tail, 0, operand),
        Command("array", compute, tail, operand, result),
        Command("store", store, tail, result, 0),
    ]


def test_two_buffers_hide_transfers_behind_computing() -> None:
    program = [command for number in range(4) for command in tile(2 * (number % 2), 10, 30, 10)]
    found = run(program, PLAIN.machine)
    # The first load after one access; then the array never rests; then the last store.
    assert found.cycles == 1 + 10 + 4 * 30 + 10
    assert found.busy == {"array": 120, "dma": 80}
    assert found.breakdown.as_json() == {
        "compute": 120, "drain": 0, "load": 10, "store": 10, "driver": 1,
    }  # fmt: skip


def test_one_buffer_hides_nothing() -> None:
    program = [command for _ in range(4) for command in tile(0, 10, 30, 10)]
    found = run(program, PLAIN.machine)
    # A load may go beside the store before it, but for the engine that both share.
    assert found.cycles == 1 + 4 * (10 + 30 + 10)
    assert found.breakdown.as_json() == {
        "compute": 120, "drain": 0, "load": 40, "store": 40, "driver": 1,
    }  # fmt: skip


def test_a_pipelined_array_is_filled_and_drained_once() -> None:
    program = [Command("array", 30, 20, 1, 0) for _ in range(4)]
    assert run(program, PIPELINED.machine).cycles == 1 + 4 * 30 + 20
    assert run(program, PLAIN.machine).cycles == 1 + 4 * (30 + 20)
    assert run(program, PIPELINED.machine).breakdown.as_json() == {
        "compute": 120, "drain": 20, "load": 0, "store": 0, "driver": 1,
    }  # fmt: skip


def test_at_most_one_command_is_in_its_tail_beside_a_busy_one() -> None:
    program = [Command("array", 5, 20, 0, 0) for _ in range(3)]
    assert run(program, PIPELINED.machine).timeline == [
        Span(1, 1, 6, 26), Span(2, 6, 11, 31), Span(3, 26, 31, 51),
    ]  # fmt: skip


def test_a_short_command_does_not_overtake_the_tail_of_the_one_before() -> None:
    program = [Command("array", 5, 20, 0, 0), Command("array", 3, 0, 0, 0)]
    assert run(program, PIPELINED.machine).timeline == [Span(1, 1, 6, 26), Span(2, 6, 9, 26)]


def test_of_two_transfers_that_could_start_the_older_one_does() -> None:
    older = [Command("load", 9, 0, 0, 1), Command("store", 4, 0, 2, 0), Command("load", 4, 0, 0, 4)]
    assert [span.start for span in run(older, PLAIN.machine).timeline] == [1, 10, 14]
    # The store waits for the job, so the younger load goes first.
    waits = [older[0], Command("array", 20, 0, 8, 2), *older[1:]]
    assert [span.start for span in run(waits, PLAIN.machine).timeline] == [1, 2, 22, 10]


def test_a_full_queue_holds_the_driver() -> None:
    program = [Command("array", 50, 0, 0, 0, issue=10) for _ in range(3)]
    found = run(program, replace(PLAIN, command_queue=1).machine)
    # After each end: clear the interrupt, read QUEUE_FREE, write CONTROL.
    assert [span.start for span in found.timeline] == [10, 63, 116]
    assert found.breakdown.driver == 10 + 3 + 3
    found = run(program, replace(PLAIN, command_queue=1, completion="polling").machine)
    assert [span.start for span in found.timeline] == [10, 61, 112]


def test_what_is_no_command() -> None:
    assert run([], PLAIN.machine).cycles == 0
    assert run([], PLAIN.machine).breakdown.cycles == 0
    with pytest.raises(ValueError, match="a busy cycle"):
        run([Command("load", 0, 0, 0, 1)], PLAIN.machine)
