# SPDX-License-Identifier: Apache-2.0
"""Loop schedules of convolutions in NHWC for CPUs with vector registers.

The sums of a tile, some positions by some channels, are a local array, whose accesses are vectors
at constant indices, so that compilers keep it in registers:

    for block of rows:
        padded rows
        for channel tile, row, column tile:
            sums = 0
            for kernel row, kernel column, input channel:
                for position of the tile (unrolled), vector of channels:
                    sums += data * weights
            result = what follows, element by element

Weights of a tile that the first cache does not hold are cut into blocks of input channels. Each of
them is used for all positions of a block of rows, whose sums are in memory meanwhile:

    for block of rows, group of channel tiles:
        for block of input channels:
            padded rows of these channels
            for channel tile, row, column tile:
                as above; sums of the block of rows += sums
        result = what follows
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from umakit import tvm_api
from umakit.lower.register_tiles import Tile, choose_tile, depthwise_tile, fused_tile
from umakit.lower.schedule import is_padding
from umakit.lower.vector_loops import (
    extent,
    largest_divisor,
    place_padding,
    result_of,
    tiles_of,
    use_registers,
    vectorize_result,
)
from umakit.lower.weight_tiles import Packing, WeightTiles
from umakit.machine.cpu import Cpu

FIRST_CACHE_WEIGHTS = 24576
"""Bytes of weights that stay in the first cache, which mostly has 32 KiB, next to data."""

CHANNEL_GROUP = 64
"""Channels for which padded rows of a block of input channels are used, about."""

MOST_ROWS = 8
"""Rows of a block: with more of them, padding takes hardly less time."""

SCRATCH_SHARE = 8
"""Padded rows and sums may take more than the rows of one kernel window by the bytes of data and
result divided by it."""

FEWEST_INPUTS = 16
"""Input channels of a block, at least: with fewer, sums are loaded and stored too often."""


@dataclass
class Convolution:
    """A convolution that is scheduled.

    Attributes:
        schedule: of the kernel.
        block: the convolution.
        outer: loops over images, rows, columns and channels.
        inner: loops over rows and columns of the kernel, and input channels.
        padding: the block that pads its data; None without.
    """

    schedule: tvm_api.Schedule
    block: Any
    outer: list[Any]
    inner: list[Any]
    padding: Any | None

    @classmethod
    def of(
        cls, schedule: tvm_api.Schedule, block: Any, outer: list[Any], inner: list[Any]
    ) -> Convolution:
        """Return what a convolution consists of."""
        paddings = [p for p in schedule.get_producers(block) if is_padding(schedule, p)]
        return cls(schedule, block, outer, inner, paddings[0] if len(paddings) == 1 else None)

    def sizes(self, loops: list[Any]) -> list[int]:
        """Return how often loops run."""
        return [extent(self.schedule, loop) for loop in loops]

    @property
    def stride(self) -> int:
        """Rows of the padded data between those of neighbouring results, at least."""
        if self.padding is None:
            return 1
        (padded,) = self.schedule.get(self.padding).writes
        rows = tvm_api.buffer_shape(padded.source)[1]
        return max(1, (rows - extent(self.schedule, self.inner[0])) // max(1, self.rows - 1))

    @property
    def rows(self) -> int:
        """Rows of the result."""
        return extent(self.schedule, self.outer[1])

    def padded_bytes(self, rows: int, inputs: int | None = None) -> int:
        """Return the size of the padded data that some rows of the result need.

        Args:
            rows: of the result.
            inputs: of the input channels; None for all.
        """
        if self.padding is None:
            return 0
        (padded,) = self.schedule.get(self.padding).writes
        _, _, width, channels = tvm_api.buffer_shape(padded.source)
        height = (rows - 1) * self.stride + extent(self.schedule, self.inner[0])
        return 4 * height * width * (channels if inputs is None else inputs)

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch that it may use."""
        tensors = [*self.schedule.get(self.block).reads, *self.schedule.get(self.block).writes]
        sizes = [tvm_api.buffer_bytes(each.source) for each in tensors]
        data_and_result = sizes[0] + sizes[-1]
        return self.padded_bytes(1) + data_and_result // SCRATCH_SHARE


def tile_convolution(
    schedule: tvm_api.Schedule,
    block: Any,
    outer: list[Any],
    inner: list[Any],
    cpu: Cpu,
    packing: Packing,
) -> bool:
    """Tile a convolution; whether its channels fill vectors.

    Args:
        schedule: of the kernel.
        block: the convolution.
        outer: loops over images, rows, columns and channels.
        inner: loops over rows and columns of the kernel, and input channels.
        cpu: the CPU.
        packing: is told which weights are read tile by tile.
    """
    convolution = Convolution.of(schedule, block, outer, inner)
    _, height, width, channels = convolution.sizes(outer)
    if "group_conv2d" in str(schedule.get(block).name_hint):
        tile = depthwise_tile(cpu, width, channels, *convolution.sizes(inner[1:2]))
        if tile.lanes == 1:
            return False
        _tile_depthwise(convolution, tile)
        return True
    tile = choose_tile(cpu, width, channels)
    if tile.lanes == 1:
        return False
    rows, columns, inputs = convolution.sizes(inner)
    if convolution.padding is None and rows * columns == 1:
        _tile_pointwise(convolution, fused_tile(cpu, tile, height, width, channels), cpu, packing)
        return True
    size = largest_divisor(inputs, FIRST_CACHE_WEIGHTS // (4 * rows * columns * tile.channels))
    if size < inputs and size >= FEWEST_INPUTS:
        group = largest_divisor(channels, CHANNEL_GROUP, tile.channels)
        for block_rows in _block_sizes(height):
            scratch = convolution.padded_bytes(block_rows, size) + 4 * block_rows * width * group
            if scratch <= convolution.scratch_bytes:
                packing.pack(schedule, block, WeightTiles("HWIO", tile.channels, size))
                _tile_in_blocks(convolution, tile, block_rows, size, group)
                return True
    packing.pack(schedule, block, WeightTiles("HWIO", tile.channels))
    _tile_rows(convolution, tile)
    return True


def _block_sizes(rows: int) -> list[int]:
    """Return how many rows a block may have, the most first."""
    return [n for n in range(min(rows, MOST_ROWS), 0, -1) if rows % n == 0]


def _tile_pointwise(convolution: Convolution, tile: Tile, cpu: Cpu, packing: Packing) -> None:
    """Tile a convolution of single positions without padding, a product of matrices."""
    schedule, block, inner = convolution.schedule, convolution.block, convolution.inner
    image, row, column, channel = convolution.outer
    _, _, width, all_channels = convolution.sizes(convolution.outer)
    large = 4 * all_channels * convolution.sizes(inner)[2] > cpu.cache_bytes // 2
    packing.pack(schedule, block, WeightTiles("HWIO", tile.channels))
    result = result_of(schedule, block)
    around = [image]
    if tile.positions % width == 0 or width % tile.positions == 0:
        column = schedule.fuse(row, column)  # a tile lies in a row or takes whole rows
    else:
        around.append(row)
    columns, position = tiles_of(schedule, column, tile.positions)
    channels, lane = schedule.split(channel, [None, tile.channels])
    order = [channels, *around, columns] if large else [*around, columns, channels]
    schedule.reorder(*order, *inner, position, lane)
    schedule.reverse_compute_at(result, order[-1])
    vectorize_result(schedule, result, tile.lanes)
    use_registers(schedule, position, lane, tile.lanes)
    schedule.decompose_reduction(block, inner[0])


def _rows_at_once(convolution: Convolution) -> int:
    """Return the rows whose padding is computed at a time; 1 without padding."""
    if not convolution.padding:
        return 1
    most = convolution.scratch_bytes
    return next(n for n in _block_sizes(convolution.rows) if convolution.padded_bytes(n) <= most)


def _tile_rows(convolution: Convolution, tile: Tile) -> None:
    """Tile a convolution; padding is computed for some rows at a time."""
    schedule, block, inner = convolution.schedule, convolution.block, convolution.inner
    image, row, column, channel = convolution.outer
    result = result_of(schedule, block)
    blocks, row = schedule.split(row, [None, _rows_at_once(convolution)])
    columns, position = tiles_of(schedule, column, tile.positions)
    channels, lane = schedule.split(channel, [None, tile.channels])
    order = [image, blocks, channels, row, columns]
    schedule.reorder(*order, *inner, position, lane)
    if convolution.padding is not None:
        place_padding(schedule, convolution.padding, blocks)
    schedule.reverse_compute_at(result, columns)
    vectorize_result(schedule, result, tile.lanes)
    if extent(schedule, inner[1]) > 1:
        schedule.fuse(*inner[1:])  # columns of the data with all channels lie next to each other
    use_registers(schedule, position, lane, tile.lanes)
    schedule.decompose_reduction(block, inner[0])


def _tile_in_blocks(
    convolution: Convolution, tile: Tile, block_rows: int, inputs: int, group: int
) -> None:
    """Tile a convolution and cut its input channels into blocks.

    Args:
        convolution: the convolution.
        tile: its tile.
        block_rows: rows whose sums are in memory meanwhile, a divisor of all.
        inputs: input channels of a block, a divisor of all.
        group: channels whose sums are in memory meanwhile: some tiles.
    """
    schedule, block, padding = convolution.schedule, convolution.block, convolution.padding
    result = result_of(schedule, block)
    input_blocks, _ = schedule.split(convolution.inner[2], [None, inputs])
    partial = schedule.rfactor(input_blocks, 0)
    image, row, column, channel, input_blocks = schedule.get_loops(block)
    blocks, row = schedule.split(row, [None, block_rows])
    parts = [None, group // tile.channels, tile.channels]
    groups, channels, lane = schedule.split(channel, parts)
    schedule.reorder(image, blocks, groups, input_blocks, channels, row, column, lane)
    use_registers(schedule, None, lane, tile.lanes)
    schedule.decompose_reduction(block, input_blocks)
    columns, position = tiles_of(schedule, column, tile.positions)
    schedule.unroll(position)
    schedule.compute_at(partial, columns, preserve_unit_loops=True)
    if padding is not None:
        place_padding(schedule, padding, input_blocks, whole=False)
    schedule.reverse_compute_at(result, groups)
    vectorize_result(schedule, result, tile.lanes)
    _, _, _, of_position, of_lane, *inner = schedule.get_loops(partial)[-8:]
    schedule.reorder(*inner, of_position, of_lane)
    use_registers(schedule, of_position, of_lane, tile.lanes)
    schedule.decompose_reduction(partial, inner[0])


def _tile_depthwise(convolution: Convolution, tile: Tile) -> None:
    """Tile a depthwise convolution; the columns of its kernel are unrolled."""
    schedule, block, inner = convolution.schedule, convolution.block, convolution.inner
    image, row, column, channel = convolution.outer
    result = result_of(schedule, block)
    blocks, row = schedule.split(row, [None, _rows_at_once(convolution)])
    columns, position = tiles_of(schedule, column, tile.positions)
    channels, lane = schedule.split(channel, [None, tile.channels])
    schedule.reorder(image, blocks, row, columns, channels, *inner, position, lane)
    if convolution.padding is not None:
        place_padding(schedule, convolution.padding, blocks)
    schedule.reverse_compute_at(result, channels)
    vectorize_result(schedule, result, tile.lanes)
    use_registers(schedule, position, lane, tile.lanes)
    schedule.decompose_reduction(block, inner[0])
    schedule.unroll(inner[1])
