# SPDX-License-Identifier: Apache-2.0
"""Loop schedules of CPU kernels with little scratch and vectorizable innermost loops.

The same rules apply to every kernel. Element-wise blocks are inlined into their consumer. A
reduction has the last output axis innermost, so that loads and stores are contiguous. Blocks after
the reduction are computed row by row inside its loops, with one row of accumulators as scratch
instead of a whole tensor. Padding is computed only for the rows in use.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from umakit import tvm_api

SMALLEST_TILE, LARGEST_TILE = 16, 64
"""Numbers of elements: enough to fill vector registers, and few enough for the first cache."""


def schedule_for_cpu(function: tvm_api.PrimFunc) -> tvm_api.PrimFunc:
    """Schedule a prim func of fused operators.

    Steps that do not apply to a kernel are skipped; results never change.
    """
    schedule = schedule_of(function)
    if schedule is None:
        return function
    inline_elementwise(schedule)
    for reduction in reductions_of(schedule):
        schedule_reduction(schedule, reduction)
    return scheduled(schedule, function)


def schedule_of(function: tvm_api.PrimFunc) -> tvm_api.Schedule | None:
    """Return a schedule of a prim func; None if the prim func is loops without blocks."""
    schedule = tvm_api.Schedule(tvm_api.IRModule({"main": function}))
    return schedule if attempt(schedule.get_sblock, "root") else None


def scheduled(schedule: tvm_api.Schedule, function: tvm_api.PrimFunc) -> tvm_api.PrimFunc:
    """Return the prim func of a schedule, with the attributes of the prim func before."""
    found = schedule.mod["main"]
    return found.with_attrs(dict(function.attrs)) if function.attrs else found


def blocks_of(schedule: tvm_api.Schedule) -> list[Any]:
    """Return the blocks of a schedule's function, in order of execution."""
    return list(schedule.get_child_blocks(schedule.get_sblock("root")))


def is_reduction(schedule: tvm_api.Schedule, block: tvm_api.Node) -> bool:
    """Whether a block reduces an axis: a sum, or an extreme."""
    return any(int(axis.iter_type) != 0 for axis in schedule.get(block).iter_vars)


def reductions_of(schedule: tvm_api.Schedule) -> list[Any]:
    """Return the blocks with a reduction, in their order."""
    return [block for block in blocks_of(schedule) if is_reduction(schedule, block)]


def is_last_sum(schedule: tvm_api.Schedule, block: tvm_api.Node) -> bool:
    """Whether a reduction is followed by one elementwise block, or by none."""
    consumers = list(schedule.get_consumers(block))
    return not consumers or (len(consumers) == 1 and not is_reduction(schedule, consumers[0]))


def loops_by_kind(
    schedule: tvm_api.Schedule, block: tvm_api.Node
) -> tuple[list[Any], list[Any]] | None:
    """Return a block's loops over results and its reduced loops; None unless axes have a loop
    each."""
    loops, axes = schedule.get_loops(block), schedule.get(block).iter_vars
    if len(loops) != len(axes):
        return None
    pairs = list(zip(loops, (int(axis.iter_type) != 0 for axis in axes), strict=True))
    return [loop for loop, reduces in pairs if not reduces], [n for n, reduces in pairs if reduces]


def is_padding(schedule: tvm_api.Schedule, block: tvm_api.Node) -> bool:
    """Whether a block pads a tensor, perhaps with no elements."""
    name = str(schedule.get(block).name_hint)
    return name.startswith(("pad_temp", "PadInput"))


def _pads_nothing(schedule: tvm_api.Schedule, block: tvm_api.Node) -> bool:
    body = schedule.get(block)
    return tvm_api.buffer_shape(body.writes[0].source) == tvm_api.buffer_shape(body.reads[0].source)


def inline_elementwise(schedule: tvm_api.Schedule) -> None:
    """Inline all blocks except reductions, outputs and real padding."""
    outputs = {
        str(schedule.get(block).name_hint)
        for block in schedule.get_output_blocks(schedule.get_sblock("root"))
    }
    for block in blocks_of(schedule):
        if is_reduction(schedule, block) or str(schedule.get(block).name_hint) in outputs:
            continue
        feeds_reduction = any(
            is_reduction(schedule, consumer) for consumer in schedule.get_consumers(block)
        )
        if is_padding(schedule, block) and feeds_reduction and not _pads_nothing(schedule, block):
            continue
        attempt(schedule.compute_inline, block)


def schedule_reduction(schedule: tvm_api.Schedule, block: tvm_api.Node) -> None:
    """Order loops as output axes, reduction axes, last output axis; move other blocks inside."""
    kinds = loops_by_kind(schedule, block)
    if kinds is None:
        return
    outer, inner = kinds
    sizes = [tvm_api.integer_value(schedule.get(loop).extent) for loop in outer]
    wide = [loop for loop, size in zip(outer, sizes, strict=True) if size is None or size > 1]
    vector = wide[-1] if wide else None
    if vector is not None:
        producers = schedule.get_producers(block)
        padding = next((each for each in producers if is_padding(schedule, each)), None)
        first = _loops_around_padding(schedule, block, padding, outer) if padding else []
        first = [loop for loop in first if loop is not vector]
        rest = [loop for loop in outer if loop is not vector and loop not in first]
        tile = _tile_of(schedule, block, vector)
        if tile:
            tiles, vector = schedule.split(vector, [None, tile])
            rest.append(tiles)
        schedule.reorder(*first, *rest, *inner, vector)
        if padding and first:
            attempt(schedule.compute_at, padding, first[-1])
        if first or rest:
            _compute_consumer_near(schedule, block, [*first, *rest][-1])
    schedule.decompose_reduction(block, inner[0])


def _tile_of(schedule: tvm_api.Schedule, block: tvm_api.Node, vector: tvm_api.Node) -> int:
    """Return the number of accumulators of a row at a time; 0 for the whole row.

    A reduction before other blocks keeps its accumulators in scratch. A long row is cut into equal
    tiles, so that a matrix product's scratch does not grow with the output.
    """
    extent = tvm_api.integer_value(schedule.get(vector).extent) or 0
    if extent <= LARGEST_TILE or not list(schedule.get_consumers(block)):
        return 0
    divisors = [n for n in range(SMALLEST_TILE, LARGEST_TILE + 1) if extent % n == 0]
    return max(divisors, default=0)


def _loops_around_padding(
    schedule: tvm_api.Schedule,
    block: tvm_api.Node,
    padding: tvm_api.Node,
    outer: list[Any],
) -> list[Any]:
    """Return the output loops around the computation of padded rows.

    A convolution uses padded rows for every output channel, so padded rows are computed once per
    output row. If no axis reuses padded rows (depthwise, pooling), they are computed once for a
    larger part.
    """
    body = schedule.get(block)
    buffer = schedule.get(padding).writes[0].source
    used: list[Any] = []
    for region in body.reads:
        if region.source.same_as(buffer):
            for extent in region.region:
                used += tvm_api.collect(extent.min, tvm_api.Var)
    axes = [axis for axis in body.iter_vars if int(axis.iter_type) == 0]
    related = [
        loop
        for loop, axis in zip(outer, axes, strict=True)
        if any(axis.var.same_as(variable) for variable in used)
    ]
    kept_inside = 1 if len(related) < len(outer) else 2
    return related[: max(1, len(related) - kept_inside)]


def _compute_consumer_near(
    schedule: tvm_api.Schedule, block: tvm_api.Node, loop: tvm_api.Stmt
) -> None:
    consumers = list(schedule.get_consumers(block))
    if len(consumers) != 1 or is_reduction(schedule, consumers[0]):
        return
    # TVM leaves out blocks that read nothing of the reduction, such as the border of a pad.
    trial = schedule.copy()
    if not attempt(trial.reverse_compute_at, consumers[0], loop):
        return
    if _runs(trial, consumers[0]) >= _runs(schedule, consumers[0]):
        attempt(schedule.reverse_compute_at, consumers[0], loop)


def _runs(schedule: tvm_api.Schedule, block: tvm_api.Node) -> int:
    """Return the number of runs of a block; loops of unknown extent count once."""
    extents = [schedule.get(loop).extent for loop in schedule.get_loops(block)]
    return math.prod(tvm_api.integer_value(extent) or 1 for extent in extents)


def attempt(step: Callable[..., Any], *arguments: object) -> bool:
    """Apply a schedule step if TVM can prove it correct; otherwise the schedule is unchanged.

    In some cases TVM fails an internal check, before any change, instead of raising ScheduleError.
    """
    try:
        step(*arguments)
    except (tvm_api.ScheduleError, *tvm_api.TVM_ERRORS):
        return False
    return True
