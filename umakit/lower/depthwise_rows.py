# SPDX-License-Identifier: Apache-2.0
"""Loop schedule of float depthwise convolutions in NCHW for any CPU.

The products of a window are unrolled, and their sum is a local variable, so that weights stay in
registers, nothing but results is stored, and compilers with vectors compute several columns at a
time:

    for channel:
        padded image of the channel
        for row, column:
            sum = 0
            sum += data * weight (of each row and column of the kernel)
            result = what follows

Sums are added in the order of other schedules, so that results are the same bit by bit.
"""

from __future__ import annotations

import math
from typing import Any

from umakit import tvm_api
from umakit.lower.kernel_facts import FACTS, Facts
from umakit.lower.padding_loops import cut_padding
from umakit.lower.schedule import (
    attempt,
    inline_elementwise,
    is_padding,
    is_reduction,
    reductions_of,
)

MOST_PRODUCTS = 25
"""Products that are unrolled: those of more need more code than they save time."""

SUM_BYTES = 4
"""Bytes of the sums that are local variables."""


def schedule_depthwise_rows(function: tvm_api.PrimFunc) -> tvm_api.PrimFunc | None:
    """Schedule a prim func of fused operators for any CPU; None if it is no such convolution.

    Args:
        function: the prim func.
    """
    schedule = tvm_api.Schedule(tvm_api.IRModule({"main": function}))
    if not attempt(schedule.get_sblock, "root"):
        return None  # written as loops, not as blocks
    inline_elementwise(schedule)
    reductions = reductions_of(schedule)
    if len(reductions) != 1 or not _unroll_windows(schedule, reductions[0]):
        return None
    scheduled = schedule.mod["main"].with_attrs(dict(function.attrs))
    return scheduled.with_attr(FACTS, Facts(SUM_BYTES).text)


def _unroll_windows(schedule: tvm_api.Schedule, block: Any) -> bool:
    """Schedule a convolution; whether it is depthwise and its window is small."""
    name, loops = str(schedule.get(block).name_hint), schedule.get_loops(block)
    dtype = tvm_api.buffer_dtype(schedule.get(block).writes[0].source)
    if name != "group_conv2d_nchw" or dtype != "float32" or len(loops) != 7:
        return False
    sizes = [tvm_api.integer_value(schedule.get(loop).extent) or 0 for loop in loops]
    if sizes[4] != 1 or not 1 < math.prod(sizes[5:]) <= MOST_PRODUCTS:
        return False
    consumers = list(schedule.get_consumers(block))
    if len(consumers) > 1 or (consumers and is_reduction(schedule, consumers[0])):
        return False
    return attempt(_apply, schedule, block)


def _apply(schedule: tvm_api.Schedule, block: Any) -> None:
    """Unroll the windows of a convolution."""
    _, channel, _, column, inputs, *window = schedule.get_loops(block)
    consumers = list(schedule.get_consumers(block))
    result = consumers[0] if consumers else schedule.cache_write(block, 0, "global")
    for padding in schedule.get_producers(block):
        if is_padding(schedule, padding):
            attempt(schedule.compute_at, padding, channel)
            cut_padding(schedule, padding)
    schedule.reverse_compute_at(result, column)
    schedule.decompose_reduction(block, inputs)
    for loop in window:
        schedule.unroll(loop)
