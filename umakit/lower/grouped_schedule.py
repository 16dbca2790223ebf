# SPDX-License-Identifier: Apache-2.0
"""Loop schedule of grouped float convolutions in NHWC for CPUs with vector registers.

Each group is a convolution of its own, with sums in registers as in
`umakit.lower.convolution_schedule`. Padded rows are computed once for all groups:

    for row: padded rows for group, channel tile, column tile: sums = 0 for kernel row, kernel
    column, input channel of the group: for position of the tile (unrolled), vector of channels:
    sums += data * weights result = fused elementwise operators
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from umakit import tvm_api
from umakit.lower.kernel_facts import FACTS, Facts
from umakit.lower.register_tiles import choose_tile
from umakit.lower.schedule import (
    attempt,
    inline_elementwise,
    is_padding,
    is_reduction,
    reductions_of,
)
from umakit.lower.vector_loops import (
    extent,
    place_padding,
    result_of,
    tiles_of,
    use_registers,
    vectorize_result,
)
from umakit.lower.weight_tiles import Packing, WeightTiles
from umakit.machine.cpu import Cpu


def schedule_groups(
    function: tvm_api.PrimFunc, cpu: Cpu, constants: Collection[int]
) -> tvm_api.PrimFunc | None:
    """Schedule a prim func of fused operators for a CPU with vector registers.

    Args:
        function: the prim func.
        cpu: the CPU.
        constants: parameters that are constants in all calls.

    Returns:
        The scheduled prim func; None for other operators, for depthwise convolutions, and if the
        channels of a group fill no vector.
    """
    schedule = tvm_api.Schedule(tvm_api.IRModule({"main": function}))
    if not attempt(schedule.get_sblock, "root"):
        return None  # written as loops, not as blocks
    inline_elementwise(schedule)
    reductions, packing = reductions_of(schedule), Packing(function, constants)
    if len(reductions) != 1 or not _tile_groups(schedule, reductions[0], cpu, packing):
        return None
    scheduled = schedule.mod["main"].with_attrs(dict(function.attrs))
    return scheduled.with_attr(FACTS, Facts(cpu.register_bytes, packing.packed).text)


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
    consumers = list(schedule.get_consumers(block))
    if inputs <= 1 or len(consumers) > 1 or any(is_reduction(schedule, n) for n in consumers):
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
