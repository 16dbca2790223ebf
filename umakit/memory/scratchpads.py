# SPDX-License-Identifier: Apache-2.0
"""A check whether the tensors that a program keeps in scratchpads fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from umakit.memory.planners import PLANNERS, arena_size
from umakit.memory.pools import MemoryPool
from umakit.program.lifetimes import tensor_lifetimes
from umakit.program.live_sets import live_set_bound
from umakit.program.program import Program


def scratchpads_hold(program: Program, pools: Sequence[MemoryPool], planner: str) -> bool:
    """Whether a planner finds offsets for all tensors that lie in scratchpads.

    Args:
        program: the program, whose tensors name their scratchpad.
        pools: pools of the build.
        planner: a name of `umakit.memory.planners.PLANNERS`.
    """
    lifetimes = tensor_lifetimes(program)
    for pool in pools:
        inside = [
            replace(item, size=pool.rounded(item.size))
            for item in lifetimes
            if program.tensors[item.name].pool == pool.name
        ]
        if pool.size is None or not pool.by_offset:
            continue
        if live_set_bound(inside) > pool.size:
            return False
        if arena_size(inside, PLANNERS[planner](inside)) > pool.size:
            return False
    return True
