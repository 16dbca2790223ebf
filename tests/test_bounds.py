# SPDX-License-Identifier: Apache-2.0
"""Bounds of cycles against exhaustive search: orders of copies, ways to cut, all tilings."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice, permutations, product
from pathlib import Path

import onnx
import pytest
from comparisons import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from test_tile_machines import TwoChannels

import umakit
from umakit.machine import DriverCosts, Hardware, Kind, Layer, TileMachine, TilePlanner, Tiling
from umakit.machine.bounds import (
    Bound,
    EngineLimit,
    Limits,
    fill_cycles,
    layer_bound,
    limits_of,
)
from umakit.machine.bounds.losses import CAUSES, losses_of
from umakit.machine.bounds.network import Read, Step, compulsory_bytes, network_bound, spilled_bytes
from umakit.machine.commands import moved_bytes
from umakit.machine.costs import Cost, TileSizes
from umakit.machine.space import SIZED, axis_sizes, invalid, tiles_on
from umakit.machine.systolic import Dataflow, Product
from umakit.machine.tiles import AXES, BUFFERS
from umakit.tools.page.bounds import accelerator_bounds, tiled_layer
from umakit.tools.record import AcceleratorBounds, LayerRecord

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"
FREE = DriverCosts(0, 0, 0, transfer=1, job=1, check=0, finish=0)
"""A driver whose accesses take as little as the clock allows."""

# --- the network and its scratchpad: every order of copies ----------------------------------------

Byte = tuple[str, int]


@dataclass(frozen=True)
class Network:
    """A network of bytes: what each layer reads and writes, and which tensors are outputs."""

    reads: tuple[frozenset[Byte], ...]
    writes: tuple[frozenset[Byte], ...]
    outputs: frozenset[str]

    @property
    def sizes(self) -> dict[str, int]:
        bytes_ = frozenset().union(*self.reads, *self.writes)
        return {name: sum(each[0] == name for each in bytes_) for name, _ in bytes_}

    @property
    def steps(self) -> list[Step]:
        return [
            Step(
                f"layer{number}", "npu", 1,
                tuple(
                    Read(name, self.sizes[name], sum(each[0] == name for each in read))
                    for name in sorted({each[0] for each in read})
                ),
                {name: self.sizes[name] for name in {each[0] for each in written}},
            )
            for number, (read, written) in enumerate(zip(self.reads, self.writes, strict=True))
        ]  # fmt: skip


def least_copies(network: Network, room: int) -> int:
    """The fewest copies of a byte by Dijkstra's algorithm over all states of the two memories.

    In a state a layer is at work: each byte that it reads has to be in the scratchpad at some time,
    and each byte that it writes needs room there at some time; any byte may be loaded, stored and
    dropped at any time.
    """
    computed = frozenset().union(*network.writes)
    outside = frozenset().union(*network.reads) - computed
    wanted = frozenset(each for each in computed if each[0] in network.outputs)
    # Layer, bytes in the scratchpad, bytes in main memory, what the layer has still to do.
    State = tuple[int, frozenset[Byte], frozenset[Byte], frozenset[Byte], frozenset[Byte]]

    def entered(layer: int, here: frozenset[Byte], there: frozenset[Byte]) -> State:
        return layer, here, there, network.reads[layer] - here, network.writes[layer]

    def following(state: State) -> Iterator[tuple[int, State]]:
        layer, here, there, reads, writes = state
        for byte in here:
            yield 0, (layer, here - {byte}, there, reads, writes)
        for byte in here - there:
            yield 1, (layer, here, there | {byte}, reads, writes)
        if len(here) < room:
            for byte in there - here:
                yield 1, (layer, here | {byte}, there, reads - {byte}, writes)
            for byte in writes:
                yield 0, (layer, here | {byte}, there, reads, writes - {byte})
        if not reads and not writes and layer + 1 < len(network.reads):
            yield 0, entered(layer + 1, here, there)

    start = entered(0, frozenset(), outside)
    heap: list[tuple[int, int, State]] = [(0, 0, start)]
    best, count = {start: 0}, 0
    while heap:
        cost, _, state = heapq.heappop(heap)
        if cost > best[state]:
            continue
        layer, _, there, reads, writes = state
        if layer + 1 == len(network.reads) and not reads and not writes and wanted <= there:
            return cost
        for added, after in following(state):
            if cost + added < best.get(after, 1 << 30):
                best[after], count = cost + added, count + 1
                heapq.heappush(heap, (cost + added, count, after))
    raise AssertionError("no order of copies computes the network")


def bytes_of(name: str, count: int) -> frozenset[Byte]:
    return frozenset((name, number) for number in range(count))


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Networks of a few bytes in which layers read any earlier tensors, in whole or in part."""
    known = [bytes_of("input", draw(st.integers(1, 2)))]
    reads, writes = [], []
    left = 5 - len(known[0])
    for number in range(draw(st.integers(2, 4))):
        if left == 0:
            break
        chosen = draw(st.lists(st.sampled_from(known), min_size=1, max_size=2, unique=True))
        reads.append(
            frozenset().union(*(draw(st.sets(st.sampled_from(sorted(t)), min_size=1))
                                for t in chosen))
        )  # fmt: skip
        size = draw(st.integers(1, min(left, 3)))
        writes.append(bytes_of(f"t{number}", size))
        known.append(writes[-1])
        left -= size
    names = [f"t{number}" for number in range(len(writes))]
    outputs = {names[-1], *draw(st.sets(st.sampled_from(names), max_size=1))}
    return Network(tuple(reads), tuple(writes), frozenset(outputs))


@examples(15)
@given(network=networks(), room=st.integers(1, 3))
def test_no_order_of_copies_moves_less(network: Network, room: int) -> None:
    moved = sum(compulsory_bytes(network.steps, network.outputs, "npu").values())
    spilled = spilled_bytes(network.steps, network.outputs, "npu", room)
    assert least_copies(network, room) >= moved + spilled
    everything = sum(network.sizes.values())
    assert spilled_bytes(network.steps, network.outputs, "npu", everything) == 0


def chain(sizes: tuple[int, ...], *skips: tuple[int, int]) -> Network:
    """Layers behind each other; a skip is a tensor that a later layer reads too."""
    tensors = [bytes_of(f"t{number}", size) for number, size in enumerate(sizes)]
    reads = [
        tensors[number].union(*(tensors[first] for first, reader in skips if reader == number))
        for number in range(len(sizes) - 1)
    ]
    return Network(tuple(reads), tuple(tensors[1:]), frozenset({f"t{len(sizes) - 1}"}))


@pytest.mark.parametrize(
    ("network", "room", "spilled"),
    [
        (chain((1, 3, 1)), 1, 4),  # two of three bytes go out and come back
        (chain((1, 2, 2, 1)), 1, 4),
        (chain((2, 1, 1), (0, 1)), 1, 2),  # an input that is needed again is only loaded
        (chain((2, 1, 1), (0, 1)), 2, 1),
        (chain((1, 1, 1, 1), (1, 2)), 1, 2),  # beside a result that skips a layer
        (chain((1, 1, 1, 1), (1, 2)), 3, 0),
    ],
)
def test_the_bound_of_the_scratchpad_is_reached(network: Network, room: int, spilled: int) -> None:
    moved = sum(compulsory_bytes(network.steps, network.outputs, "npu").values())
    assert spilled_bytes(network.steps, network.outputs, "npu", room) == spilled
    assert least_copies(network, room) == moved + spilled
    assert least_copies(network, sum(network.sizes.values())) == moved


def test_bytes_that_two_layers_need_of_an_input_are_those_that_both_need() -> None:
    halves = bytes_of("x", 4)
    first, second = frozenset({("x", 0), ("x", 1)}), frozenset({("x", 2), ("x", 3)})
    writes = (bytes_of("a", 1), bytes_of("b", 1))
    apart = Network((first, second), writes, frozenset({"a", "b"}))
    assert spilled_bytes(apart.steps, apart.outputs, "npu", 1) == 0
    assert least_copies(apart, 1) == 4 + 2
    most = Network((halves - {("x", 0)}, halves - {("x", 3)}), writes, frozenset({"a", "b"}))
    assert spilled_bytes(most.steps, most.outputs, "npu", 1) == 1
    assert least_copies(most, 1) == 4 + 1 + 2


def test_two_images_that_a_sum_needs_do_not_fit_beside_each_other() -> None:
    """The first layers of ResNet-8 in 16 KiB: half of 32 KiB is stored and loaded again."""
    image, half = 16384, 8192
    steps = [
        Step("conv1", "npu", 1, (Read("x", 3072, 3072),), {"a": image}),
        Step("conv2", "npu", 1, (Read("a", image, image),), {"b": image}),
        Step("conv3", "npu", 1, (Read("b", image, image), Read("a", image, image)), {"c": image}),
        Step("conv4", "npu", 1, (Read("c", image, image),), {"d": half}),
    ]
    assert spilled_bytes(steps, frozenset({"d"}), "npu", image) == 2 * (2 * image - image)


def test_a_larger_scratchpad_never_spills_more() -> None:
    for sizes in product((1, 2, 3, 4), repeat=4):
        network = chain(sizes, (0, 2), (1, 2))
        found = [spilled_bytes(network.steps, network.outputs, "npu", n) for n in range(17)]
        assert found == sorted(found, reverse=True) and found[-1] == 0


def test_the_network_counts_only_what_is_offloaded() -> None:
    steps = [
        Step("a", "npu", 1000, (Read("x", 64, 60),), {"y": 32}, 100, 20, {"w": 130}),
        Step("cpu", "cpu", 500, (Read("y", 32, 32),), {"z": 32}),
        Step("b", "npu", 24, (Read("z", 32, 32), Read("x", 64, 64)), {"u": 7}, 100, 20, {"w": 130}),
        Step("c", "npu", 0, (Read("u", 7, 7),), {"v": 8}),
    ]
    # x and z come in, y and v go out, and the weights that both layers share come once.
    moved = compulsory_bytes(steps, frozenset({"v"}), "npu")
    assert moved == {"data": 64 + 32, "weights": 100, "parameters": 20, "result": 32 + 8}
    engines = (EngineLimit("loader", 4, frozenset({"weights", "parameters"})),)
    bound = network_bound(steps, frozenset({"v"}), "npu", Limits(16, 32, 1000))
    assert (bound.compute, bound.memory, bound.bytes, bound.cycles) == (64, 8, 256, 64)
    bound = network_bound(steps, frozenset({"v"}), "npu", Limits(100, 32, 1000, engines))
    assert (bound.compute, bound.memory) == (11, 30)
    why = {"macs_per_cycle": "nobody said"}
    bound = network_bound(steps, frozenset({"v"}), "npu", Limits(None, None, None, unknown=why))
    assert (bound.cycles, bound.compute, bound.memory) == (None, None, None)
    assert bound.unknown == ("macs_per_cycle: nobody said", "bytes_per_cycle: not described")


# --- the array: every way to cut a product, every tiling of a layer -------------------------------

ARRAYS = st.builds(
    Hardware,
    rows=st.integers(1, 3),
    columns=st.integers(1, 3),
    scratchpad_bytes=st.sampled_from([512, 4096]),
    scratchpad_banks=st.sampled_from([8, 16]),
    dataflows=st.sampled_from([flows for n in (1, 2, 3) for flows in permutations(Dataflow, n)]),
    drain_cycles=st.integers(0, 3),
    preload=st.booleans(),
    preload_rows=st.integers(1, 3),
    pack_columns=st.booleans(),
    depthwise=st.just(True),
    pooling_lanes=st.integers(1, 3),
    accumulator_bytes=st.sampled_from([0, 4096]),
    bytes_per_cycle=st.sampled_from([1, 2, 4]),
    latency_cycles=st.integers(0, 5),
    burst_bytes=st.sampled_from([0, 8]),
    outstanding=st.booleans(),
    command_queue=st.sampled_from([0, 1, 8]),
)


def convolution(m: int, n: int, k: int, kind: Kind = Kind.CONVOLUTION, images: int = 1) -> Layer:
    """A layer of m positions, n output channels and k products, in rows of one position."""
    kernel, inputs = ((1, 1), k) if kind is Kind.CONVOLUTION else ((1, k), n)
    size = (m, 1 if kind is Kind.CONVOLUTION else k)
    return Layer(kind, images, size, (m, 1), inputs, n, kernel, scales=1, stored_channels=n)


def cheapest_cut(hardware: Hardware, flow: Dataflow, depthwise: bool, sizes: Product) -> int:
    """The fewest cycles that jobs occupy an array, over all ways to cut a product in two, again and
    again; channels at blocks."""

    @cache
    def best(m: int, n: int, k: int) -> int:
        found = [hardware.array_cost(flow, Product(m, n, k), depthwise=depthwise).busy]
        found += [best(cut, n, k) + best(m - cut, n, k) for cut in range(1, m)]
        blocks = range(hardware.columns, n, hardware.columns)
        found += [best(m, cut, k) + best(m, n - cut, k) for cut in blocks]
        found += [best(m, n, cut) + best(m, n, k - cut) for cut in range(1, k) if not depthwise]
        return min(found)

    return best(sizes.m, sizes.n, sizes.k)


@examples(60)
@given(
    hardware=ARRAYS, m=st.integers(1, 9), n=st.integers(1, 7), k=st.integers(1, 6),
    depthwise=st.booleans(),
)  # fmt: skip
def test_no_cut_of_a_product_takes_fewer_cycles_and_one_takes_as_many(
    hardware: Hardware, m: int, n: int, k: int, depthwise: bool
) -> None:
    kind = Kind.DEPTHWISE if depthwise else Kind.CONVOLUTION
    works = hardware.array_works(convolution(m, n, k, kind))
    assert {work.dataflow for work in works} == set(hardware.dataflows) - (
        {Dataflow.INPUT_STATIONARY} if depthwise else set()
    )
    for work in works:
        assert work.dataflow is not None
        assert work.busy == cheapest_cut(hardware, work.dataflow, depthwise, Product(m, n, k))
        whole = hardware.array_cost(work.dataflow, Product(m, n, k), depthwise=depthwise)
        assert work.tail == whole.tail


@given(m=st.integers(1, 9), n=st.integers(1, 7), k=st.integers(1, 6), lanes=st.integers(1, 4))
@examples(30)
def test_a_pool_is_as_long_as_its_windows(m: int, n: int, k: int, lanes: int) -> None:
    hardware = Hardware(2, 2, 4096, pooling_lanes=lanes)
    layer = replace(convolution(m, n, k, Kind.DEPTHWISE), kind=Kind.MAX_POOL, scales=0)
    (work,) = hardware.array_works(layer)
    assert work.busy == hardware.pool_cost(m, k, n).busy and work.dataflow is None


SKIPPED = 1 if os.environ.get("UMAKIT_EXAMPLES") else 61
"""One of so many tilings is tried: all of them in `make soak`."""


def all_tilings(layer: Layer, machine: TileMachine) -> Iterator[Tiling]:
    sizes = {axis: axis_sizes(layer, machine, axis, every=True) for axis in SIZED}
    flows = machine.dataflows if not layer.is_pool else machine.dataflows[:1]
    for channels, rows, columns, inputs in product(*sizes.values()):
        for flow, order, buffers in product(flows, permutations(AXES), BUFFERS):
            tiling = Tiling(flow, rows, columns, channels, inputs, order, buffers)
            if not invalid(layer, tiling, machine):
                yield tiling


LAYERS = st.sampled_from(
    [
        convolution(5, 4, 3),
        convolution(3, 5, 4, images=2),
        convolution(4, 4, 3, Kind.DEPTHWISE),
        replace(convolution(4, 3, 2, Kind.DEPTHWISE), kind=Kind.MAX_POOL, scales=0),
        replace(convolution(4, 3, 2), adds=True),
        Layer(Kind.CONVOLUTION, 1, (5, 4), (3, 2), 2, 3, (3, 3), (2, 2), (1, 1),
              scales=3, stored_channels=3),
        Layer(Kind.CONVOLUTION, 1, (5, 5), (2, 2), 3, 4, (1, 1), (3, 3), scales=1,
              stored_channels=4, channels_first=True),
        convolution(1, 2, 30),
    ]
)  # fmt: skip


@examples(20)
@given(hardware=ARRAYS, layer=LAYERS, first=st.integers(0, 60))
def test_no_tiling_of_a_layer_is_faster_than_its_bounds(
    hardware: Hardware, layer: Layer, first: int
) -> None:
    """Of all tilings, one of 61 in the suite, and all of them where examples are many."""
    if layer.kind is Kind.CONVOLUTION:  # whole blocks are stored
        stored = -(-layer.output_channels // hardware.columns) * hardware.columns
        layer = replace(layer, stored_channels=stored)
    assume(hardware.array_works(layer))
    planner = TilePlanner(hardware, FREE)
    bound = hardware.array_bound(layer)
    least = min(work.busy for work in hardware.array_works(layer))
    assert bound.cycles >= layer_bound(hardware, layer).cycles
    # Neighbours differ in their order and number of buffers only.
    for tiling in islice(all_tilings(layer, hardware), first, None, SKIPPED):
        tiles = tiles_on(layer, tiling, hardware)
        prediction = planner.predict(tiles)
        assert prediction.cycles >= bound.cycles
        check_losses(planner, tiling, layer, least)


def check_losses(planner: TilePlanner, tiling: Tiling, layer: Layer, least: int | None) -> None:
    """Causes are known ones, none is negative, and they add up."""
    tiles = tiles_on(layer, tiling, planner.machine)
    prediction = planner.predict(tiles)
    assert prediction.run is not None
    losses = losses_of(
        prediction.run, prediction.bound, planner.driver.finish, least_array=least,
        fill=fill_cycles(planner.machine, layer),
        bytes_again=moved_bytes(tiles) - layer.stored_bytes,
        width=planner.machine.bytes_per_cycle,
    )  # fmt: skip
    assert losses is not None
    assert losses.bound == prediction.bound.cycles
    assert losses.cycles == prediction.cycles
    assert all(part.cycles > 0 and part.cause in CAUSES for part in losses.parts)


@pytest.mark.parametrize(
    ("kind", "products", "channels", "scales", "constants"),
    [
        (Kind.CONVOLUTION, 64, 10, 1, 64 * 10 + 4 * 10 + 5),  # a dense layer
        (Kind.CONVOLUTION, 64, 10, 10, 64 * 10 + 9 * 10),
        (Kind.DEPTHWISE, 9, 20, 20, 9 * 20 + 9 * 20),  # its weights lie in no blocks
    ],
)
def test_what_fills_blocks_of_weights_up_is_a_loss_and_no_part_of_the_bound(
    kind: Kind, products: int, channels: int, scales: int, constants: int
) -> None:
    layer = convolution(1, channels, products, kind)
    in_blocks = kind is Kind.CONVOLUTION
    stored = -(-channels // 16) * 16 if in_blocks else channels
    layer = replace(layer, scales=scales, stored_channels=stored)
    hardware = Hardware(
        16, 16, 1 << 16, 16, depthwise=True, bytes_per_cycle=8, outstanding=True, command_queue=8
    )
    bytes_ = layer.data_bytes + constants + channels
    bound = layer_bound(hardware, layer)
    assert bound.memory == bound.cycles == -(-bytes_ // 8)
    planner = TilePlanner(hardware, FREE)
    (tiling,) = islice(all_tilings(layer, hardware), 1)
    tiles = tiles_on(layer, tiling, hardware)
    losses = tiled_layer(planner, tiles, planner.predict(tiles), None).losses
    assert losses is not None and losses.bound == bound.cycles
    filled = {part.cause: part.cycles for part in losses.parts}.get("fill", 0)
    more = (stored - channels) * (products + 4 + 5 * (scales > 1))
    assert filled == -(-(bytes_ + more) // 8) - bound.cycles
    assert (filled > 0) == in_blocks


def test_a_layer_of_one_job_is_as_fast_as_its_bound_but_for_register_accesses() -> None:
    hardware = Hardware(
        4, 4, 1 << 16, 16, preload=True, bytes_per_cycle=4, latency_cycles=3, outstanding=True,
        command_queue=16,
    )  # fmt: skip
    layer = convolution(4, 4, 200)
    planner = TilePlanner(hardware, FREE)
    best = min(
        planner.predict(tiles_on(layer, tiling, hardware)).cycles
        for tiling in all_tilings(layer, hardware)
        if tiling.input_channels == 200
    )
    bound = hardware.array_bound(layer)
    loads = (4 * 200 + 4 * 200 + 4 * 4 + 5 + 3) // 4  # a copy a tensor
    assert bound.bus >= loads + 3 + 200
    assert bound.bus == bound.cycles <= best <= bound.cycles + 6


def pool(positions: int, channels: int) -> Layer:
    """A layer that only copies, as far as the bus is concerned."""
    size = (positions, 1)
    return Layer(
        Kind.MAX_POOL, 1, size, size, channels, channels, (1, 1), scales=0, stored_channels=channels
    )  # fmt: skip


@pytest.mark.parametrize("outstanding", [False, True])
@pytest.mark.parametrize(("queue", "accesses"), [(0, 3), (8, 1)])
def test_a_layer_of_one_byte_takes_its_bound_and_register_accesses(
    outstanding: bool, queue: int, accesses: int
) -> None:
    """Load, work and store follow each other: nothing else may be in the bound, or missing."""
    hardware = Hardware(
        2, 2, 4096, 8, pooling_lanes=16, latency_cycles=20, outstanding=outstanding,
        command_queue=queue,
    )  # fmt: skip
    layer = pool(1, 1)
    (tiling,) = {replace(each, buffers=1, order=AXES) for each in all_tilings(layer, hardware)}
    cycles = TilePlanner(hardware, FREE).predict(tiles_on(layer, tiling, hardware)).cycles
    assert cycles == hardware.array_bound(layer).cycles + accesses == 21 + 1 + 21 + accesses


def test_the_best_tiling_of_a_layer_that_only_copies_takes_its_bound() -> None:
    hardware = Hardware(
        2, 2, 4096, 16, pooling_lanes=16, latency_cycles=20, outstanding=True, command_queue=32
    )
    layer, planner = pool(64, 16), TilePlanner(hardware, FREE)
    best = min(
        planner.predict(tiles_on(layer, tiling, hardware)).cycles
        for tiling in all_tilings(layer, hardware)
        if tiling.order == AXES and tiling.output_channels == 16
    )
    assert best == hardware.array_bound(layer).cycles + 1 == 2 * 64 * 16 // 4 + 20 + 1


@examples(15)
@given(
    m=st.integers(1, 7), n=st.integers(1, 9), k=st.integers(1, 20), pick=st.integers(0, 200),
    kind=st.sampled_from([Kind.CONVOLUTION, Kind.DEPTHWISE]),
)  # fmt: skip
def test_losses_add_up_on_a_machine_of_other_engines(
    m: int, n: int, k: int, pick: int, kind: Kind
) -> None:
    machine = TwoChannels()
    layer = convolution(m, n, k, kind)
    if kind is Kind.CONVOLUTION:
        layer = replace(layer, stored_channels=-(-n // 8) * 8)
    for tiling in islice(all_tilings(layer, machine), pick, pick + 1):
        check_losses(TilePlanner(machine, FREE), tiling, layer, None)


def test_what_is_not_known_of_a_layer_has_a_reason() -> None:
    layer, machine = convolution(4, 8, 16), TwoChannels()
    (tiling,) = islice(all_tilings(layer, machine), 1)
    tiles, planner = tiles_on(layer, tiling, machine), TilePlanner(machine, FREE)
    prediction = planner.predict(tiles)
    found = tiled_layer(planner, tiles, prediction, None)
    assert found.array is None and found.losses is not None
    assert found.losses.cycles == prediction.cycles
    assert found.unknown == {"array": "costs are formulas, not those of folds of an [array]"}
    own = replace(prediction, run=None, cycles=prediction.cycles + 5)
    assert tiled_layer(planner, tiles, own, None).unknown.keys() == {"array", "losses"}

    class Faster(Hardware):
        def job(self, sizes: TileSizes) -> Cost:
            return Cost(1, 0)

    hardware = Faster(4, 4, 4096, 16, command_queue=4)
    (tiling,) = islice(all_tilings(layer, hardware), 1)
    tiles, planner = tiles_on(layer, tiling, hardware), TilePlanner(hardware, FREE)
    found = tiled_layer(planner, tiles, planner.predict(tiles), None)
    assert found.array is None and found.unknown["array"] == "the backend has costs of its own"


def test_what_is_faster_than_its_description_has_no_losses() -> None:
    hardware = Hardware(2, 2, 4096, command_queue=4)
    planner, layer = TilePlanner(hardware, FREE), convolution(4, 4, 4)
    tiles = planner._tiles(layer, Tiling(Dataflow.OUTPUT_STATIONARY, 4, 1, 4, 4))
    run = planner.predict(tiles).run
    assert run is not None
    assert losses_of(run, Bound(run.cycles * 2, 1), 0) is None
    assert losses_of(run, Bound(1, run.cycles * 2), 0) is None
    differing = losses_of(run, Bound(1, 1), 0, simulated=run.cycles - 3)
    assert differing is not None and differing.cycles == run.cycles - 3
    assert [each.cycles for each in differing.parts if each.cause == "not_predicted"] == [-3]


# --- networks -------------------------------------------------------------------------------------


def bounds_of(backend: str, folder: Path) -> AcceleratorBounds:
    """The bounds of the digits on an accelerator, without a run."""
    found = umakit.find_backend(backend)
    library = umakit.compile_model(DIGITS, [found], folder / "library")
    assert library.program is not None
    layers = [LayerRecord("layer", "", found.target_name, None, "", 0, None, None)]
    macs = library.report.total_macs
    (bounds,) = accelerator_bounds(library.program, macs, [found], layers)
    return bounds


def file_bytes() -> tuple[int, int]:
    """Weights, and bytes of bias, multipliers and shifts for a channel each, from the file."""
    graph = onnx.load(DIGITS).graph
    arrays = {each.name: each for each in graph.initializer}
    sources = {node.output[0]: node.input[0] for node in graph.node}
    weights = parameters = 0
    for node in graph.node:
        if node.op_type in ("Conv", "Gemm", "MatMul"):
            array = arrays[sources[node.input[1]]]
            count = 1
            for size in array.dims:
                count *= size
            weights += count
            channels = array.dims[0]
            if node.op_type == "MatMul" or (
                node.op_type == "Gemm"
                and not any(each.name == "transB" and each.i for each in node.attribute)
            ):
                channels = array.dims[1]
            parameters += 9 * channels
    return weights, parameters


@pytest.mark.parametrize(
    ("backend", "cells", "width", "between"),
    [
        ("chocolate_accelerator", 256, 32, 0),
        ("strawberry_accelerator", 64, 8, 16 * 8 * 8 + 16 * 4 * 4),  # the CPU pools
    ],
)
def test_the_bytes_of_the_network_are_those_of_its_file(
    backend: str, cells: int, width: int, between: int, tmp_path: Path
) -> None:
    """Results that stay in a scratchpad are none of them, nor what fills blocks of weights up."""
    bounds = bounds_of(backend, tmp_path)
    network, kept = bounds.bounds[:2]
    weights, parameters = file_bytes()
    image, scores = 8 * 8, 10
    assert (bounds.macs, bounds.share, network.unknown) == (180_480, 1.0, ())
    assert network.bytes == kept.bytes == weights + parameters + image + scores + between
    assert network.memory == -(-network.bytes // width)
    assert network.compute == -(-180_480 // cells)
    assert network.cycles == max(network.compute, network.memory)
    assert network.ratio is None


def test_the_limits_of_a_described_machine_are_its_own() -> None:
    backend = umakit.find_backend(str(ROOT / "examples" / "lane_npu"))
    assert backend.tiling is not None
    limits = limits_of(backend.configuration, backend.tiling.described)
    assert (limits.macs_per_cycle, limits.bytes_per_cycle) == (512, 24)
    data = next(each for each in backend.configuration.memory if each.name == "data")
    assert limits.scratchpad_bytes == data.size
    assert limits_of(backend.configuration, None).macs_per_cycle == 512
