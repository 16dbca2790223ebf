# SPDX-License-Identifier: Apache-2.0
"""Machines of other shapes in `accel.toml`: their cycles are those of an event simulation.

The simulation knows tensors and their buffers, by number, but no banks, streams or tiles of umakit.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest
from comparisons import examples
from hypothesis import assume, given
from hypothesis import strategies as st

from umakit.backend import AcceleratorConfig
from umakit.machine import Kind, Layer, TilePlanner, Tiling, misfit, tiles_on
from umakit.machine.estimate import Estimates
from umakit.machine.selection import best_tilings, search_space
from umakit.machine.space import axis_sizes, invalid
from umakit.machine.tiles import AXES, BUFFERS

BLOCK, LANES, ROW = 8, 8, 16
"""Channels in a block of weights, products of a cycle, and bytes of a row of windows."""


@dataclass(frozen=True)
class Shape:
    """A machine.

    Attributes:
        channels: 1, or 2 DMA engines, the second one for weights and parameters.
        own_memory: whether weights and parameters have a memory of their own.
        sums: where sums stay: `memory`, `result`, or nowhere.
        windows: whether the data lie as rows of their windows.
        in_order: whether loads and stores of an engine keep their order.
        depths: commands that the array and each DMA engine hold.
        widths, tails: of each DMA engine.
        accesses: of a load of weights.
        ends: cycles that the first and the last job of a tile take longer.
        fifo: whether the queue of all copies, of both DMA engines, keeps their order.
        queues: entries, and what happens without a free one: of the array and of all copies.
        memory: bytes of each memory, in banks of 64 bytes.
    """

    channels: int = 1
    own_memory: bool = False
    sums: str = ""
    windows: bool = False
    in_order: bool = False
    exclusive: bool = True
    depths: tuple[int, int, int] = (2, 1, 1)
    widths: tuple[int, int] = (4, 8)
    tails: tuple[int, int] = (9, 20)
    accesses: int = 5
    ends: tuple[int, int] = (0, 0)
    queues: tuple[tuple[int, str], tuple[int, str]] = ((4, "interrupt"), (6, "stall"))
    fifo: bool = False
    memory: int = 8192

    @property
    def text(self) -> str:
        """Its `accel.toml`."""
        second = ["weights", "parameters"]
        copies = [["data", "addend", "result"], second]
        if self.channels == 1:
            copies = [[*copies[0], *second]]
        memories = [["data", "addend", "result"], second] if self.own_memory else [[]]
        sums = {"memory": "sum_bytes = 8192", "result": "sums_in_result = true", "": ""}[self.sums]
        ends = "+ {} * first + {} * last".format(*self.ends) if any(self.ends) else ""
        windows = f'footprints.data = "m * ceil_div(k, {ROW}) * {ROW}"' if self.windows else ""
        return (
            f"""
        accelerator.name = "shape"
        [machine]
        macs_per_cycle = {LANES * LANES}
        bytes_per_cycle = {sum(self.widths[: self.channels])}
        block_channels = {BLOCK}
        {sums}
        {windows}
        [machine.driver]
        begin = 3
        configure = 4
        transfer = 5
        job = 6
        check = 1
        finish = 2
        """
            + "".join(
                f"""
        [[machine.queue]]
        name = "{name}"
        entries = {entries}
        completion = "{how}"
        in_order = {str(self.fifo and name == "copies").lower()}
        """
                for name, (entries, how) in zip(("jobs", "copies"), self.queues, strict=True)
            )
            + f"""
        [[machine.engine]]
        name = "array"
        does = ["convolution"]
        busy = "m * ceil_div(n, {LANES}) * ceil_div(k, {LANES}) {ends}"
        tail = 7
        depth = {self.depths[0]}
        """
            + "".join(
                f"""
        [[machine.engine]]
        name = "dma{number}"
        does = {does}
        queue = "copies"
        busy = "ceil_div(bytes, {width})"
        bytes_per_cycle = {
                    max(width, self.widths[self.channels - 1]) if "weights" in does else width
                }
        tail = {tail}
        depth = {depth}
        in_order = {str(self.in_order).lower()}
        costs.weights = {{ busy = "ceil_div(bytes, {self.widths[self.channels - 1]})", tail = {
                    self.tails[self.channels - 1]
                }, accesses = {self.accesses} }}
        """.replace("costs.weights" if "weights" not in does else "\0", "#")
                for number, (does, width, tail, depth) in enumerate(
                    zip(copies, self.widths, self.tails, self.depths[1:], strict=False)
                )
            )
            + "".join(
                f"""
        [[memory]]
        name = "memory{number}"
        size = {self.memory}
        banks = {self.memory // 64}
        row_bytes = {ROW if self.windows else 1}
        exclusive = {str(self.exclusive).lower()}
        holds = {holds}
        address = "offset"
        reachable_by = ["accelerator"]
        """
                for number, holds in enumerate(memories)
            )
        )

    @property
    def planner(self) -> TilePlanner:
        return TilePlanner.of(AcceleratorConfig.model_validate(tomllib.loads(self.text)))


# ---- The simulation ----

Places = frozenset[tuple[str, int]]


@dataclass
class Event:
    """A command: what it takes, and when."""

    engine: str
    kind: str
    busy: int
    tail: int
    reads: Places
    writes: Places
    accesses: int
    start: int | None = None
    end: int = 1 << 60

    def conflicts(self, other: Event, exclusive: bool) -> bool:
        if self.writes & other.reads or self.reads & other.writes:
            return True
        if self.engine == other.engine:
            return False
        touched = (self.reads | self.writes) & (other.reads | other.writes)
        return bool(touched if exclusive else self.writes & other.writes)


class Simulation:
    """Goes from one event to the next."""

    def __init__(self, shape: Shape) -> None:
        self.shape, self.now, self.seen = shape, 0, list[Event]()
        self.depth = dict(zip(("array", "dma0", "dma1"), shape.depths, strict=True))

    def of(self, queue: int) -> list[Event]:
        return [each for each in self.seen if (each.engine != "array") == bool(queue)]

    def may_start(self, event: Event, older: list[Event]) -> bool:
        held = [
            each
            for each in self.seen
            if each.engine == event.engine and each.start is not None and each.end > self.now
        ]
        if len(held) >= self.depth[event.engine]:
            return False
        if any((each.start or 0) + each.busy > self.now for each in held):
            return False
        if self.shape.fifo and event.engine != "array":
            waiting = [each for each in self.of(1) if each.start is None]
            if waiting[0] is not event:
                return False
        return not any(
            (each.start is None and each.engine == event.engine
             and (self.shape.in_order or each.kind == event.kind))
            or (each.end > self.now and each.conflicts(event, self.shape.exclusive))
            for each in older
        )  # fmt: skip

    def driver(self, events: list[Event]) -> Iterator[int | None]:
        """Yields when it goes on: a cycle, or None for the end of a command that it waits for."""
        free, time = [entries for entries, _ in self.shape.queues], 0
        for event in events:
            queue = int(event.engine != "array")
            entries, how = self.shape.queues[queue]
            time += event.accesses - 1
            asks = {"interrupt": 2, "polling": 1, "stall": 0}[how]
            while free[queue] == 0:
                time += asks
                yield time
                ended = sum(each.end <= self.now for each in self.of(queue))
                free[queue] = entries - len(self.of(queue)) + ended
                if free[queue] == 0 and how != "polling":
                    self.awaited = queue, ended
                    yield None
                    time = self.now
                elif free[queue] == 0:
                    self.awaited = queue, ended
            time += 1
            yield time
            free[queue] -= 1
            self.seen.append(event)

    def run(self, events: list[Event]) -> int:
        if self.shape.queues[0][0] == 0:
            return sum(each.accesses + each.busy + each.tail for each in events)
        driver = self.driver(events)
        wake: int | None = next(driver)
        while True:
            for number, event in enumerate(self.seen):
                if event.start is None and self.may_start(event, self.seen[:number]):
                    before = [e.end for e in self.seen
                              if e.engine == event.engine and e.start is not None]  # fmt: skip
                    event.start = self.now
                    event.end = max([self.now + event.busy + event.tail, *before])
            times = [t for e in self.seen if e.start is not None
                     for t in (e.start + e.busy, e.end) if t > self.now]  # fmt: skip
            times += [wake] if wake is not None and wake < 1 << 60 else []
            if not times:
                return max(each.end for each in events)
            self.now = min(times)
            while wake == self.now or (wake is None and self.has_ended()):
                wake = next(driver, 1 << 60)

    def has_ended(self) -> bool:
        queue, before = self.awaited
        return sum(each.end <= self.now for each in self.of(queue)) > before


# ---- What a layer takes, from its sizes ----


def parts(size: int, tile: int) -> list[tuple[int, int]]:
    return [(start, min(tile, size - start)) for start in range(0, size, tile)]


def events_of(shape: Shape, layer: Layer, cut: Tiling) -> list[Event]:
    """The commands of a convolution without padding, in the order of its loops."""
    height, width = layer.output_size
    extent = {"rows": height, "columns": width, "output_channels": layer.output_channels,
              "input_channels": layer.input_channels}  # fmt: skip
    axes = {axis: parts(size, getattr(cut, axis)) for axis, size in extent.items()}
    loops = [axis for axis in (*cut.order, "input_channels") if len(axes[axis]) > 1]
    uses = {"weights": ("output_channels", "input_channels"), "result": AXES,
            "data": ("rows", "columns", "input_channels")}  # fmt: skip
    depth = {name: max((loops.index(a) + 1 for a in own if a in loops), default=0)
             for name, own in uses.items()}  # fmt: skip
    count, steps = dict.fromkeys(uses, -1), len(axes["input_channels"])
    engine = {name: 1 if name in ("weights", "parameters") and shape.channels == 2 else 0
              for name in (*uses, "parameters")}  # fmt: skip
    stored, events, held = layer.stored_channels, list[Event](), dict[str, tuple[int, ...]]()

    def copy(name: str, places: Places, size: int, accesses: int = 5) -> None:
        number = engine[name]
        reads, writes = (places, frozenset()) if name == "result" else (frozenset(), places)
        kind = "store" if name == "result" else "load"
        accesses = shape.accesses if name == "weights" else accesses
        busy = -(-size // shape.widths[number])
        events.append(
            Event(f"dma{number}", kind, busy, shape.tails[number], reads, writes, accesses)
        )

    def banks(first: int, size: int) -> Places:
        """Parameters: 64 bytes to a bank."""
        return frozenset(
            ("parameters", n) for n in range(first // 64, (first + size - 1) // 64 + 1)
        )

    def slot(name: str) -> Places:
        return frozenset({(name, count[name] % cut.buffers)})

    for at in product(*(range(len(axes[axis])) for axis in loops)):
        now = {axis: sizes[0] for axis, sizes in axes.items()}
        now |= {axis: axes[axis][number] for axis, number in zip(loops, at, strict=True)}
        (_, rows), (_, columns) = now["rows"], now["columns"]
        (first, outputs), (step, inputs) = now["output_channels"], now["input_channels"]
        kernel = layer.kernel[0]
        size = {
            "data": (rows + kernel - 1) * (columns + kernel - 1) * inputs,
            "weights": -(-outputs // BLOCK) * BLOCK * kernel * kernel * inputs,
        }
        for name in sorted(size, key=lambda each: depth[each]):
            if held.get(name) != at[: depth[name]]:
                held[name], count[name] = at[: depth[name]], count[name] + 1
                copy(name, slot(name), size[name])
        if not any(at):
            for number, bytes_ in enumerate((4 * stored, 4 * stored, stored)):
                copy("parameters", banks(4 * stored * number, bytes_), bytes_, 5 + 4 * (not number))
        is_first, is_last = step == 0, step + inputs == layer.input_channels
        count["result"] += is_first
        reads = slot("data") | slot("weights")
        reads |= banks(4 * first, 4 * outputs) if is_first else frozenset()
        if is_last:
            reads |= banks(4 * stored + 4 * first, 4 * outputs)
            reads |= banks(8 * stored + first, outputs)
        keeps = shape.sums == "result"
        reads |= slot("result") if keeps and not is_first else frozenset()
        writes = slot("result") if keeps or is_last else frozenset()
        busy = rows * columns * -(-outputs // LANES) * -(-kernel * kernel * inputs // LANES)
        busy += shape.ends[0] * is_first + shape.ends[1] * is_last
        events.append(Event("array", "job", busy, 7, reads, writes, 6))
        if is_last:
            copy("result", slot("result"), rows * columns * outputs)
    events[0].accesses += 3
    for each in events[1:] if shape.queues[0][0] == 0 else []:
        each.accesses += 1
    assert steps == 1 or shape.sums
    return events


def check(shape: Shape, layer: Layer, cut: Tiling) -> int:
    """The predicted cycles, which are those of the simulation; bounds and estimates hold."""
    planner = shape.planner
    tiles = tiles_on(layer, cut, planner.machine)
    events = events_of(shape, layer, cut)
    found = planner.predict(tiles)
    assert found.cycles == Simulation(shape).run(events) + 2
    assert found.bound.cycles <= found.cycles
    # Of the network, without what fills blocks up; a multiplier and a shift for each channel.
    copied = layer.output_channels * (layer.window * layer.input_channels + 9)
    assert found.bound.memory >= copied / max(shape.widths[shape.channels - 1 :])
    estimates = Estimates(layer, planner.machine, planner.driver)
    estimate = estimates.of(tiles)
    assert estimate.commands == len(events)
    assert estimates.bound(cut) <= estimate.bound <= min(found.cycles, estimate.cycles)
    return found.cycles


# ---- Machines ----

WIDE = ((64, "stall"), (64, "stall"))
"""Queues that are never full."""


def convolution(size: int, inputs: int, outputs: int, kernel: int) -> Layer:
    result = size - kernel + 1
    stored = -(-outputs // BLOCK) * BLOCK
    return Layer(
        Kind.CONVOLUTION, 1, (size, size), (result, result), inputs, outputs, (kernel, kernel),
        scales=outputs, stored_channels=stored,
    )  # fmt: skip


LAYERS = st.builds(
    convolution, st.integers(3, 8), st.integers(1, 40), st.integers(2, 40), st.integers(1, 3)
)


def drawn_cut(data: st.DataObject, shape: Shape, layer: Layer) -> Tiling:
    machine = shape.planner.machine
    sizes = {
        axis: data.draw(st.sampled_from(axis_sizes(layer, machine, axis, every=True)), axis)
        for axis in ("rows", "columns", "output_channels", "input_channels")
    }
    if not shape.sums:
        sizes["input_channels"] = layer.input_channels
    order, buffers = data.draw(st.permutations(AXES)), data.draw(st.sampled_from(BUFFERS))
    cut = Tiling(machine.dataflows[0], **sizes, order=tuple(order), buffers=buffers)
    tiles = tiles_on(layer, cut, machine)
    assume(not misfit(tiles, machine))
    extents = 1
    for extent in tiles.extents.values():
        extents *= extent
    assume(extents < 40)
    return cut


HOW = st.sampled_from(["interrupt", "polling", "stall"])
QUEUES = st.tuples(*[st.tuples(st.integers(1, 8), HOW)] * 2) | st.just(((0, "stall"),) * 2)
SHAPES: st.SearchStrategy[Any] = st.builds(
    Shape, st.integers(1, 2), st.booleans(), st.sampled_from(["", "result", "memory"]),
    st.booleans(), st.booleans(), st.booleans(), st.tuples(*[st.integers(1, 3)] * 3),
    st.tuples(*[st.integers(1, 16)] * 2), st.tuples(*[st.integers(0, 60)] * 2),
    st.integers(1, 30), st.tuples(*[st.sampled_from([0, 9, 40])] * 2), QUEUES,
    st.booleans(),
)  # fmt: skip


@examples(80)
@given(shape=SHAPES, layer=LAYERS, data=st.data())
def test_any_machine_takes_the_cycles_of_the_simulation(
    shape: Shape, layer: Layer, data: st.DataObject
) -> None:
    check(shape, layer, drawn_cut(data, shape, layer))


def test_two_channels_copy_at_the_same_time() -> None:
    """Bounds by the sum of both would exceed what the machine takes."""
    layer = convolution(8, 32, 32, 3)
    both = Shape(channels=2, own_memory=True, widths=(1, 1), tails=(0, 0), queues=WIDE)
    one, planner = replace(both, channels=1), both.planner
    cut = Tiling(planner.machine.dataflows[0], 2, 6, 8, 32, ("output_channels", *AXES[1:]), 2)
    cycles = {shape.channels: check(shape, layer, cut) for shape in (one, both)}
    assert cycles[2] < cycles[1]
    estimates = [
        Estimates(layer, shape.planner.machine, planner.driver).of(
            tiles_on(layer, cut, shape.planner.machine)
        )
        for shape in (one, both)
    ]
    copied = [sum(event.busy for event in events_of(shape, layer, cut) if event.kind != "job")
              for shape in (one, both)]  # fmt: skip
    assert copied[0] == copied[1]  # and so many cycles one channel needs at least, but not two:
    assert estimates[0].bound >= copied[0] > cycles[2] >= estimates[1].bound
    cut = planner.default(layer)
    assert cut is not None and check(both, layer, cut) <= cycles[2]


def test_a_blocked_command_holds_up_all_behind_it_in_a_queue_that_keeps_order() -> None:
    """A store waits for its job; loads of weights of the other engine are behind it or overtake."""
    layer = convolution(8, 32, 32, 3)
    free = Shape(channels=2, own_memory=True, queues=WIDE)
    planner = free.planner
    cut = Tiling(planner.machine.dataflows[0], 6, 6, 8, 32, AXES, 2)
    queue = planner.machine.machine.queues[1]
    fifo = replace(free, fifo=True)
    ordered = fifo.planner.machine
    assert (queue.in_order, ordered.machine.queues[1].in_order) == (False, True)
    assert check(free, layer, cut) < check(fifo, layer, cut)
    run = fifo.planner.predict(tiles_on(layer, cut, ordered)).run
    assert run is not None
    copies = [
        span.start
        for command, span in zip(run.commands, run.timeline, strict=True)
        if ordered.machine.engine_of(command.stream).queue == "copies"
    ]
    assert copies == sorted(copies)
    assert run.breakdown.cycles == run.cycles
    figures = [each.planner.machine.figures() for each in (free, fifo)]
    name = "machine.queues.copies.in_order"
    assert [each[name] for each in figures] == ["False", "True"]
    assert {key for key in figures[0] if figures[0][key] != figures[1][key]} == {name}


def test_weights_have_a_memory_of_their_own() -> None:
    shape = Shape(own_memory=True, sums="result", queues=WIDE)
    layer, planner = convolution(6, 40, 128, 3), shape.planner
    flow = planner.machine.dataflows[0]
    # 9 * 40 * 32 bytes of weights for one buffer, 8192 in each memory.
    whole = Tiling(flow, 4, 4, 32, 40, AXES, 1)
    assert invalid(layer, whole, planner.machine) == "needs 12,672 B, memory1 has 8,192 B"
    assert invalid(layer, replace(whole, input_channels=16), planner.machine) == ""
    # In one memory they would take the room of data and result.
    tight = Tiling(flow, 4, 4, 16, 40, AXES, 1)
    assert invalid(layer, tight, planner.machine) == ""
    assert invalid(layer, tight, replace(shape, own_memory=False).planner.machine).startswith(
        "needs 8,"
    )
    cut = planner.default(layer)
    assert cut is not None
    for each in (cut, tight, replace(whole, input_channels=16)):
        check(shape, layer, each)
    # With several buffers the next weights are loaded while the array reads others.
    busy = sum(event.busy + event.tail for event in events_of(shape, layer, cut))
    assert check(shape, layer, cut) < busy


def test_without_an_accumulator_input_channels_are_not_cut() -> None:
    layer = convolution(6, 40, 24, 3)
    for sums in ("", "result", "memory"):
        shape = Shape(sums=sums, queues=WIDE)
        planner = shape.planner
        flow, machine = planner.machine.dataflows[0], planner.machine
        cut = Tiling(flow, 2, 4, 8, 8, AXES, 2)
        reason = invalid(layer, cut, machine)
        space = search_space(layer, machine, 2)
        found = best_tilings(space, layer, machine, planner.driver, 50).candidates
        chosen = planner.default(layer)
        assert found and chosen is not None
        check(shape, layer, chosen)
        if sums:
            assert reason == ""
            check(shape, layer, cut)
            assert any(each.tiling.input_channels < 40 for each in found)
        else:
            # A tile of 2 x 4 positions and 8 channels of sums, 4 bytes each.
            assert reason == "needs 256 B of accumulators, there are 0 B"
            assert {each.tiling.input_channels for each in found} == {40}


@examples(40)
@given(shape=SHAPES, layer=LAYERS, memory=st.integers(4, 64), buffers=st.sampled_from(BUFFERS))
def test_a_tiling_fits_in_the_order_of_its_loops(
    shape: Shape, layer: Layer, memory: int, buffers: int
) -> None:
    """The order decides how often a tensor is copied, and so how many tiles lie in memory."""
    planner = replace(shape, memory=64 * memory).planner
    machine = planner.machine
    space = search_space(layer, machine, buffers)
    for each in best_tilings(space, layer, machine, planner.driver, 50).candidates:
        assert invalid(layer, each.tiling, machine) == ""


def test_rows_of_windows_take_the_memory_of_data() -> None:
    layer = convolution(8, 20, 16, 3)
    shape = Shape(windows=True, own_memory=True, queues=WIDE)
    planner, plain = shape.planner, replace(shape, windows=False).planner
    machine, flow = planner.machine, planner.machine.dataflows[0]
    row = -(-9 * 20 // ROW) * ROW
    for rows, columns, buffers in ((1, 6, 1), (2, 6, 2), (6, 6, 1), (3, 5, 2), (6, 6, 2)):
        cut = Tiling(flow, rows, columns, 8, 20, AXES, buffers)
        tiles = tiles_on(layer, cut, machine)
        bytes_ = -(-rows * columns * row // 64) * 64
        assert tiles.buffers["data"].tile_bytes == bytes_
        results = -(-rows * columns * ROW // 64) * 64  # 8 channels fill half a row
        assert tiles.buffers["result"].tile_bytes == results
        held = tiles.buffers["data"].tiles * bytes_ + tiles.buffers["result"].tiles * results
        assert (misfit(tiles, machine) == "") == (held <= 8192)
        assert misfit(tiles_on(layer, cut, plain.machine), plain.machine) == ""
        if held <= 8192:
            check(shape, layer, cut)
    assert planner.default(layer) != plain.default(layer)


@pytest.mark.parametrize("alignment", [None, 16, 64, 256, 1024])
def test_tiles_start_at_multiples_of_the_alignment(alignment: int | None) -> None:
    text = Shape().text
    if alignment is not None:
        text = text.replace("banks = 128", f"banks = 128\nalignment = {alignment}")
    planner = TilePlanner.of(AcceleratorConfig.model_validate(tomllib.loads(text)))
    layer = convolution(7, 5, 24, 2)
    cut = Tiling(planner.machine.dataflows[0], 3, 4, 8, 5, AXES, 2)
    tiles = tiles_on(layer, cut, planner.machine)
    unit = alignment or 64
    sizes = {"data": 4 * 5 * 5, "weights": 4 * 5 * 8, "parameters": 9 * 24, "result": 3 * 4 * 8}
    buffers = {name: buffer.tile_bytes for name, buffer in tiles.buffers.items()}
    assert buffers == {name: -(-size // unit) * unit for name, size in sizes.items()}
    held = sum(buffer.size for buffer in tiles.buffers.values())
    assert (misfit(tiles, planner.machine) == "") == (held <= 8192)
    if alignment == 1024:
        message = f"needs {1024 * 7:,} B"
        assert held == 1024 * 7 and message not in misfit(tiles, planner.machine)
