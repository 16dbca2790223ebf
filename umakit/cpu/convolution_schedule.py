# SPDX-License-Identifier: Apache-2.0
"""Loop schedules of convolutions in NHWC for CPUs with vector registers.

The sums of a tile, some positions by some channels, are a local array. Accesses are vectors at
constant indices, so that compilers keep the array in registers:

    for block of rows:
        padded rows
        for channel tile, row, column tile:
            sums = 0
            for kernel row, kernel column, input channel:
                for position of the tile (unrolled), vector of channels: sums += data * weights
            result = fused elementwise operators

Weights of a tile that do not fit into the first cache are cut into blocks of input channels. Each
block is used for all positions of a block of rows; their sums are in memory meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from umakit import tvm_api
from umakit.cpu.choice_candidates import (
    ConvolutionSizes,
    convolution_candidates,
    key_of_convolution,
)
from umakit.cpu.description import Cpu
from umakit.cpu.kernel_choices import Choice, KernelKey, choose
from umakit.cpu.register_tiles import choose_tile, vector_lanes
from umakit.cpu.schedule import (
    inline_elementwise,
    is_last_sum,
    is_padding,
    reductions_of,
    schedule_of,
    scheduled,
)
from umakit.cpu.vector_loops import (
    extent,
    place_padding,
    result_of,
    tiles_of,
    use_registers,
    vectorize_result,
)
from umakit.cpu.weight_tiles import FACTS, Facts, Packing, WeightTiles


@dataclass
class Convolution:
    """A convolution to schedule.

    Attributes:
        outer: loops over images, rows, columns and channels.
        inner: loops over rows and columns of the kernel, and input channels.
        padding: the block that pads the data; None without padding.
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
        """Return the parts of a convolution."""
        paddings = [p for p in schedule.get_producers(block) if is_padding(schedule, p)]
        return cls(schedule, block, outer, inner, paddings[0] if len(paddings) == 1 else None)

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel has a window of its own."""
        return "group_conv2d" in str(self.schedule.get(self.block).name_hint)

    @property
    def sizes(self) -> ConvolutionSizes:
        """The input of the convolution's schedule rule."""
        schedule, body = self.schedule, self.schedule.get(self.block)
        rows, row, channels = (extent(schedule, loop) for loop in self.outer[1:])
        window = [extent(schedule, loop) for loop in self.inner]
        padded = None
        if self.padding is not None:
            padded = tvm_api.buffer_shape(schedule.get(self.padding).writes[0].source)
        read, written = body.reads[0].source, body.writes[0].source
        read_bytes = tvm_api.buffer_bytes(read) + tvm_api.buffer_bytes(written)
        inputs = window[2] if len(window) > 2 else 1
        kernel = window[0], window[1]
        return ConvolutionSizes(
            rows, row, channels, inputs, kernel, padded, read_bytes, self.is_depthwise
        )


def tile_convolution(
    schedule: tvm_api.Schedule,
    block: Any,
    outer: list[Any],
    inner: list[Any],
    cpu: Cpu,
    packing: Packing,
    follows: tuple[str, ...] = (),
) -> KernelKey | None:
    """Tile a convolution and return its key; None if its channels fill no vector."""
    convolution = Convolution.of(schedule, block, outer, inner)
    sizes = convolution.sizes
    candidates = convolution_candidates(sizes, cpu)
    if not candidates:
        return None
    operator = "depthwise conv2d" if sizes.is_depthwise else "conv2d"
    key = key_of_convolution(schedule, block, convolution.padding, operator, follows)
    choice = choose(key, candidates)
    if sizes.is_depthwise:
        _tile_depthwise(convolution, choice, cpu)
    elif sizes.is_pointwise:
        packing.pack(schedule, block, WeightTiles("HWIO", choice.channels))
        _tile_pointwise(convolution, choice, cpu)
    else:
        packing.pack(schedule, block, WeightTiles("HWIO", choice.channels, choice.inputs))
        tile = _tile_in_blocks if choice.inputs else _tile_rows
        tile(convolution, choice, cpu)
    return key


def _tile_pointwise(convolution: Convolution, choice: Choice, cpu: Cpu) -> None:
    """Tile a 1x1 convolution without padding, a matrix product."""
    schedule, block, inner = convolution.schedule, convolution.block, convolution.inner
    image, row, column, channel = convolution.outer
    lanes = vector_lanes(cpu, extent(schedule, channel))
    width = extent(schedule, column)
    result = result_of(schedule, block)
    around = [image]
    if choice.positions % width == 0 or width % choice.positions == 0:
        column = schedule.fuse(row, column)  # a tile lies in a row or takes whole rows
    else:
        around.append(row)
    columns, position = tiles_of(schedule, column, choice.positions)
    channels, lane = schedule.split(channel, [None, choice.channels])
    is_outermost = choice.weights_outermost
    order = [channels, *around, columns] if is_outermost else [*around, columns, channels]
    schedule.reorder(*order, *inner, position, lane)
    schedule.reverse_compute_at(result, order[-1])
    vectorize_result(schedule, result, lanes)
    use_registers(schedule, position, lane, lanes)
    schedule.decompose_reduction(block, inner[0])


def _tile_rows(convolution: Convolution, choice: Choice, cpu: Cpu) -> None:
    """Tile a convolution; padding is computed for a block of rows at a time."""
    schedule, block, inner = convolution.schedule, convolution.block, convolution.inner
    image, row, column, channel = convolution.outer
    lanes = vector_lanes(cpu, extent(schedule, channel))
    result = result_of(schedule, block)
    blocks, row = schedule.split(row, [None, choice.rows])
    columns, position = tiles_of(schedule, column, choice.positions)
    channels, lane = schedule.split(channel, [None, choice.channels])
    order = [image, blocks, channels, row, columns]
    schedule.reorder(*order, *inner, position, lane)
    if convolution.padding is not None:
        place_padding(schedule, convolution.padding, blocks)
    schedule.reverse_compute_at(result, columns)
    vectorize_result(schedule, result, lanes)
    if extent(schedule, inner[1]) > 1:
        schedule.fuse(*inner[1:])  # columns of the data with all channels are contiguous
    use_registers(schedule, position, lane, lanes)
    schedule.decompose_reduction(block, inner[0])


def _tile_in_blocks(convolution: Convolution, choice: Choice, cpu: Cpu) -> None:
    """Tile a convolution and cut its input channels into blocks."""
    schedule, block, padding = convolution.schedule, convolution.block, convolution.padding
    lanes = vector_lanes(cpu, extent(schedule, convolution.outer[3]))
    result = result_of(schedule, block)
    input_blocks, _ = schedule.split(convolution.inner[2], [None, choice.inputs])
    partial = schedule.rfactor(input_blocks, 0)
    image, row, column, channel, input_blocks = schedule.get_loops(block)
    blocks, row = schedule.split(row, [None, choice.rows])
    parts = [None, choice.group // choice.channels, choice.channels]
    groups, channels, lane = schedule.split(channel, parts)
    schedule.reorder(image, blocks, groups, input_blocks, channels, row, column, lane)
    use_registers(schedule, None, lane, lanes)
    schedule.decompose_reduction(block, input_blocks)
    columns, position = tiles_of(schedule, column, choice.positions)
    schedule.unroll(position)
    schedule.compute_at(partial, columns, preserve_unit_loops=True)
    if padding is not None:
        place_padding(schedule, padding, input_blocks, whole=False)
    schedule.reverse_compute_at(result, groups)
    vectorize_result(schedule, result, lanes)
    _, _, _, of_position, of_lane, *inner = schedule.get_loops(partial)[-8:]
    schedule.reorder(*inner, of_position, of_lane)
    use_registers(schedule, of_position, of_lane, lanes)
    schedule.decompose_reduction(partial, inner[0])


def _tile_depthwise(convolution: Convolution, choice: Choice, cpu: Cpu) -> None:
    """Tile a depthwise convolution; the columns of its kernel are unrolled."""
    schedule, block, inner = convolution.schedule, convolution.block, convolution.inner
    image, row, column, channel = convolution.outer
    lanes = vector_lanes(cpu, extent(schedule, channel))
    result = result_of(schedule, block)
    blocks, row = schedule.split(row, [None, choice.rows])
    columns, position = tiles_of(schedule, column, choice.positions)
    channels, lane = schedule.split(channel, [None, choice.channels])
    schedule.reorder(image, blocks, row, columns, channels, *inner, position, lane)
    if convolution.padding is not None:
        place_padding(schedule, convolution.padding, blocks)
    schedule.reverse_compute_at(result, channels)
    vectorize_result(schedule, result, lanes)
    use_registers(schedule, position, lane, lanes)
    schedule.decompose_reduction(block, inner[0])
    schedule.unroll(inner[1])


# Loop schedule of grouped float convolutions in NHWC for CPUs with vector registers.
#
# Each group is a convolution of its own, with sums in registers as above. Padded rows are computed
# once for all groups.


def schedule_groups(
    function: tvm_api.PrimFunc, cpu: Cpu, constants: Collection[int]
) -> tvm_api.PrimFunc | None:
    """Schedule a prim func of fused operators; None for other operators, for depthwise
    convolutions, and if the channels of a group fill no vector."""
    schedule = schedule_of(function)
    if schedule is None:
        return None
    inline_elementwise(schedule)
    reductions, packing = reductions_of(schedule), Packing(function, constants)
    if len(reductions) != 1 or not _tile_groups(schedule, reductions[0], cpu, packing):
        return None
    return scheduled(schedule, function).with_attr(
        FACTS, Facts(cpu.register_bytes, packing.packed).text
    )


def _tile_groups(schedule: tvm_api.Schedule, block: Any, cpu: Cpu, packing: Packing) -> bool:
    """Tile a grouped convolution whose groups fill vectors; return False for other blocks."""
    name, loops = str(schedule.get(block).name_hint), schedule.get_loops(block)
    dtype = tvm_api.buffer_dtype(schedule.get(block).writes[0].source)
    if name != "group_conv2d_nhwc" or dtype != "float32" or len(loops) != 7:
        return False
    image, row, column, channel, *inner = loops
    inputs = extent(schedule, inner[2])
    data = schedule.get(block).reads[0].source
    groups = tvm_api.buffer_shape(data)[3] // max(1, inputs)
    if inputs <= 1 or not is_last_sum(schedule, block):
        return False
    tile = choose_tile(cpu, extent(schedule, column), extent(schedule, channel) // groups)
    if tile.lanes == 1:
        return False
    packing.pack(schedule, block, WeightTiles("HWIO", tile.channels))
    paddings = [p for p in schedule.get_producers(block) if is_padding(schedule, p)]
    result = result_of(schedule, block)
    columns, position = tiles_of(schedule, column, tile.positions)
    group, channels, lane = schedule.split(channel, [groups, None, tile.channels])
    schedule.reorder(image, row, group, channels, columns, *inner, position, lane)
    for padding in paddings:
        place_padding(schedule, padding, row)
    schedule.reverse_compute_at(result, columns)
    vectorize_result(schedule, result, tile.lanes)
    use_registers(schedule, position, lane, tile.lanes)
    schedule.decompose_reduction(block, inner[0])
    return True
