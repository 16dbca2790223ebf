# SPDX-License-Identifier: Apache-2.0
"""Loop schedules for any CPU, faster than the default schedule, by kinds of kernels."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from umakit import tvm_api
from umakit.cpu.plain_tiles import SUM_BYTES, PlainTile, choose_plain_tile, choose_unrolled_tile
from umakit.cpu.schedule import (
    attempt,
    inline_elementwise,
    is_last_sum,
    is_padding,
    reductions_of,
    schedule_of,
    scheduled,
)
from umakit.cpu.transposed_convolutions import PHASE, TILE
from umakit.cpu.vector_expressions import element_step
from umakit.cpu.vector_loops import CUTS, extent, result_of, tiles_of
from umakit.cpu.weight_tiles import FACTS, Facts, Packing, WeightTiles


def schedule_plain_tiles(
    function: tvm_api.PrimFunc, constants: Collection[int], registers: int = 0
) -> tvm_api.PrimFunc | None:
    """Schedule a prim func of fused operators for any CPU; None without a rule."""
    tiled = schedule_transposed(function)
    if tiled is None:
        tiled = _schedule_channel_tiles(function, constants, registers)
    return schedule_depthwise_rows(function) if tiled is None else tiled


# Loop schedules of float convolutions in NCHW for any CPU: plain loops that compilers vectorize.
#
# The sums of some columns by some output channels are a small local array. Its loops have constant
# bounds, and its last axis, the lanes, is that of the weights in memory or that of the data, so
# that compilers with vectors keep it in registers:
#
#     for row, channel tile, column tile:
#         sums[columns][channels] = 0
#         for input channel, kernel row, kernel column:
#             for column of the tile, channel of the tile:
#                 sums[column][channel] += data * weights[channel]
#         result = fused elementwise operators
#
# If channels cannot form lanes, columns do, and the last two loops are swapped. Sums are added in
# the order of other schedules, so that results are bit-exact.

FEWEST_STEPS = 9
"""Products of each sum: gcc unrolls the loops over fewer of them before it looks for vectors."""

DENSE_STEPS = (1, 2)
"""Columns between those of the data that neighbouring results read, for which compilers load
vectors."""


def _schedule_channel_tiles(
    function: tvm_api.PrimFunc, constants: Collection[int], registers: int = 0
) -> tvm_api.PrimFunc | None:
    """Schedule a convolution in NCHW with constant weights; None for other prim funcs."""
    schedule = schedule_of(function)
    if schedule is None:
        return None
    inline_elementwise(schedule)
    reductions, packing = reductions_of(schedule), Packing(function, constants)
    if len(reductions) != 1 or not _tile_convolution(schedule, reductions[0], packing, registers):
        return None
    return scheduled(schedule, function).with_attr(FACTS, Facts(SUM_BYTES, packing.packed).text)


def _tile_convolution(
    schedule: tvm_api.Schedule, block: Any, packing: Packing, registers: int
) -> bool:
    """Tile a convolution in NCHW with constant weights; return False for other blocks."""
    name, loops = str(schedule.get(block).name_hint), schedule.get_loops(block)
    dtype = tvm_api.buffer_dtype(schedule.get(block).writes[0].source)
    if name not in CONVOLUTIONS or dtype != "float32" or len(loops) != 7:
        return False
    sizes = [extent(schedule, loop) for loop in loops]
    if not is_last_sum(schedule, block):
        return False
    if math.prod(sizes[4:]) < FEWEST_STEPS:
        return False
    groups = _groups(schedule, block, sizes[4])
    channels, is_dense = sizes[1] // groups, column_step(schedule, block) in DENSE_STEPS
    if registers:
        tile = choose_unrolled_tile(channels, sizes[3])
    else:
        tile = choose_plain_tile(channels, sizes[3], is_dense)
    if tile is None or not packing.pack(schedule, block, WeightTiles("OIHW", tile.channels)):
        return False
    return attempt(_apply, schedule, block, tile, groups)


def _groups(schedule: tvm_api.Schedule, block: Any, inputs: int) -> int:
    data = schedule.get(block).reads[0].source
    return max(1, tvm_api.buffer_shape(data)[1] // inputs)


def column_step(schedule: tvm_api.Schedule, block: Any) -> int:
    """Return the columns of the data between neighbouring results of a convolution in NCHW; 0 if
    unknown."""
    column = schedule.get(block).iter_vars[3].var
    data = schedule.get(block).reads[0].source
    for load in tvm_api.collect(schedule.get(block).body, tvm_api.TensorLoad):
        if load.source.same_as(data):
            return element_step(load.indices[-1], column) or 0
    return 0


def _apply(schedule: tvm_api.Schedule, block: Any, tile: PlainTile, groups: int) -> None:
    image, channel, row, column, *inner = schedule.get_loops(block)
    paddings = [p for p in schedule.get_producers(block) if is_padding(schedule, p)]
    window = [extent(schedule, loop) for loop in inner[1:]]
    result = result_of(schedule, block)
    if not tile.by_columns:
        schedule.transform_layout(block, ("write", 0), lambda n, c, y, x: [n, y, x, c])
    around = [image]
    if groups > 1:
        group, channel = schedule.split(channel, [groups, None])
        around.append(group)
    tiles, position = tiles_of(schedule, column, tile.columns)
    channels, lane = schedule.split(channel, [None, tile.channels])
    is_pointwise = not paddings and window == [1, 1]
    places = [tiles, channels] if is_pointwise else [channels, tiles]
    of_tile = [lane, position] if tile.by_columns else [position, lane]
    order = [*around, row, *places]
    schedule.reorder(*order, *inner, *of_tile)
    for padding in paddings:
        attempt(schedule.compute_at, padding, row)
        cut_padding(schedule, padding)
    schedule.reverse_compute_at(result, order[-1])
    schedule.decompose_reduction(block, inner[0])


CONVOLUTIONS = ("conv2d_nchw", "group_conv2d_nchw")
"""Names of blocks that sum a convolution in NCHW."""


# Loop schedule of transposed convolutions that are computed by phases, for any CPU.
#
# Tiles of sums of all phases are local arrays next to each other, from which a tile of the result
# is written:
#
#     for image, row of each phase:
#         padded rows
#         for channel tile, column tile:
#             for each phase (code of its own):
#                 sums[columns][channels] = 0
#                 for input channel, kernel row, kernel column:
#                     for column of the tile, channel of the tile:
#                         sums[column][channel] += data * weights[channel]
#             for channel, column, phase:
#                 result = fused elementwise operators

RANKS = (3, 4)
"""Axes of the result: of signals and of images. What follows may add more."""


def schedule_transposed(function: tvm_api.PrimFunc) -> tvm_api.PrimFunc | None:
    """Schedule transposed convolutions by phases for any CPU; None for other prim funcs."""
    schedule = schedule_of(function)
    if schedule is None:
        return None
    inline_elementwise(schedule)
    reductions = reductions_of(schedule)
    names = [str(schedule.get(each).name_hint) for each in reductions]
    outputs = schedule.get_output_blocks(schedule.get_sblock("root"))
    if not names or not all(name.startswith(PHASE) for name in names) or len(outputs) != 1:
        return None
    if len(schedule.get_loops(outputs[0])) not in RANKS:
        return None
    tile, strides = _tile_of(schedule, reductions[0])
    (weights,) = (
        number
        for number, parameter in enumerate(function.params)
        for read in schedule.get(reductions[0]).reads
        if str(parameter.name) == str(read.source.name)
        and len(tvm_api.buffer_shape(read.source)) == 1
    )
    if not attempt(_compute_in_tiles, schedule, reductions, outputs[0], tile, strides):
        return None
    layouts = {weights: f"OIHW{tile.channels}o of each phase"}
    return scheduled(schedule, function).with_attr(FACTS, Facts(SUM_BYTES, layouts=layouts).text)


def _tile_of(schedule: tvm_api.Schedule, phase: Any) -> tuple[PlainTile, tuple[int, int]]:
    """Return the choice of the legalization: a tile, and the strides of rows and of columns."""
    text = str(schedule.get(phase).annotations[TILE])
    channels, columns, by_columns, rows, stride = map(int, text.split(","))
    return PlainTile(channels, columns, bool(by_columns)), (rows, stride)


def _compute_in_tiles(
    schedule: tvm_api.Schedule,
    phases: list[Any],
    result: Any,
    tile: PlainTile,
    strides: tuple[int, int],
) -> None:
    """Compute all phases of a tile, and then the fused elementwise operators."""
    image, channel, *row, column = schedule.get_loops(result)
    channels, lane = schedule.split(channel, [None, tile.channels])
    tiles, position, of_column = schedule.split(column, [None, tile.columns, strides[1]])
    rows, of_row = schedule.split(row[0], [None, strides[0]]) if row else (image, None)
    around = [image, rows] if row else [image]
    of_phase = [loop for loop in (of_row, lane, position, of_column) if loop is not None]
    schedule.reorder(*around, channels, tiles, *of_phase)
    paddings = {
        str(schedule.get(block).name_hint): block
        for phase in phases
        for block in schedule.get_producers(phase)
        if is_padding(schedule, block)
    }
    for phase in phases:
        schedule.unannotate(phase, TILE)
        schedule.compute_at(phase, tiles, preserve_unit_loops=True)
        # Rows are one; channels are the first axis behind images, or the last one.
        first, second, third, *window = schedule.get_loops(phase)[-6:]
        lanes = [first, third] if tile.by_columns else [second, third]
        schedule.reorder(*window, *lanes)
        schedule.decompose_reduction(phase, window[0])
    for padding in paddings.values():
        attempt(schedule.compute_at, padding, rows)
        cut_padding(schedule, padding)
    schedule.unroll(of_column)
    if of_row is not None:
        schedule.unroll(of_row)


# Loop schedule of float depthwise convolutions in NCHW for any CPU.
#
# The products of a window are unrolled, and their sum is a local variable, so that weights stay in
# registers, nothing but results is stored, and compilers with vectors compute several columns at a
# time:
#
#     for channel:
#         padded image of the channel
#         for row, column:
#             sum = 0
#             sum += data * weight (of each row and column of the kernel)
#             result = fused elementwise operators
#
# Sums are added in the order of other schedules, so that results are the same bit by bit.

MOST_PRODUCTS = 25
"""Maximum number of unrolled products; more products cost code size without saving time."""

ROW_SUM_BYTES = 4
"""Bytes of the sums that are local variables."""


def schedule_depthwise_rows(function: tvm_api.PrimFunc) -> tvm_api.PrimFunc | None:
    """Schedule depthwise convolutions with small windows for any CPU; None for other prim funcs."""
    schedule = schedule_of(function)
    if schedule is None:
        return None
    inline_elementwise(schedule)
    reductions = reductions_of(schedule)
    if len(reductions) != 1 or not _unroll_windows(schedule, reductions[0]):
        return None
    return scheduled(schedule, function).with_attr(FACTS, Facts(ROW_SUM_BYTES).text)


def _unroll_windows(schedule: tvm_api.Schedule, block: Any) -> bool:
    """Schedule a depthwise convolution with a small window; return False for other blocks."""
    name, loops = str(schedule.get(block).name_hint), schedule.get_loops(block)
    dtype = tvm_api.buffer_dtype(schedule.get(block).writes[0].source)
    if name != "group_conv2d_nchw" or dtype != "float32" or len(loops) != 7:
        return False
    sizes = [extent(schedule, loop) for loop in loops]
    if sizes[4] != 1 or not 1 < math.prod(sizes[5:]) <= MOST_PRODUCTS:
        return False
    if not is_last_sum(schedule, block):
        return False
    return attempt(_apply_to_rows, schedule, block)


def _apply_to_rows(schedule: tvm_api.Schedule, block: Any) -> None:
    _, channel, _, column, inputs, *window = schedule.get_loops(block)
    result = result_of(schedule, block)
    for padding in schedule.get_producers(block):
        if is_padding(schedule, padding):
            attempt(schedule.compute_at, padding, channel)
            cut_padding(schedule, padding)
    schedule.reverse_compute_at(result, column)
    schedule.decompose_reduction(block, inputs)
    for loop in window:
        schedule.unroll(loop)


# Loops that pad images in NCHW, which are cut at the borders of the data.
#
# The part inside copies columns without a condition, which compilers make a copy of vectors of.


def cut_padding(schedule: tvm_api.Schedule, padding: Any) -> None:
    """Cut the innermost loop of padding at the first and last column of the data."""
    block, loop = schedule.get(padding), schedule.get_loops(padding)[-1]
    column = block.iter_vars[-1].var
    data, padded = (tvm_api.buffer_shape(each.source) for each in (block.reads[0], block.writes[0]))
    columns = extent(schedule, loop)
    if columns != padded[-1]:
        return
    begins = [
        limit
        for comparison in tvm_api.collect(block.body, tvm_api.tirx.LE)
        if comparison.b.same_as(column)
        and (limit := tvm_api.integer_value(comparison.a)) is not None
    ]
    ends = [
        limit
        for comparison in tvm_api.collect(block.body, tvm_api.tirx.LT)
        if comparison.a.same_as(column)
        and (limit := tvm_api.integer_value(comparison.b)) is not None
    ]
    # TVM leaves out the condition on a side that has no padding.
    first = begins[0] if begins else (ends[0] - data[-1] if ends else 0)
    cuts = [n for n in (first, first + data[-1]) if 0 < n < columns]
    if cuts:
        schedule.annotate(loop, CUTS, ",".join(map(str, cuts)))
