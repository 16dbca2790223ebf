# SPDX-License-Identifier: Apache-2.0
"""Tensors in scratchpads: unique scratchpad names, and a check whether all tensors fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from umakit.memory.planners import PLANNERS, arena_size
from umakit.memory.pools import MemoryPool
from umakit.program.lifetimes import tensor_lifetimes
from umakit.program.live_sets import live_set_bound
from umakit.program.program import Program


def in_own_scratchpads(program: Program, names: Mapping[tuple[str, str], str]) -> Program:
    """Rename the scratchpads of a program's tensors to their names in the build.

    Args:
        program: the program, with scratchpad names of the backends.
        names: scratchpad names in the build, by target and the backend's name.
    """
    tensors = dict(program.tensors)
    for call in program.calls if names else ():
        for name in call.scratch:
            pool = names.get((call.target, tensors[name].pool))
            if pool is not None:
                tensors[name] = replace(tensors[name], pool=pool)
    return replace(program, tensors=tensors)


def scratchpads_hold(program: Program, pools: Sequence[MemoryPool], planner: str) -> bool:
    """Return whether a planner finds offsets for all scratchpad tensors.

    Args:
        program: the program.
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
