# SPDX-License-Identifier: Apache-2.0
"""Reductions of columns, as of pools in NHWC: vectors of results that stay in registers.

    for image, part of the rows, row, part of the columns, column, tile of channels:
        results = start
        if kernel row is inside:
            for kernel column:
                results = their sum, or extreme, with the data (vectors of channels)
        result = what follows

Rows and columns are cut where windows begin to be inside of the data, and where they cease to be.
"""

from __future__ import annotations

from typing import Any

from umakit import tvm_api
from umakit.lower.cut_loops import CUTS
from umakit.lower.schedule import is_padding, is_reduction
from umakit.lower.vector_expressions import element_step, flat_index
from umakit.lower.vector_leaves import UNROLLED
from umakit.lower.vector_loops import extent, result_of
from umakit.machine.cpu import Cpu

tirx = tvm_api.tirx


def tile_columns(schedule: tvm_api.Schedule, block: Any, cpu: Cpu) -> bool:
    """Keep results of a reduction whose last axis is that of its data in registers.

    Args:
        schedule: of the kernel.
        block: its only reduction.
        cpu: the CPU.

    Returns:
        Whether it is such a reduction.

    Raises:
        ScheduleError: it is one, but TVM cannot prove that its loops may be changed.
    """
    loops, axes = schedule.get_loops(block), schedule.get(block).iter_vars
    if len(loops) != len(axes):
        return False
    outer = [n for n, axis in zip(loops, axes, strict=True) if int(axis.iter_type) == 0]
    inner = [n for n, axis in zip(loops, axes, strict=True) if int(axis.iter_type) != 0]
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
    """Whether nothing follows a reduction, or what computes an element of each of its results."""
    consumers = list(schedule.get_consumers(block))
    if not consumers:
        return True
    sizes, wanted = (
        [extent(schedule, loop) for loop in loops]
        for loops in (schedule.get_loops(consumers[0]), outer)
    )
    return len(consumers) == 1 and not is_reduction(schedule, consumers[0]) and sizes == wanted


def _tile(channels: int, cpu: Cpu) -> int:
    """Return how many channels are computed at a time, a divisor of all; 0 for no rule."""
    most = UNROLLED * cpu.float_lanes
    if channels < cpu.float_lanes:
        return 0
    if channels <= most:
        return channels
    sizes = range(cpu.float_lanes, most + 1, cpu.float_lanes)
    return max((n for n in sizes if channels % n == 0), default=0)


def _is_contiguous(schedule: tvm_api.Schedule, block: Any, channel: tvm_api.Var) -> bool:
    """Whether a reduction accesses neighbours for neighbouring results, or the same for all."""
    loads = tvm_api.collect(schedule.get(block).body, tvm_api.TensorLoad)
    indices = [flat_index(load.source, load.indices) for load in loads]
    return all(element_step(index, channel) in (0, 1) for index in indices)


def _pads_last_axis(schedule: tvm_api.Schedule, padding: Any) -> bool:
    """Whether a block pads the last axis, so that neighbours are under different conditions."""
    body = schedule.get(padding)
    shapes = [tvm_api.buffer_shape(each.source) for each in (*body.reads, *body.writes)]
    return len({shape[-1] for shape in shapes}) > 1


def _cuts(schedule: tvm_api.Schedule, block: Any, padding: Any, axis: Any) -> list[int]:
    """Return where the turns of an axis begin and cease to have their windows inside of the data.

    Args:
        schedule: of the kernel.
        block: the reduction.
        padding: the block that pads its data.
        axis: of the reduction.
    """
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
    """Return the first place of an axis of padded data that is data, and the first one behind it.

    None is what cannot be told.
    """
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
