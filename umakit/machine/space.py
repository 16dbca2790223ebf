# SPDX-License-Identifier: Apache-2.0
"""The space of valid tilings: tile sizes along each axis, and the limits of an accelerator."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from math import lcm

from umakit.machine.layer import Layer
from umakit.machine.systolic import Dataflow
from umakit.machine.tile_machine import TileMachine
from umakit.machine.tiles import (
    AXES,
    BUFFERS,
    COLUMNS,
    INPUT_CHANNELS,
    OUTPUT_CHANNELS,
    ROWS,
    Tiles,
    Tiling,
)

SIZED = (OUTPUT_CHANNELS, ROWS, COLUMNS, INPUT_CHANNELS)
"""Axes along which tiles have a size."""

OF_SUMS = "of accumulators"
"""Name of the accumulator memory in a `misfit`."""

Key = tuple[str | int | tuple[str, ...], ...]
"""Sort key of equally good tilings, which makes searches deterministic."""


def tiles_on(layer: Layer, tiling: Tiling, hardware: TileMachine) -> Tiles:
    """Return the tiles of a layer on an accelerator."""
    return Tiles(layer, tiling, hardware)


def misfit(tiles: Tiles, hardware: TileMachine) -> str:
    """Return the reason why an accelerator cannot run a tiling; empty if it can."""
    layer, tiling = tiles.layer, tiles.tiling
    required: dict[str, int] = {}
    for tensor, buffer in tiles.buffers.items():
        name = hardware.memory_of(tensor)
        required[name] = required.get(name, 0) + buffer.size
    for memory in hardware.machine.memories:
        if required.get(memory.name, 0) > memory.size:
            return f"needs {required[memory.name]:,} B, {memory.name} has {memory.size:,} B"
    extent = max(*tiles.largest_input, tiles.largest.rows, tiles.largest.columns)
    if extent > (hardware.most_positions or extent):
        return f"{extent:,} rows or columns, the accelerator takes {hardware.most_positions:,}"
    if layer.is_pool:
        return ""
    if tiling.dataflow not in hardware.dataflows:
        return f"dataflow {tiling.dataflow.value}: the array has none"
    if layer.per_channel and tiling.dataflow is Dataflow.INPUT_STATIONARY:
        return "input_stationary: each input meets one weight only"
    sums = hardware.kept_bytes(tiles.largest, tiles.extents[INPUT_CHANNELS])
    if sums > hardware.sum_bytes:
        return f"needs {sums:,} B {OF_SUMS}, there are {hardware.sum_bytes:,} B"
    return ""


def refusal(layer: Layer, machine: TileMachine) -> str:
    """Return the reason why a machine refuses all tile sizes of a layer; empty if it does not."""
    if own := machine.refusal(layer):
        return own
    for axis in SIZED:
        if axis in machine.whole_units and not _is_uncut(layer, axis):
            extent, unit = axis_extent(layer, axis), machine.unit(axis)
            if extent % unit:
                return f"{extent} {axis.replace('_', ' ')} are no multiple of {unit}"
    return ""


def accumulator_bytes(tiles: Tiles, machine: TileMachine) -> int:
    """Return the bytes of accumulator memory that a tile of a convolution requires."""
    return machine.kept_bytes(tiles.largest, tiles.extents[INPUT_CHANNELS])


def dataflows_of(layer: Layer, machine: TileMachine) -> tuple[Dataflow, ...]:
    """Return the dataflows to try for a layer. Pools do not use the array and get one dataflow."""
    if layer.is_pool:
        return machine.dataflows[:1]
    never = Dataflow.INPUT_STATIONARY if layer.per_channel else None
    return tuple(each for each in machine.dataflows if each is not never)


def _is_uncut(layer: Layer, axis: str) -> bool:
    """Whether an axis is never cut: the input channels of layers that do not sum over them."""
    return axis == INPUT_CHANNELS and layer.per_channel


def axis_unit(layer: Layer, machine: TileMachine, axis: str) -> int:
    """Return the unit of tile sizes along an axis; sizes are multiples unless the axis is uncut.

    Tiles of output channels consist of whole blocks of weights and read whole input channels.
    """
    unit = machine.unit(axis)
    if axis != OUTPUT_CHANNELS:
        return unit
    columns = lcm(machine.block_channels, unit)
    if not layer.per_channel or columns % layer.multiplier == 0:
        return columns
    return columns * layer.multiplier


def axis_limit(layer: Layer, machine: TileMachine, axis: str) -> int:
    """Return the largest tile size along an axis."""
    extent = axis_extent(layer, axis)
    return extent if _is_uncut(layer, axis) else min(extent, machine.limits.get(axis, extent))


def axis_extent(layer: Layer, axis: str) -> int:
    """Return the extent of an axis of a layer."""
    if axis == INPUT_CHANNELS:
        return layer.input_channels
    height, width = layer.output_size
    return {OUTPUT_CHANNELS: layer.output_channels, ROWS: height, COLUMNS: width}[axis]


def axis_sizes(layer: Layer, machine: TileMachine, axis: str, every: bool = False) -> list[int]:
    """Return the tile sizes along an axis, largest first: every size, or those of nearly equal
    parts, about 2 sqrt(n) of an axis of n."""
    extent, unit = axis_extent(layer, axis), axis_unit(layer, machine, axis)
    if _is_uncut(layer, axis):
        return [extent]
    units = -(-extent // unit)
    counts = set(range(1, units + 1))
    if not every:
        counts = {-(-units // parts) for parts in counts}
    limit = axis_limit(layer, machine, axis)
    if limit < extent:
        counts = {count for count in counts if count * unit <= limit} | {limit // unit}
    return [min(count * unit, extent) for count in sorted(counts, reverse=True) if count]


def orders_of(extents: dict[str, int]) -> Iterator[tuple[str, ...]]:
    """Return the distinct loop orders; the place of a loop over a single tile has no effect."""
    seen = set()
    for order in permutations(AXES):
        loops = tuple(axis for axis in order if extents[axis] > 1)
        if loops not in seen:
            seen.add(loops)
            yield order


def sizes_of(tiling: Tiling) -> dict[str, int]:
    """Return the tile sizes of a tiling by axis."""
    return {
        OUTPUT_CHANNELS: tiling.output_channels,
        ROWS: tiling.rows,
        COLUMNS: tiling.columns,
        INPUT_CHANNELS: tiling.input_channels,
    }


def tiling_key(tiling: Tiling) -> Key:
    """Return the sort key of a tiling; of two equally fast tilings the smaller key wins."""
    return (
        -tiling.buffers, -tiling.output_channels, -tiling.rows, -tiling.columns,
        -tiling.input_channels, tiling.dataflow.value, tiling.order,
    )  # fmt: skip


def invalid(layer: Layer, tiling: Tiling, hardware: TileMachine) -> str:
    """Return the reason why a tiling is invalid for a layer on an accelerator; empty if valid."""
    for axis, size in sizes_of(tiling).items():
        extent, unit = axis_extent(layer, axis), axis_unit(layer, hardware, axis)
        if not 1 <= size <= extent:
            return f"{axis} is {size}, the layer has {extent}"
        if size % unit and size != extent:
            return f"{axis} is {size}, no multiple of {unit}"
        if size > axis_limit(layer, hardware, axis):
            return f"{axis} is {size}, the accelerator takes {hardware.limits[axis]}"
    if layer.per_channel and tiling.input_channels != layer.input_channels:
        return "input_channels are cut where no sum goes over them"
    if sorted(tiling.order) != sorted(AXES):
        return f"order is {', '.join(tiling.order)}, not each of {', '.join(AXES)}"
    if tiling.buffers not in BUFFERS:
        return f"buffers is {tiling.buffers}, not one of {', '.join(map(str, BUFFERS))}"
    return refusal(layer, hardware) or misfit(tiles_on(layer, tiling, hardware), hardware)
