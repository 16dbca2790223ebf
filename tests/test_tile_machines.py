# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: RUF012 (class attributes that nobody changes)
"""Machines other than a systolic array: tiles that they take, and their cycles."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from comparisons import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from integer_backend import Npu, conv, network
from stepped_machine import Stepped

from umakit import patterns
from umakit.errors import AcceleratorConfigError, BackendError
from umakit.machine import (
    Command,
    Copy,
    Cost,
    DriverCosts,
    Engine,
    Kind,
    Layer,
    Machine,
    Memory,
    Queue,
    Stream,
    TileMachine,
    TilePlanner,
    TileSizes,
    Tiling,
    misfit,
    tiled_layer_pass,
    tiles_on,
)
from umakit.machine.commands import commands_of
from umakit.machine.estimate import Estimates
from umakit.machine.space import axis_sizes, invalid
from umakit.machine.tiles import AXES, BUFFERS
from umakit.partition.partitioner import partition

DRIVER = DriverCosts(begin=3, configure=4, configure_add=2, transfer=5, job=6, check=1, finish=2)
JOB, DATA, RESULT = Stream("job", "compute"), Stream("data", "load"), Stream("result", "store")
WEIGHTS = Stream("weights", "load")


class TwoChannels(TileMachine):
    """Weights have a memory and a DMA engine of their own; no accumulator outside the result."""

    machine = Machine(
        (Memory("data", 4096, 64, exclusive=False), Memory("weights", 2048, 32, exclusive=False)),
        (
            Engine("array", (JOB,), "jobs", depth=2),
            Engine("dma", (DATA, RESULT), "copies"),
            Engine("loader", (WEIGHTS,), "loads", depth=2),
        ),
        (Queue("jobs", 4), Queue("copies", 6, "polling"), Queue("loads", 3, "stall")),
    )
    memories = {"weights": "weights", "parameters": "weights"}
    streams = {"weights": "weights", "parameters": "weights"}
    units = {"input_channels": 16}
    limits = {"rows": 5, "output_channels": 32}
    block_channels = 8
    sums_in_result = True
    macs_per_cycle = 64
    bytes_per_cycle = 12

    def job(self, sizes: TileSizes) -> Cost:
        """8 x 8 products in a cycle."""
        size = sizes.product
        return Cost(size.m * -(-size.n // 8) * -(-size.k // 8), 7)

    def copy(self, copied: Copy) -> Cost:
        """The channel of weights is wider, and slower to begin."""
        width, latency = (8, 20) if copied.tensor in ("weights", "parameters") else (4, 9)
        return Cost(copied.planes * copied.rows * -(-copied.row_bytes // width), latency)


class Windows(TwoChannels):
    """One DMA engine and queue; data lie as im2col rows of 16 bytes; nothing is kept for a step."""

    machine = Machine(
        (Memory("windows", 8192, 64, row_bytes=16), Memory("weights", 2048, 32)),
        (Engine("array", (JOB,), "all"), Engine("dma", (DATA, RESULT), "all")),
        (Queue("all", 5),),
    )
    memories = {"weights": "weights"}
    streams = {}
    units = {"rows": 2}
    limits = {}
    sums_in_result = False

    def footprint(self, tensor: str, sizes: TileSizes, covered: tuple[int, int]) -> int:
        """Each position has its window."""
        if tensor != "data":
            return super().footprint(tensor, sizes, covered)
        return sizes.positions * -(-sizes.product.k // 16) * 16


MACHINES = (TwoChannels(), Windows())


def layer(size: int, inputs: int, outputs: int, kernel: int) -> Layer:
    result = size - kernel + 1
    return Layer(
        Kind.CONVOLUTION, 1, (size, size), (result, result), inputs, outputs, (kernel, kernel),
        scales=outputs, stored_channels=-(-outputs // 8) * 8,
    )  # fmt: skip


# ---- Commands of a layer, written down loop by loop ----


def masks(machine: TileMachine, tiling: Tiling, what: Layer) -> dict[str, list[int]]:
    """By tensor, the banks of each of its places: byte by byte, one tensor behind the other."""
    tiles = tiles_on(what, tiling, machine)
    first = 0
    found: dict[str, list[int]] = {}
    for memory in machine.machine.memories:
        start, bank = 0, memory.size // memory.banks
        for name, buffer in tiles.buffers.items():
            lies_in = machine.memories.get(name, machine.machine.memories[0].name)
            if lies_in != memory.name:
                continue
            found[name] = []
            for _ in range(buffer.tiles):
                bits = {first + byte // bank for byte in range(start, start + buffer.tile_bytes)}
                found[name].append(sum(1 << bit for bit in bits))
                start += buffer.tile_bytes
        first += memory.banks
    return found


def written_down(machine: TileMachine, tiling: Tiling, what: Layer) -> list[Command]:
    """For a convolution of one image without padding."""
    tiles = tiles_on(what, tiling, machine)
    steps = tiles.extents["input_channels"]
    place, banks = {"data": -1, "weights": -1, "result": -1}, masks(machine, tiling, what)
    bank = {m.name: m.size // m.banks for m in machine.machine.memories}
    weights_in = machine.memories.get("parameters", machine.machine.memories[0].name)
    start = min(n for n in range(200) if banks["parameters"][0] >> n & 1)
    result: list[Command] = []
    changes = {
        "weights": ("output_channels", "input_channels"),
        "data": ("rows", "columns", "input_channels"),
    }
    loops = [axis for axis in (*tiling.order, "input_channels") if tiles.extents[axis] > 1]
    depth = {
        name: max((loops.index(axis) + 1 for axis in axes if axis in loops), default=0)
        for name, axes in changes.items()
    }
    last: dict[str, tuple[int, ...]] = {}

    def part(first: int, size: int) -> int:
        ends = (first // bank[weights_in], (first + size - 1) // bank[weights_in])
        return sum(1 << start + bit for bit in range(ends[0], ends[1] + 1))

    def copy(name: str, stream: str, banks: int, planes: int, rows: int, size: int) -> None:
        cost = machine.copy(Copy(name, planes, rows, size))
        reads, writes = (banks, 0) if name == "result" else (0, banks)
        result.append(Command(stream, cost.busy, cost.tail, reads, writes, DRIVER.transfer))

    for at in product(*(range(tiles.extents[axis]) for axis in loops)):
        position = dict.fromkeys(tiles.extents, 0) | dict(zip(loops, at, strict=True))
        for name in sorted(("data", "weights"), key=lambda name: depth[name]):
            if last.get(name) != at[: depth[name]]:
                last[name], place[name] = at[: depth[name]], place[name] + 1
                moved = tiles.load(name, position)
                where = banks[name][place[name] % len(banks[name])]
                stream = machine.streams.get(name, "data")
                copy(name, stream, where, moved.planes, moved.rows, moved.row_bytes)
        step = position["input_channels"]
        job, issue = tiles.job(position), DRIVER.job
        if not any(at):
            behind = 0
            for size in (4 * what.stored_channels, 4 * what.stored_channels, what.stored_channels):
                stream = machine.streams.get("parameters", "data")
                copy("parameters", stream, part(behind, size), 1, 1, size)
                behind += size
            result[-3] = replace(result[-3], issue=DRIVER.transfer + DRIVER.configure)
        place["result"] += step == 0
        where = banks["result"][place["result"] % len(banks["result"])]
        reads = banks["data"][place["data"] % len(banks["data"])]
        reads |= banks["weights"][place["weights"] % len(banks["weights"])]
        if step == 0:
            reads |= part(job.bias, 4 * job.output_channels)
        if step == steps - 1:
            reads |= part(job.multipliers, 4 * job.scales) | part(job.shifts, job.scales)
        writes = where if machine.sums_in_result or step == steps - 1 else 0
        reads |= where if machine.sums_in_result and step else 0
        channels = (job.output_channels, job.input_channels)
        cost = machine.job(TileSizes(what, tiling.dataflow, *job.output_size, *channels))
        result.append(Command("job", cost.busy, cost.tail, reads, writes, issue))
        if step == steps - 1:
            moved = tiles.store(position)
            copy("result", "result", where, moved.planes, moved.rows, moved.row_bytes)
    result[0] = replace(result[0], issue=result[0].issue + DRIVER.begin)
    return result


LAYERS = st.builds(
    layer, st.integers(3, 9), st.integers(1, 40), st.integers(2, 40), st.integers(1, 3)
)


@st.composite
def cuts(draw: st.DrawFn) -> tuple[TileMachine, Layer, Tiling]:
    """Any tiling that the machine takes."""
    machine, what = draw(st.sampled_from(MACHINES)), draw(LAYERS)
    rows, columns, outputs, inputs = (
        draw(st.sampled_from(axis_sizes(what, machine, axis, every=True)))
        for axis in ("rows", "columns", "output_channels", "input_channels")
    )
    order = tuple(draw(st.permutations(AXES)))
    tiling = Tiling(
        machine.dataflows[0], rows, columns, outputs, inputs, order, draw(st.sampled_from(BUFFERS))
    )
    assume(not misfit(tiles_on(what, tiling, machine), machine))
    return machine, what, tiling


@examples(60)
@given(cut=cuts())
def test_predictions_are_those_of_a_stepped_machine(cut: tuple[TileMachine, Layer, Tiling]) -> None:
    machine, what, tiling = cut
    assert invalid(what, tiling, machine) == ""
    tiles = tiles_on(what, tiling, machine)
    commands = written_down(machine, tiling, what)
    assume(len(commands) < 60)
    assert commands_of(tiles, machine, DRIVER) == commands
    device = Stepped(machine.machine)
    device.run(commands)
    cycles = max(ran.end or 0 for ran in device.all) + DRIVER.finish
    found = TilePlanner(machine, DRIVER).predict(tiles)
    assert found.cycles == cycles
    estimates = Estimates(what, machine, DRIVER)
    estimate = estimates.of(tiles)
    assert estimates.bound(tiling) <= estimate.bound <= min(cycles, estimate.cycles)
    assert found.bound.cycles <= cycles and estimate.commands == len(commands)


# ---- What a machine takes ----


@pytest.mark.parametrize("machine", MACHINES)
def test_chosen_tilings_keep_to_units_limits_and_memories(machine: TileMachine) -> None:
    what = layer(14, 20, 70, 3)
    planner = TilePlanner(machine, DRIVER)
    tiling = planner.default(what)
    assert tiling is not None
    for axis, unit in machine.units.items():
        size = getattr(tiling, axis)
        assert size % unit == 0 or size == {"rows": 12, "input_channels": 20}[axis]
    for axis, limit in machine.limits.items():
        assert getattr(tiling, axis) <= limit
    used = dict.fromkeys([memory.name for memory in machine.machine.memories], 0)
    for name, buffer in tiles_on(what, tiling, machine).buffers.items():
        used[machine.memory_of(name)] += buffer.size
    assert all(0 < used[each.name] <= each.size for each in machine.machine.memories)
    if not machine.sums_in_result:
        assert tiling.input_channels == 20


def test_tiles_that_a_machine_does_not_take_are_refused_by_name() -> None:
    machine, what = TwoChannels(), layer(12, 40, 70, 3)
    flow = machine.dataflows[0]
    for tiling, reason in {
        Tiling(flow, 1, 1, 8, 12): "input_channels is 12, no multiple of 16",
        Tiling(flow, 6, 1, 8, 16): "rows is 6, the accelerator takes 5",
        Tiling(flow, 1, 1, 32, 40, buffers=4): "weights has 2,048 B",
    }.items():
        assert reason in invalid(what, tiling, machine)
    assert "of accumulators, there are 0 B" in invalid(what, Tiling(flow, 2, 1, 8, 8), Windows())


def test_rows_of_windows_take_the_memory_of_data() -> None:
    tiles = tiles_on(layer(6, 5, 8, 3), Tiling(MACHINES[0].dataflows[0], 2, 4, 8, 5), Windows())
    # 8 positions with windows of 45 bytes, in rows of 16; a bank has 128.
    assert tiles.buffers["data"].tile_bytes == 8 * 48
    # 8 positions of 8 channels, each in a row.
    assert tiles.buffers["result"].tile_bytes == 8 * 16


class Whole(TwoChannels):
    """Every step has whole groups of 16 channels."""

    whole_units = ("input_channels",)


def test_layers_whose_last_tile_would_be_too_small_are_refused() -> None:
    planner = TilePlanner(Whole(), DRIVER)
    assert invalid(layer(6, 40, 8, 1), Tiling(Whole.dataflows[0], 1, 1, 8, 16), Whole()) == (
        "40 input channels are no multiple of 16"
    )
    assert planner.default(layer(6, 40, 8, 1)) is None
    assert planner.default(layer(6, 48, 8, 1)) is not None


def test_a_planner_of_another_machine_has_no_hardware() -> None:
    with pytest.raises(BackendError, match="a planner for TwoChannels has no Hardware"):
        TilePlanner(TwoChannels(), DRIVER).hardware  # noqa: B018


class Misnamed(TwoChannels):
    """One of its memories is none of the machine."""

    memories = {"weights": "constants"}


@pytest.mark.parametrize("name", ["units", "limits", "whole_units"])
def test_an_axis_that_there_is_not_is_refused(name: str) -> None:
    machine = type("Wrong", (TwoChannels,), {name: {"width": 8}})()
    with pytest.raises(BackendError, match=f"Wrong has {name} of width, which is no axis; axes"):
        TilePlanner(machine, DRIVER)


def test_a_memory_that_there_is_not_is_refused() -> None:
    with pytest.raises(AcceleratorConfigError, match="there is no memory constants"):
        TilePlanner(Misnamed(), DRIVER).default(layer(6, 16, 8, 1))


def test_convolutions_in_groups_are_refused_whatever_the_pattern_takes(tmp_path: Path) -> None:
    planner = TilePlanner(TwoChannels(), DRIVER)
    npu = Npu(tmp_path, [patterns.qconv2d(groups=None, predicate=planner.accepts)])
    module = network(lambda _, x: conv(x, outputs=16, groups=4), (1, 5, 5, 8))
    (row,) = partition(module, [npu]).report.placements
    assert (row.where, row.reason) == (
        "cpu", "4 groups: tiles are of one group, or of a depthwise convolution",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("option", "names"), [("configure", ["kernel_size"]), ("copy", ["tensor", "kernel_height"])]
)
def test_an_argument_that_a_tiled_layer_does_not_have_is_refused(
    option: str, names: list[str]
) -> None:
    planner: Any = None
    with pytest.raises(BackendError, match=f"{option} has no argument '{names[-1]}'.*choose from"):
        tiled_layer_pass(planner, "some_npu", **{option: names})
