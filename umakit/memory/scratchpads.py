# SPDX-License-Identifier: Apache-2.0
"""Whether scratchpads have room for what a program wants to have in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from umakit.memory.planners import PLANNERS, arena_size
from umakit.memory.pools import MemoryPool
from umakit.program.lifetimes import live_set_bound, tensor_lifetimes
from umakit.program.program import Program


def scratchpads_hold(program: Program, pools: Sequence[MemoryPool], planner: str) -> bool:
    """Whether a planner finds a place for everything that lies in scratchpads.

    Args:
        program: whose tensors say which scratchpad they lie in.
        pools: of the build.
        planner: a name of `umakit.memory.PLANNERS`.
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
