# SPDX-License-Identifier: Apache-2.0
"""The clock of drawn machines, beside one that goes from cycle to cycle."""

from __future__ import annotations

from dataclasses import replace

import pytest
from comparisons import examples
from hypothesis import given
from hypothesis import strategies as st
from stepped_machine import Stepped

from umakit.errors import AcceleratorConfigError
from umakit.machine import Command, Engine, Machine, Memory, Queue, Stream
from umakit.machine.clock import run

# ---- Drawn machines ----


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Up to three memories and four engines, with one queue or several."""
    memories = tuple(
        Memory(f"memory{n}", 12, draw(st.integers(1, 3)), draw(st.booleans()))
        for n in range(draw(st.integers(1, 3)))
    )
    how = st.sampled_from(["interrupt", "polling", "stall"])
    queues = tuple(
        Queue(f"queue{n}", draw(st.integers(1, 5)), draw(how), draw(st.booleans()))
        for n in range(draw(st.integers(1, 3)))
    )
    engines = []
    for number in range(draw(st.integers(2, 4))):
        does = ["compute"] if number == 0 else ["compute", "load", "store"]
        streams = tuple(
            Stream(f"stream{number}{n}", draw(st.sampled_from(does)))
            for n in range(draw(st.integers(1, 2)))
        )
        queue = draw(st.sampled_from(queues)).name
        depth, in_order = draw(st.integers(1, 3)), draw(st.booleans())
        engines.append(Engine(f"engine{number}", streams, queue, depth, in_order))
    return Machine(memories, tuple(engines), queues)


@st.composite
def programs(draw: st.DrawFn) -> tuple[Machine, list[Command]]:
    machine = draw(machines())
    masks = st.integers(0, 2 ** sum(memory.banks for memory in machine.memories) - 1)
    few = masks.map(lambda mask: mask & mask >> 1)
    ranges = st.tuples(st.integers(0, 9), st.integers(1, 4)).map(lambda x: (x[0], sum(x)))
    command = st.builds(
        Command,
        stream=st.sampled_from([stream.name for stream in machine.streams]),
        busy=st.integers(1, 9), tail=st.integers(0, 9), reads=few, writes=few,
        issue=st.sampled_from([1, 1, 2, 6]), bus=st.none() | ranges,
    )  # fmt: skip
    return machine, draw(st.lists(command, max_size=16))


@examples(300)
@given(program=programs())
def test_every_command_of_any_machine_starts_when_it_can(
    program: tuple[Machine, list[Command]],
) -> None:
    machine, commands = program
    device = Stepped(machine)
    device.run(commands)
    found = run(commands, machine)
    spans = [(span.start, span.completion) for span in found.timeline]
    assert spans == [(ran.start, ran.end) for ran in device.all]
    assert found.cycles == max((end for _, end in spans), default=0)
    for engine in machine.engines:
        assert found.busy[engine.name] == sum(
            ran.command.busy for ran in device.all if ran.engine is engine
        )
    held = found.breakdown
    explained = [ran for ran in device.all if ran.command.stream == machine.streams[0].name]
    occupied = {cycle for ran in explained for cycle in range(ran.start or 0, ran.end or 0)}
    assert held.cycles == found.cycles
    assert held.compute == sum(ran.command.busy for ran in explained)
    assert held.compute + held.drain == len(occupied)
    # What is to blame was at work; and where nothing is, it can only be the driver.
    idle = set(range(found.cycles)) - occupied
    does = {stream.name: stream.does for stream in machine.streams}
    work = {kind: set[int]() for kind in ("load", "store", "compute")}
    for ran in device.all:
        work[does[ran.command.stream]] |= set(range(ran.start or 0, ran.end or 0)) & idle
    assert 0 <= held.load <= len(work["load"])
    assert 0 <= held.store <= len(work["store"])
    assert 0 <= held.other <= len(work["compute"])
    assert held.driver >= len(idle - work["load"] - work["store"] - work["compute"])


# ---- By hand ----

ARRAY = Engine("array", (Stream("job", "compute"),), "jobs")
LOAD, WEIGHTS, STORE = Stream("load", "load"), Stream("weights", "load"), Stream("store", "store")
JOBS, COPIES = Queue("jobs", 4), Queue("copies", 4)
DATA = Memory("data", 4096, banks=2)


def test_two_dma_engines_load_at_the_same_time() -> None:
    tile = [
        Command("load", 20, 0, 0, 0b0001),
        Command("weights", 30, 0, 0, 0b0100),
        Command("job", 40, 0, 0b0101, 0b0010),
        Command("store", 10, 0, 0b0010, 0),
    ]
    memories = (DATA, Memory("weights", 2048, banks=2))
    one = (ARRAY, Engine("dma", (LOAD, WEIGHTS, STORE), "copies"))
    two = (ARRAY, Engine("dma", (LOAD, STORE), "copies"), Engine("loader", (WEIGHTS,), "copies"))
    # One after the other from the first access; beside each other from the second one.
    assert run(tile, Machine(memories, one, (JOBS, COPIES))).cycles == 1 + 20 + 30 + 40 + 10
    found = run(tile, Machine(memories, two, (JOBS, COPIES)))
    assert found.cycles == 2 + 30 + 40 + 10
    assert found.busy == {"array": 40, "dma": 30, "loader": 30}
    assert found.breakdown.as_json() == {
        "compute": 40, "drain": 0, "load": 30, "store": 10, "driver": 2,
    }  # fmt: skip


def test_banks_of_all_memories_are_numbered_through() -> None:
    weights = Memory("weights", 4096, banks=4, exclusive=False)
    machine = Machine((DATA, weights), (ARRAY,), (JOBS,))
    assert machine.banks("data", 0, 2048) == 0b01
    assert machine.banks("data", 2047, 2) == 0b11
    assert machine.banks("weights", 1024, 2049) == 0b111000
    assert machine.exclusive_banks == 0b11


def test_engines_read_a_bank_together_unless_it_is_exclusive() -> None:
    store = Engine("dma", (STORE,), "copies")
    both = [Command("job", 40, 0, 1, 0), Command("store", 10, 0, 1, 0)]
    for exclusive, start in ((True, 41), (False, 2)):
        memory = replace(DATA, exclusive=exclusive)
        found = run(both, Machine((memory,), (ARRAY, store), (JOBS, COPIES)))
        assert found.timeline[1].start == start


def test_a_driver_that_stalls_enqueues_as_soon_as_there_is_room() -> None:
    machine = Machine((DATA,), (ARRAY,), (Queue("jobs", 1, "stall"),))
    found = run([Command("job", 50, 0, 0, 0) for _ in range(3)], machine)
    assert [span.start for span in found.timeline] == [1, 52, 103]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Memory("data", 100, 3), "memory data: 100 B are not 3 equal banks"),
        (lambda: Stream("load", "fetch"), "stream load does fetch, not compute, load or store"),
        (lambda: Queue("jobs", 1, "never"), "never is not one of interrupt, polling, stall"),
        (lambda: Machine((DATA, DATA), (ARRAY,), (JOBS,)), "two memories are called data"),
        (lambda: Machine((DATA,), (ARRAY, ARRAY), (JOBS,)), "two engines are called array"),
        (lambda: Machine((DATA,), (ARRAY,), (COPIES,)), "array waits in jobs, which is no queue"),
        (lambda: Machine((DATA,), (), ()), "no stream computes"),
        (
            lambda: Machine((DATA,), (ARRAY,), (JOBS, Queue("copies", 0))),
            "queues with and without entries do not go together",
        ),
        (lambda: Machine((DATA,), (ARRAY,), (JOBS,)).memory("sums"), "there is no memory sums"),
    ],
)
def test_a_description_that_does_not_agree_is_refused(make: object, message: str) -> None:
    with pytest.raises(AcceleratorConfigError, match=message):
        make()  # type: ignore[operator]


def test_a_command_of_no_stream_is_refused() -> None:
    with pytest.raises(ValueError, match="no engine serves the stream store"):
        run([Command("store", 1, 0, 0, 0)], Machine((DATA,), (ARRAY,), (JOBS,)))
