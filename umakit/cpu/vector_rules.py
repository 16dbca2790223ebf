# SPDX-License-Identifier: Apache-2.0
"""Vectorized loop schedules of float32 kernels other than convolutions and products.

- Element-wise: loops over contiguous elements of all tensors are one loop, in vectors.
- Rows: if the reduced numbers are contiguous, a kernel finishes a row before the next row.
  Function values with several reads are computed once, into scratch of one row, if the row is
  not long: softmax has one exponential for each element.
- Columns: if results are contiguous, as in pools in NHWC, some vectors of results are kept in
  registers around the reduction loops. Padding is a condition on rows and columns outside of the
  loops over vectors, and only at borders.
- Any other kernel has the loops for any CPU, vectorized where possible.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from umakit import tvm_api
from umakit.cpu.description import Cpu
from umakit.cpu.schedule import (
    attempt,
    blocks_of,
    inline_elementwise,
    is_last_sum,
    is_padding,
    is_reduction,
    loops_by_kind,
    reductions_of,
    schedule_for_cpu,
    scheduled,
)
from umakit.cpu.vector_expressions import SQUARES, element_step, flat_index
from umakit.cpu.vector_leaves import UNROLLED, VECTORS
from umakit.cpu.vector_loops import CUTS, extent, result_of, tiles_of
from umakit.cpu.weight_tiles import FACTS, Facts

LONGEST_ROW = 2048
"""Maximum bytes of scratch for a row, within the limit of any network. Longer rows are recomputed
at each read."""


def schedule_vector_loops(function: tvm_api.PrimFunc, cpu: Cpu) -> tvm_api.PrimFunc:
    """Schedule a prim func of untiled blocks; kernels not in float32 as for any CPU."""
    if not all(_is_float(variable) for variable in function.params):
        return schedule_for_cpu(function)
    schedule = _by_rule(_place_rows, function, cpu) or _by_rule(_place_columns, function, cpu)
    if schedule is None:
        module = tvm_api.IRModule({"main": schedule_for_cpu(function)})
        schedule = tvm_api.Schedule(module)
    _ask_for_vectors(schedule, cpu)
    return scheduled(schedule, function).with_attr(FACTS, Facts(cpu.register_bytes).text)


def _by_rule(
    rule: Callable[[tvm_api.Schedule, Cpu], bool], function: tvm_api.PrimFunc, cpu: Cpu
) -> tvm_api.Schedule | None:
    """Return a rule's schedule; None if the rule does not apply or TVM cannot prove it."""
    schedule = tvm_api.Schedule(tvm_api.IRModule({"main": function}))
    try:
        return schedule if rule(schedule, cpu) else None
    except (tvm_api.ScheduleError, *tvm_api.TVM_ERRORS):
        return None


def _is_float(buffer: tvm_api.Buffer) -> bool:
    is_buffer = tvm_api.tirx.is_buffer_var(buffer)
    return is_buffer and tvm_api.buffer_dtype(buffer) == "float32"


def _place_columns(schedule: tvm_api.Schedule, cpu: Cpu) -> bool:
    """Schedule a kernel with a single reduction, of columns; return False for other kernels."""
    inline_elementwise(schedule)
    reductions = reductions_of(schedule)
    return len(reductions) == 1 and tile_columns(schedule, reductions[0], cpu)


def _place_rows(schedule: tvm_api.Schedule, cpu: Cpu) -> bool:
    """Schedule an element-wise kernel or a kernel of rows; return False for other kernels."""
    _inline(schedule)
    outputs = schedule.get_output_blocks(schedule.get_sblock("root"))
    blocks = blocks_of(schedule)
    reductions = [block for block in blocks if is_reduction(schedule, block)]
    names = [str(schedule.get(block).name_hint) for block in (*outputs, blocks[-1])]
    if names[0] != names[-1] or len(names) != 2:
        return False
    if any(is_padding(schedule, block) for block in blocks):
        return False
    if not reductions:
        fuse_neighbours(schedule, blocks[-1], cpu.float_lanes)
        return len(blocks) == 1
    is_rows = all(
        _size(schedule, each, 2) >= 2 * cpu.float_lanes and _reduces_neighbours(schedule, each)
        for each in reductions
    )
    return is_rows and _compute_in_rows(schedule, blocks, reductions)


def _inline(schedule: tvm_api.Schedule) -> None:
    """Inline element-wise blocks, except function calls with several consumers."""
    output = blocks_of(schedule)[-1]
    for block in blocks_of(schedule)[:-1]:
        if is_reduction(schedule, block):
            continue
        calls = tvm_api.collect(schedule.get(block).body, tvm_api.Call)
        sizes = [tvm_api.integer_value(axis.dom.extent) for axis in schedule.get(block).iter_vars]
        is_row = len(sizes) == len(schedule.get(output).iter_vars) > 0
        is_row = is_row and 4 * (sizes[-1] or 0) <= LONGEST_ROW
        if not (calls and is_row and len(schedule.get_consumers(block)) > 1):
            attempt(schedule.compute_inline, block)


def _reduces_neighbours(schedule: tvm_api.Schedule, block: Any) -> bool:
    """Whether all numbers that a block reduces for a result are contiguous.

    Other operands may be the same for all numbers.
    """
    inner = [axis for axis in schedule.get(block).iter_vars if int(axis.iter_type) != 0]
    loads = tvm_api.collect(schedule.get(block).body, tvm_api.TensorLoad)
    (result,) = schedule.get(block).writes
    read = [load for load in loads if not load.source.same_as(result.source)]
    indices = [flat_index(load.source, load.indices) for load in read]
    return are_neighbours(inner, indices) and any(
        element_step(index, inner[-1].var) == 1 for index in indices
    )


def are_neighbours(axes: list[Any], indices: list[tvm_api.PrimExpr]) -> bool:
    """Whether each flat index grows by one per turn of some nested loops, the outermost first, or
    is constant."""
    sizes = [tvm_api.integer_value(axis.dom.extent) or 0 for axis in axes]
    steps = [math.prod(sizes[n + 1 :]) for n in range(len(axes))]
    for index in indices:
        found = [
            step if size == 1 else element_step(index, axis.var)
            for axis, size, step in zip(axes, sizes, steps, strict=True)
        ]
        is_same = all(each == 0 for each, size in zip(found, sizes, strict=True) if size > 1)
        if not is_same and found != steps:
            return False
    return True


def fuse_neighbours(schedule: tvm_api.Schedule, block: Any, lanes: int, first: int = 0) -> None:
    """Fuse loops of an element-wise block that are contiguous in all tensors.

    Args:
        first: the first loop that may be fused.
    """
    body, loops = schedule.get(block), list(schedule.get_loops(block))
    store = body.body
    if not isinstance(store, tvm_api.tirx.BufferStore) or len(loops) != len(body.iter_vars):
        return
    accesses = [(store.buffer, store.indices)]
    accesses += [(x.source, x.indices) for x in tvm_api.collect(store.value, tvm_api.TensorLoad)]
    indices = [flat_index(*access) for access in accesses]
    steps = [[element_step(index, axis.var) for index in indices] for axis in body.iter_vars]
    if any(step is None for each in steps for step in each) or _has_conditions(store):
        return
    for n in range(len(loops) - 2, first - 1, -1):
        size, outer = extent(schedule, loops[n + 1]), extent(schedule, loops[n])
        if 1 in (size, outer) or steps[n] == [(step or 0) * size for step in steps[n + 1]]:
            loops[n : n + 2] = [schedule.fuse(*loops[n : n + 2])]
            steps[n : n + 2] = [steps[n] if size == 1 else steps[n + 1]]
    if not first:
        _cut_into_squares(schedule, loops, steps, lanes)


def _has_conditions(store: tvm_api.Stmt) -> bool:
    """Whether the stored value depends on indices other than by loads."""
    of_values = tvm_api.rewrite(
        store.value, [(tvm_api.TensorLoad, lambda load: tvm_api.tirx.FloatImm("float32", 0.0))]
    )
    return bool(tvm_api.collect(of_values, tvm_api.Var))


def _cut_into_squares(
    schedule: tvm_api.Schedule, loops: list[Any], steps: list[Any], size: int
) -> None:
    """Transpose squares, so that loads and stores are vectors.

    Args:
        steps: for each loop, the steps per turn of the stored index and of all loaded indices.
    """
    if any(step in (0, 1) for step in steps[-1][1:]) or extent(schedule, loops[-1]) == 1:
        return
    for loop, each in zip(loops[:-1], steps[:-1], strict=True):
        if extent(schedule, loop) > 1 and 1 in each[1:]:
            rows, row = tiles_of(schedule, loop, min(size, extent(schedule, loop)))
            columns, column = tiles_of(schedule, loops[-1], min(size, extent(schedule, loops[-1])))
            between = loops[loops.index(loop) + 1 : -1]
            schedule.reorder(*between, rows, columns, row, column)
            schedule.annotate(row, SQUARES, str(size))
            return


def _compute_in_rows(schedule: tvm_api.Schedule, blocks: list[Any], reductions: list[Any]) -> bool:
    """Compute all blocks inside the row loops of the last block; return whether this is
    possible."""
    output = blocks[-1]
    rows = {_size(schedule, each, 0) for each in reductions}
    if output in reductions:
        if len(reductions) < len(blocks):
            return False
    elif len(rows) > 1 or not _place_blocks(schedule, blocks, rows.pop()):
        return False
    for block in reductions:
        axes = schedule.get(block).iter_vars
        inner = schedule.get_loops(block)[-sum(int(axis.iter_type) != 0 for axis in axes) :]
        loop = schedule.fuse(*inner) if len(inner) > 1 else inner[0]
        schedule.decompose_reduction(block, loop)
    return True


def _place_blocks(schedule: tvm_api.Schedule, blocks: list[Any], rows: int) -> bool:
    """Compute blocks in the row loops of the last block; return whether this is possible."""
    loops, count, found = schedule.get_loops(blocks[-1]), 0, 1
    while found < rows and count < len(loops):
        found *= extent(schedule, loops[count])
        count += 1
    if found != rows:
        return False
    fuse_neighbours(schedule, blocks[-1], 1, count)
    for block in reversed(blocks[:-1]):
        runs = _size(schedule, block)
        if count:
            # Loops of one turn stay, so that the last loops are the reduced axes.
            schedule.compute_at(block, loops[count - 1], preserve_unit_loops=True)
        if _size(schedule, block) != runs:
            return False
        inner = schedule.get_loops(block)[count:]
        if not is_reduction(schedule, block) and len(inner) > 1:
            schedule.fuse(*inner)
    return True


def _size(schedule: tvm_api.Schedule, block: Any, kind: int | None = None) -> int:
    """Return the number of runs of a block, or the number of elements of its axes of one kind."""
    if kind is None:
        return math.prod(extent(schedule, loop) for loop in schedule.get_loops(block))
    return math.prod(
        tvm_api.integer_value(axis.dom.extent) or 0
        for axis in schedule.get(block).iter_vars
        if int(axis.iter_type) == kind
    )


def _ask_for_vectors(schedule: tvm_api.Schedule, cpu: Cpu) -> None:
    for block in blocks_of(schedule):
        loops = schedule.get_loops(block)
        if not loops or extent(schedule, loops[-1]) < cpu.float_lanes:
            continue
        if not schedule.get(loops[-1]).annotations:
            schedule.annotate(loops[-1], VECTORS, str(cpu.float_lanes))


# Reductions of columns, as of pools in NHWC: vectors of results that stay in registers.
#
#     for image, part of the rows, row, part of the columns, column, tile of channels:
#         results = start
#         if kernel row is inside:
#             for kernel column:
#                 results = their sum, or extreme, with the data (vectors of channels)
#         result = fused elementwise operators
#
# Rows and columns are cut where windows begin to be inside of the data, and where they cease to
# be.

tirx = tvm_api.tirx


def tile_columns(schedule: tvm_api.Schedule, block: Any, cpu: Cpu) -> bool:
    """Keep results of a column reduction, over the last axis of the data, in registers; return
    whether the kernel is one."""
    axes, kinds = schedule.get(block).iter_vars, loops_by_kind(schedule, block)
    if kinds is None:
        return False
    outer, inner = kinds
    size = _tile(extent(schedule, outer[-1]) if outer else 0, cpu)
    paddings = [p for p in schedule.get_producers(block) if is_padding(schedule, p)]
    if not size or len(paddings) > 1 or not _is_followed_by_elements(schedule, block, outer):
        return False
    if not _is_contiguous(schedule, block, axes[len(outer) - 1].var):
        return False
    cuts: list[list[int]] = []
    if paddings:
        if _pads_last_axis(schedule, paddings[0]):
            return False
        cuts = [_cuts(schedule, block, paddings[0], axis) for axis in axes[: len(outer) - 1]]
        schedule.compute_inline(paddings[0])
    result = result_of(schedule, block)
    tiles, lane = schedule.split(outer[-1], [None, size])
    schedule.reorder(*outer[:-1], tiles, *inner, lane)
    schedule.reverse_compute_at(result, tiles)
    schedule.decompose_reduction(block, inner[0])
    for loop, places in zip(outer, cuts, strict=False):
        if places:
            schedule.annotate(loop, CUTS, ",".join(map(str, places)))
    return True


def _is_followed_by_elements(schedule: tvm_api.Schedule, block: Any, outer: list[Any]) -> bool:
    """Whether a reduction is followed by nothing, or by an element for each of its results."""
    consumers = list(schedule.get_consumers(block))
    if not consumers:
        return True
    sizes, wanted = (
        [extent(schedule, loop) for loop in loops]
        for loops in (schedule.get_loops(consumers[0]), outer)
    )
    return is_last_sum(schedule, block) and sizes == wanted


def _tile(channels: int, cpu: Cpu) -> int:
    """Return the number of channels at a time, a divisor of all channels; 0 for no rule."""
    most = UNROLLED * cpu.float_lanes
    if channels < cpu.float_lanes:
        return 0
    if channels <= most:
        return channels
    sizes = range(cpu.float_lanes, most + 1, cpu.float_lanes)
    return max((n for n in sizes if channels % n == 0), default=0)


def _is_contiguous(schedule: tvm_api.Schedule, block: Any, channel: tvm_api.Var) -> bool:
    """Whether neighbouring results access neighbouring elements, or the same element."""
    loads = tvm_api.collect(schedule.get(block).body, tvm_api.TensorLoad)
    indices = [flat_index(load.source, load.indices) for load in loads]
    return all(element_step(index, channel) in (0, 1) for index in indices)


def _pads_last_axis(schedule: tvm_api.Schedule, padding: Any) -> bool:
    """Whether a block pads the last axis, so that neighbours are under different conditions."""
    body = schedule.get(padding)
    shapes = [tvm_api.buffer_shape(each.source) for each in (*body.reads, *body.writes)]
    return len({shape[-1] for shape in shapes}) > 1


def _cuts(schedule: tvm_api.Schedule, block: Any, padding: Any, axis: Any) -> list[int]:
    """Return the first turn of an axis with windows inside the data, and the first turn behind."""
    body = schedule.get(padding)
    (padded,) = body.writes
    turns = tvm_api.integer_value(axis.dom.extent) or 0
    for load in tvm_api.collect(schedule.get(block).body, tvm_api.TensorLoad):
        if not load.source.same_as(padded.source):
            continue
        for index, of_padding in zip(load.indices, body.iter_vars, strict=True):
            step = element_step(index, axis.var)
            first, end = _inside(body.body, of_padding.var)
            if not step or first is None or end is None:
                continue
            reach = _reach(schedule, block, index)
            begin, cease = -(-first // step), -(-(end - reach) // step)
            return sorted({n for n in (begin, cease) if 0 < n < turns}) if begin < cease else []
    return []


def _inside(body: tvm_api.Stmt, variable: tvm_api.Var) -> tuple[int | None, int | None]:
    """Return the first place of the data on a padded axis, and the first place behind; None if
    unknown."""
    place = next(n for n, index in enumerate(body.indices) if index.same_as(variable))
    first: int | None = 0
    end: int | None = tvm_api.buffer_shape(body.buffer)[place]
    for least in tvm_api.collect(body.value, tirx.LE):
        if least.b.same_as(variable):
            first = tvm_api.integer_value(least.a)
    for limit in tvm_api.collect(body.value, tirx.LT):
        if limit.a.same_as(variable):
            end = tvm_api.integer_value(limit.b)
    return first, end


def _reach(schedule: tvm_api.Schedule, block: Any, index: tvm_api.PrimExpr) -> int:
    """Return the distance from the first to the last element of a window along an axis."""
    return sum(
        (element_step(index, axis.var) or 0) * ((tvm_api.integer_value(axis.dom.extent) or 1) - 1)
        for axis in schedule.get(block).iter_vars
        if int(axis.iter_type) != 0
    )
