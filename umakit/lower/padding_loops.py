# SPDX-License-Identifier: Apache-2.0
"""Loops that pad images in NCHW, which are cut at the borders of the data.

The part inside copies columns without a condition, which compilers make a copy of vectors of.
"""

from __future__ import annotations

from typing import Any

from umakit import tvm_api
from umakit.lower.cut_loops import CUTS
from umakit.lower.vector_loops import extent


def cut_padding(schedule: tvm_api.Schedule, padding: Any) -> None:
    """Cut the innermost loop of padding where the data begins and ends.

    Args:
        schedule: of the kernel, whose loops are cut if it has `umakit.lower.kernel_facts`.
        padding: the block, at its place; its last loop runs over all columns.
    """
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
