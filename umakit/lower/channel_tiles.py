# SPDX-License-Identifier: Apache-2.0
"""Loop schedules of float convolutions in NCHW for any CPU: plain loops that compilers vectorize.

The sums of some columns by some output channels are a small local array. Its loops have constant
bounds, and its last axis, the lanes, is that of the weights in memory or that of the data, so that
compilers with vectors keep it in registers:

    for row, channel tile, column tile:
        sums[columns][channels] = 0
        for input channel, kernel row, kernel column:
            for column of the tile, channel of the tile:
                sums[column][channel] += data * weights[channel]
        result = what follows, element by element

Where channels do not make lanes, columns do, and the last two loops change places. Sums are added
in the order of other schedules, so that results are the same bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from umakit import tvm_api
from umakit.lower.kernel_facts import FACTS, Facts
from umakit.lower.padding_loops import cut_padding
from umakit.lower.plain_tiles import SUM_BYTES, PlainTile, choose_plain_tile, choose_unrolled_tile
from umakit.lower.schedule import (
    attempt,
    inline_elementwise,
    is_padding,
    is_reduction,
    reductions_of,
)
from umakit.lower.vector_loops import tiles_of
from umakit.lower.weight_tiles import Packing, WeightTiles

FEWEST_STEPS = 9
"""Products of each sum: gcc unrolls the loops over fewer of them before it looks for vectors."""

DENSE_STEPS = (1, 2)
"""Columns between those of the data that neighbouring results read, for which compilers load
vectors."""


def schedule_channel_tiles(
    function: tvm_api.PrimFunc, constants: Collection[int], registers: int = 0
) -> tvm_api.PrimFunc | None:
    """Schedule a prim func of fused operators for any CPU; None if there is no rule for it.

    Args:
        function: the prim func.
        constants: parameters that are constants in all calls.
        registers: number of float registers of a CPU without vectors; 0 if unknown.
    """
    schedule = tvm_api.Schedule(tvm_api.IRModule({"main": function}))
    if not attempt(schedule.get_sblock, "root"):
        return None  # written as loops, not as blocks
    inline_elementwise(schedule)
    reductions, packing = reductions_of(schedule), Packing(function, constants)
    if len(reductions) != 1 or not _tile_convolution(schedule, reductions[0], packing, registers):
        return None
    scheduled = schedule.mod["main"].with_attrs(dict(function.attrs))
    return scheduled.with_attr(FACTS, Facts(SUM_BYTES, packing.packed).text)


def _tile_convolution(
    schedule: tvm_api.Schedule, block: Any, packing: Packing, registers: int
) -> bool:
    """Tile a convolution in NCHW whose weights are constant; whether it is one.

    Args:
        schedule: of the kernel.
        block: its only reduction.
        packing: is told how weights are stored.
        registers: of one number each; 0 if unknown.
    """
    name, loops = str(schedule.get(block).name_hint), schedule.get_loops(block)
    dtype = tvm_api.buffer_dtype(schedule.get(block).writes[0].source)
    if name not in CONVOLUTIONS or dtype != "float32" or len(loops) != 7:
        return False
    sizes = [tvm_api.integer_value(schedule.get(loop).extent) or 0 for loop in loops]
    consumers = list(schedule.get_consumers(block))
    if len(consumers) > 1 or (consumers and is_reduction(schedule, consumers[0])):
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
    """Return the number of groups of a convolution that sums `inputs` channels."""
    data = schedule.get(block).reads[0].source
    return max(1, tvm_api.buffer_shape(data)[1] // inputs)


def column_step(schedule: tvm_api.Schedule, block: Any) -> int:
    """Return how many columns of the data lie between those of neighbouring results of a
    convolution in NCHW; 0 if it cannot be told."""
    column = schedule.get(block).iter_vars[3].var
    data = schedule.get(block).reads[0].source
    for load in tvm_api.collect(schedule.get(block).body, tvm_api.TensorLoad):
        if load.source.same_as(data):
            return _factor(load.indices[-1], column)
    return 0


def _factor(index: Any, variable: Any) -> int:
    """Return the constant by which a variable is multiplied in a sum; 0 if there is none."""
    if index.same_as(variable):
        return 1
    if isinstance(index, tvm_api.tirx.Add):
        return _factor(index.a, variable) + _factor(index.b, variable)
    if isinstance(index, tvm_api.tirx.Mul) and index.a.same_as(variable):
        return tvm_api.integer_value(index.b) or 0
    return 0


def _apply(schedule: tvm_api.Schedule, block: Any, tile: PlainTile, groups: int) -> None:
    """Compute a convolution in tiles."""
    image, channel, row, column, *inner = schedule.get_loops(block)
    paddings = [p for p in schedule.get_producers(block) if is_padding(schedule, p)]
    window = [tvm_api.integer_value(schedule.get(loop).extent) for loop in inner[1:]]
    consumers = list(schedule.get_consumers(block))
    result = consumers[0] if consumers else schedule.cache_write(block, 0, "global")
    if not tile.by_columns:
        schedule.transform_layout(block, ("write", 0), _channels_last)
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


def _channels_last(image: Any, channel: Any, row: Any, column: Any) -> list[Any]:
    return [image, row, column, channel]


CONVOLUTIONS = ("conv2d_nchw", "group_conv2d_nchw")
"""Names of blocks that sum a convolution in NCHW."""
