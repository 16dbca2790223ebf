# SPDX-License-Identifier: Apache-2.0
"""Loop schedules of float convolutions in NCHW for any CPU: plain loops that compilers vectorize.

The sums of some columns by 16 output channels are a small local array. Its loops have constant
bounds, and its last axis is that of the weights in memory, so that compilers with vectors keep it
in registers:

    for row, channel tile, column tile:
        sums[columns][16] = 0
        for input channel, kernel row, kernel column:
            for column of the tile, channel of the tile:
                sums[column][channel] += data * weights[channel]
        result = what follows, element by element

Sums are added in the order of other schedules, so that results are the same bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from umakit import tvm_api
from umakit.lower.kernel_facts import FACTS, Facts
from umakit.lower.schedule import (
    attempt,
    inline_elementwise,
    is_padding,
    is_reduction,
    reductions_of,
)
from umakit.lower.weight_tiles import Packing, WeightTiles

CHANNELS = 16
"""Output channels of a tile. A loop over fewer is unrolled by gcc before it looks for vectors."""

COLUMNS = (4, 6, 5, 7, 3, 2)
"""Columns of a tile, the best first: more need registers that few CPUs have."""

FEWEST_STEPS = 16
"""Products of each sum: gcc unrolls the loops over fewer of them before it looks for vectors."""

SUM_BYTES = 4 * CHANNELS * max(COLUMNS)
"""Most bytes of a tile's sums."""


def schedule_channel_tiles(
    function: tvm_api.PrimFunc, constants: Collection[int], registers: int = 0
) -> tvm_api.PrimFunc | None:
    """Schedule a prim func of fused operators for any CPU; None if there is no rule for it.

    Args:
        function: the prim func.
        constants: parameters that are constants in all calls.
        registers: number of float registers of a CPU without vectors; 0 if unknown. Where they do
            not hold a tile's sums, sums in memory cost more than the tile saves.
    """
    if 0 < registers <= CHANNELS * min(COLUMNS):
        return None
    schedule = tvm_api.Schedule(tvm_api.IRModule({"main": function}))
    if not attempt(schedule.get_sblock, "root"):
        return None  # written as loops, not as blocks
    inline_elementwise(schedule)
    reductions, packing = reductions_of(schedule), Packing(function, constants)
    if len(reductions) != 1 or not _tile_convolution(schedule, reductions[0], packing):
        return None
    scheduled = schedule.mod["main"].with_attrs(dict(function.attrs))
    return scheduled.with_attr(FACTS, Facts(SUM_BYTES, packing.packed).text)


def _tile_convolution(schedule: tvm_api.Schedule, block: Any, packing: Packing) -> bool:
    """Tile a convolution in NCHW whose weights are constant; whether it is one.

    Args:
        schedule: of the kernel.
        block: its only reduction.
        packing: is told how weights are stored.
    """
    name, loops = str(schedule.get(block).name_hint), schedule.get_loops(block)
    dtype = tvm_api.buffer_dtype(schedule.get(block).writes[0].source)
    if name != "conv2d_nchw" or dtype != "float32" or len(loops) != 7:
        return False
    image, channel, row, column, *inner = loops
    sizes = [tvm_api.integer_value(schedule.get(loop).extent) or 0 for loop in loops]
    consumers = list(schedule.get_consumers(block))
    if len(consumers) > 1 or (consumers and is_reduction(schedule, consumers[0])):
        return False
    paddings = [p for p in schedule.get_producers(block) if is_padding(schedule, p)]
    is_pointwise = not paddings and sizes[5:] == [1, 1]
    row_size = sizes[3]
    columns = next((n for n in COLUMNS if row_size % n == 0), 1)
    is_short = math.prod(sizes[4:]) < FEWEST_STEPS
    if sizes[1] % CHANNELS or columns == 1 or is_short:
        return False
    if not packing.pack(schedule, block, WeightTiles("OIHW", CHANNELS)):
        return False
    result = consumers[0] if consumers else schedule.cache_write(block, 0, "global")
    schedule.transform_layout(block, ("write", 0), _channels_last)
    around = [image, row]
    tiles, position = schedule.split(column, [None, columns])
    channels, lane = schedule.split(channel, [None, CHANNELS])
    order = [*around, tiles, channels] if is_pointwise else [*around, channels, tiles]
    schedule.reorder(*order, *inner, position, lane)
    for padding in paddings:
        attempt(schedule.compute_at, padding, row)
    schedule.reverse_compute_at(result, order[-1])
    schedule.decompose_reduction(block, inner[0])
    return True


def _channels_last(image: Any, channel: Any, row: Any, column: Any) -> list[Any]:
    return [image, row, column, channel]
