# SPDX-License-Identifier: Apache-2.0
"""Which tilings a layer has, and which is good: the search space and its estimate.

The estimate adds up what each engine is busy for, which takes a handful of multiplications: tiles
along an axis have at most three sizes, inner ones and those at the edges. With double buffering the
busiest engine decides; what cannot overlap is the way of the first tile in and of the last one out.
`umakit.tiling.clock` is exact, and slower by the number of tiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import permutations, product

from umakit.systolic import Dataflow
from umakit.tiling.commands import DriverCosts, job_cost
from umakit.tiling.costs import transfer_cost
from umakit.tiling.hardware import Hardware
from umakit.tiling.layer import Layer
from umakit.tiling.tiles import (
    AXES,
    COLUMNS,
    IMAGES,
    INPUT_CHANNELS,
    ROWS,
    Tiles,
    Tiling,
)

SUM_BYTES = 4
"""Of a sum in the accumulator."""


def tiles_on(layer: Layer, tiling: Tiling, hardware: Hardware) -> Tiles:
    """A layer, cut for an accelerator."""
    return Tiles(layer, tiling, hardware.columns, hardware.bank_bytes)


def misfit(tiles: Tiles, hardware: Hardware) -> str:
    """Why an accelerator cannot run a tiling; empty if it can."""
    layer, tiling = tiles.layer, tiles.tiling
    if tiles.scratchpad_bytes > hardware.scratchpad_bytes:
        return f"needs {tiles.scratchpad_bytes:,} B, scratchpad has {hardware.scratchpad_bytes:,} B"
    if layer.is_pool:
        return ""
    if tiling.dataflow not in hardware.dataflows:
        return f"dataflow {tiling.dataflow.value}: the array has none"
    if layer.per_channel and tiling.dataflow is Dataflow.INPUT_STATIONARY:
        return "input_stationary: each input meets one weight only"
    sums = _sums(tiles, hardware) * SUM_BYTES
    if sums > hardware.accumulator_bytes:
        return f"needs {sums:,} B of sums, accumulator has {hardware.accumulator_bytes:,} B"
    return ""


def _sums(tiles: Tiles, hardware: Hardware) -> int:
    """Sums of a tile that have to be kept outside of the array's cells."""
    positions, channels = tiles.largest_tile
    if tiles.extents[INPUT_CHANNELS] > 1:
        return positions * channels
    if hardware.accumulator_bytes == 0 or tiles.tiling.dataflow is Dataflow.OUTPUT_STATIONARY:
        return 0
    if tiles.tiling.dataflow is Dataflow.WEIGHT_STATIONARY:
        return positions * min(channels, hardware.columns)
    return min(positions, hardware.columns) * channels


# --- the space ----------------------------------------------------------------------------------


def tilings(
    layer: Layer, hardware: Hardware, buffers: int = 2, whole: Sequence[str] = ()
) -> Iterator[Tiling]:
    """All tilings that are worth a look and that the accelerator can run.

    Tiles along an axis are as equal as they can be, which leaves about 2 sqrt(n) sizes for an axis
    of n. Orders that differ in loops of one tile only count once.

    Args:
        layer: what is cut.
        hardware: for which accelerator.
        buffers: as in `Tiling`.
        whole: axes that are not cut.
    """
    seen = set()
    axes = (*AXES, INPUT_CHANNELS)
    choices = [_sizes(layer, hardware, axis)[: 1 if axis in whole else None] for axis in axes]
    for sizes in product(_dataflows(layer, hardware), *choices):
        dataflow, channels, rows, columns, inputs = sizes
        for order in permutations(AXES):
            tiling = Tiling(dataflow, rows, columns, channels, inputs, order, buffers)
            tiles = tiles_on(layer, tiling, hardware)
            key = (*sizes, tiles.loops)
            if key not in seen:
                seen.add(key)
                if not misfit(tiles, hardware):
                    yield tiling


def _dataflows(layer: Layer, hardware: Hardware) -> tuple[Dataflow, ...]:
    return hardware.dataflows[:1] if layer.is_pool else hardware.dataflows


def _sizes(layer: Layer, hardware: Hardware, axis: str) -> list[int]:
    """Sizes of tiles along an axis, the largest first."""
    if axis == ROWS:
        return _equal_parts(layer.output_size[0])
    if axis == COLUMNS:
        return _equal_parts(layer.output_size[1])
    if axis == INPUT_CHANNELS:
        return [layer.input_channels] if layer.per_channel else _equal_parts(layer.input_channels)
    unit = channel_unit(layer, hardware)
    blocks = _equal_parts(-(-layer.output_channels // unit))
    return [min(count * unit, layer.output_channels) for count in blocks]


def channel_unit(layer: Layer, hardware: Hardware) -> int:
    """What tiles of output channels are multiples of: blocks of weights, whole input channels."""
    columns = hardware.columns
    if not layer.per_channel or columns % layer.multiplier == 0:
        return columns
    return columns * layer.multiplier


def _equal_parts(extent: int) -> list[int]:
    """Sizes of the largest of 1, 2, 3, ... parts as equal as possible."""
    return sorted({-(-extent // parts) for parts in range(1, extent + 1)}, reverse=True)


# --- the estimate -------------------------------------------------------------------------------


def estimate(tiles: Tiles, hardware: Hardware, driver: DriverCosts) -> int:
    """About how many cycles a tiling takes, without running its commands."""
    moved = {name: _transfers(tiles, hardware, name) for name in tiles.buffers}
    array, jobs, tail = _jobs(tiles, hardware)
    dma = sum(total for total, _ in moved.values())
    issue = sum(count for _, count in moved.values()) * driver.transfer + jobs * driver.job
    ways = {
        name: total // count + hardware.latency_cycles for name, (total, count) in moved.items()
    }
    way_in = sum(way for name, way in ways.items() if name != "result")
    way_out = ways["result"] + tail
    start = driver.begin + driver.configure + 3 * driver.transfer
    if not hardware.command_queue:
        transfers = sum(count for _, count in moved.values())
        latency = hardware.latency_cycles if hardware.outstanding else 0
        issue += (jobs + transfers) * driver.check
        return start + issue + array + jobs * tail + dma + transfers * latency
    if tiles.tiling.buffers == 1:
        return start + array + jobs * tail + dma + len(moved) * hardware.latency_cycles
    # A buffer is free again when its tile is computed and stored: two of them, a tile each, take
    # turns at loading, computing and storing.
    turns = max(
        _turns(tiles, name, jobs, array // jobs + tail + ways[name])
        for name in tiles.buffers
        if name != "parameters"
    )
    return start + max(array + way_in + way_out, dma + array // jobs + tail, issue, turns)


def _turns(tiles: Tiles, name: str, jobs: int, cycles: int) -> int:
    """Cycles of a tensor's tiles if each buffer waits until its last tile is done with."""
    copies = tiles.copies(name)
    return copies * cycles // tiles.buffers[name].tiles if copies == jobs else 0


def _transfers(tiles: Tiles, hardware: Hardware, name: str) -> tuple[int, int]:
    """Busy cycles and number of a tensor's transfers."""
    if name == "parameters":
        return transfer_cost(hardware, 1, 1, tiles.layer.parameters_bytes).busy, 3
    inside = tiles.axes_of(name)
    loops = tiles.loops[: tiles.depth(name)]
    again, total, count = 1, 0, 0
    for axis in loops:
        again *= 1 if axis in inside else tiles.extents[axis]
    for position, times in _kinds(tiles, [axis for axis in loops if axis in inside]):
        moved = tiles.store(position) if name == "result" else tiles.load(name, position)
        total += times * transfer_cost(hardware, moved.planes, moved.rows, moved.row_bytes).busy
        count += times
    return again * total, again * count


def _jobs(tiles: Tiles, hardware: Hardware) -> tuple[int, int, int]:
    """Busy cycles and number of the array's jobs, and the tail of one."""
    total = count = tail = 0
    for position, times in _kinds(tiles, tiles.loops):
        cost = job_cost(hardware, tiles, tiles.job(position))
        total += times * cost.busy
        count += times
        tail = cost.tail
    return total, count, tail


def _kinds(tiles: Tiles, axes: list[str] | tuple[str, ...]) -> Iterator[tuple[dict[str, int], int]]:
    """A tile of each size, and how many have it: the first, the last, and one between them."""
    kinds = [_ends(tiles.extents[axis], axis) for axis in axes]
    for chosen in product(*(kind.items() for kind in kinds)):
        position: dict[str, int] = dict.fromkeys(tiles.extents, 0)
        times = 1
        for axis, (number, count) in zip(axes, chosen, strict=True):
            position[axis] = number
            times *= count
        yield position, times


def _ends(extent: int, axis: str) -> Counter[int]:
    if axis == IMAGES:
        return Counter({0: extent})
    if axis in (ROWS, COLUMNS):
        last = Counter({0: 1})
        if extent > 2:
            last[1] = extent - 2
        if extent > 1:
            last[extent - 1] = 1
        return last
    return Counter({0: extent - 1, extent - 1: 1} if extent > 1 else {0: 1})


__all__ = ["channel_unit", "estimate", "misfit", "tiles_on", "tilings"]
