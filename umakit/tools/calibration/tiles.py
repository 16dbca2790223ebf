# SPDX-License-Identifier: Apache-2.0
"""The tiles to measure: layers of one kind and dataflow with a tiling each.

Most layers are one tile, whose size is taken from a grid of each axis: units, one less and one
more, and limits. Others are cut into a few tiles, so that copies have several rows and planes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from umakit.machine import Dataflow, Kind, Layer, TileMachine, Tiling
from umakit.machine.space import axis_limit, invalid
from umakit.machine.tiles import AXES, COLUMNS, INPUT_CHANNELS, OUTPUT_CHANNELS, ROWS

GRID = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 20, 24, 31, 32, 33, 47, 48, 49, 63, 64, 65)
"""Sizes along an axis that are measured on every machine: about likely units."""

IMAGE_GRID = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 20)
"""Sizes of rows and columns, whose product counts too."""

BASE = {ROWS: 3, COLUMNS: 5, OUTPUT_CHANNELS: 16, INPUT_CHANNELS: 8}
"""Sizes of the other axes while one axis is varied."""

KERNELS = ((1, 1), (3, 3), (1, 1), (3, 3), (5, 5), (1, 3))
"""Kernels, in turns."""

POOL_KERNELS = ((2, 2), (3, 3), (2, 2), (4, 4), (3, 2))

MOST_MACS = 4_000_000
"""Largest number of multiply-accumulates of a measured layer: simulators are slow."""

CUT_SHARE = 3
"""One in this many layers is cut."""

ATTEMPTS = 200
"""Number of attempts for each tile: many sizes do not fit."""


@dataclass(frozen=True)
class Tile:
    """A layer and its tiling.

    Attributes:
        dense: whether the operator is that of fully connected layers.
        rounding: rounding of results, the same for all layers measured together.
    """

    layer: Layer
    tiling: Tiling
    dense: bool = False
    rounding: str = "tflm"


@dataclass(frozen=True)
class Group:
    """Layers that are measured together.

    Attributes:
        channels_first: whether images have the layout NCHW.
        adds: whether a second tensor is added to the result.
        dense: whether they are fully connected layers, which are convolutions of one column.
    """

    kind: Kind
    flow: Dataflow
    channels_first: bool = False
    adds: bool = False
    dense: bool = False
    rounding: str = "tflm"

    def __str__(self) -> str:
        words = "fully connected" if self.dense else self.kind.value.replace("_", " ")
        words += " with a sum" if self.adds else ""
        return f"{words}, {self.flow.value.replace('_', ' ')}" + (
            ", NCHW" if self.channels_first else ""
        )

    @property
    def is_variant(self) -> bool:
        """Whether the jobs resemble another group's, so that fewer layers suffice."""
        return self.channels_first or self.adds

    @property
    def kernels(self) -> tuple[tuple[int, int], ...]:
        if self.dense:
            return ((1, 1),)
        return POOL_KERNELS if self.kind in (Kind.MAX_POOL, Kind.AVERAGE_POOL) else KERNELS


def groups_of(machine: TileMachine, rounding: str) -> list[Group]:
    """Return the groups to measure on a machine, besides fully connected layers."""
    groups = [Group(kind, flow) for kind in Kind for flow in flows_of(machine, kind)]
    flow = machine.dataflows[0]
    # The other layout has other copies; its jobs are the same.
    groups.append(Group(Kind.CONVOLUTION, flow, channels_first=True))
    groups.append(Group(Kind.CONVOLUTION, flow, adds=True))
    return [replace(each, rounding=rounding) for each in groups]


def dense_groups(machine: TileMachine, rounding: str) -> list[Group]:
    """Return the groups to measure if a backend supports no convolutions."""
    flows = flows_of(machine, Kind.CONVOLUTION)
    return [Group(Kind.CONVOLUTION, flow, dense=True, rounding=rounding) for flow in flows]


def flows_of(machine: TileMachine, kind: Kind) -> tuple[Dataflow, ...]:
    """Return the dataflows to measure for a kind of layers; for pools, one suffices."""
    return (
        machine.dataflows[:1] if kind in (Kind.MAX_POOL, Kind.AVERAGE_POOL) else machine.dataflows
    )


def grid_of(machine: TileMachine, axis: str) -> list[int]:
    """Return the sizes to measure along an axis: around units and limits."""
    marks = {machine.unit(axis), machine.limits.get(axis, 1)}
    if axis in (OUTPUT_CHANNELS, INPUT_CHANNELS):
        marks |= {machine.block_channels, machine.row_bytes_of("data")}
    found = set(GRID if axis in (OUTPUT_CHANNELS, INPUT_CHANNELS) else IMAGE_GRID)
    for mark in marks:
        found |= {mark - 1, mark, mark + 1, 2 * mark, 2 * mark + 1}
    return sorted(size for size in found if 0 < size <= 4096)


def tiles_of_group(machine: TileMachine, group: Group, count: int) -> list[Tile]:
    """Return tiles of a group of layers that fit the machine, deterministically."""
    found: dict[Tile, None] = {}
    for tile in _proposed(machine, group, count):
        if len(found) == count:
            break
        if tile.layer.macs <= MOST_MACS and not invalid(tile.layer, tile.tiling, machine):
            found[tile] = None
    return list(found)


def _proposed(machine: TileMachine, group: Group, count: int) -> Iterator[Tile]:
    variant = " adds" if group.adds else " dense" if group.dense else ""
    chosen = random.Random(f"{group.kind.value} {group.flow.value} {group.channels_first}{variant}")
    grids = {axis: grid_of(machine, axis) for axis in BASE}
    base = {axis: _multiple(size, machine.unit(axis)) for axis, size in BASE.items()}
    swept = [(axis, size) for axis, grid in grids.items() for size in grid]
    chosen.shuffle(swept)
    for number in range(count * ATTEMPTS):
        sizes = {axis: chosen.choice(grid) for axis, grid in grids.items()}
        if number % 4 == 1 and swept:
            axis, size = swept.pop()
            sizes = {**base, axis: size}
        parts = dict.fromkeys(sizes, 1)
        if number % CUT_SHARE == 0:
            for axis in chosen.sample(sorted(sizes), 2):
                sizes[axis] = _multiple(sizes[axis], machine.unit(axis))
                parts[axis] = chosen.choice((2, 3))
        rest = chosen.choice((0, 0, 1, 2))
        if group.dense:
            sizes[COLUMNS] = parts[COLUMNS] = 1
            if number % 2 == 0:  # most users' networks have one
                sizes[ROWS] = parts[ROWS] = 1
        kernel = group.kernels[number % len(group.kernels)]
        yield _tile(machine, group, sizes, parts, kernel, rest)


def _multiple(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _tile(
    machine: TileMachine,
    group: Group,
    sizes: dict[str, int],
    parts: dict[str, int],
    kernel: tuple[int, int],
    rest: int,
) -> Tile:
    """Return a layer of parts of these sizes; the last part may be larger by `rest`."""
    kind = group.kind
    extents = {axis: sizes[axis] * parts[axis] for axis in sizes}
    for axis in (ROWS, COLUMNS):
        extents[axis] += rest if parts[axis] > 1 else 0
    if kind is not Kind.CONVOLUTION:
        extents[INPUT_CHANNELS] = extents[OUTPUT_CHANNELS]
    is_pool = kind in (Kind.MAX_POOL, Kind.AVERAGE_POOL)
    outputs = extents[OUTPUT_CHANNELS]
    block = machine.block_channels if kind is Kind.CONVOLUTION else 1
    layer = Layer(
        kind,
        images=1,
        input_size=(extents[ROWS] + kernel[0] - 1, extents[COLUMNS] + kernel[1] - 1),
        output_size=(extents[ROWS], extents[COLUMNS]),
        input_channels=extents[INPUT_CHANNELS],
        output_channels=outputs,
        kernel=kernel,
        channels_first=group.channels_first,
        scales=0 if is_pool else outputs,
        stored_channels=_multiple(outputs, block),
        adds=group.adds,
    )
    inputs = sizes[INPUT_CHANNELS] if kind is Kind.CONVOLUTION else extents[INPUT_CHANNELS]
    tiling = Tiling(
        group.flow,
        min(sizes[ROWS], axis_limit(layer, machine, ROWS)),
        min(sizes[COLUMNS], axis_limit(layer, machine, COLUMNS)),
        min(sizes[OUTPUT_CHANNELS], axis_limit(layer, machine, OUTPUT_CHANNELS)),
        min(inputs, axis_limit(layer, machine, INPUT_CHANNELS)),
        AXES,
        buffers=1,
    )
    return Tile(layer, tiling, group.dense, group.rounding)
