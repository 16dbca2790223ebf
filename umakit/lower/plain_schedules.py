# SPDX-License-Identifier: Apache-2.0
"""Loop schedules for any CPU that are better than that of every kernel, by kinds of kernels."""

from __future__ import annotations

from collections.abc import Collection

from umakit import tvm_api
from umakit.lower.channel_tiles import schedule_channel_tiles
from umakit.lower.depthwise_rows import schedule_depthwise_rows
from umakit.lower.transposed_schedule import schedule_transposed


def schedule_plain_tiles(
    function: tvm_api.PrimFunc, constants: Collection[int], registers: int = 0
) -> tvm_api.PrimFunc | None:
    """Schedule a prim func of fused operators for any CPU; None if there is no rule for it.

    Args:
        function: the prim func.
        constants: parameters that are constants in all calls.
        registers: number of float registers of a CPU without vectors; 0 if unknown.
    """
    tiled = schedule_transposed(function)
    if tiled is None:
        tiled = schedule_channel_tiles(function, constants, registers)
    return schedule_depthwise_rows(function) if tiled is None else tiled
