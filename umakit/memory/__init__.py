# SPDX-License-Identifier: Apache-2.0
"""Fifth stage: every intermediate and scratch tensor gets an offset in one arena.

Tensors that are alive at the same time do not overlap, except that an element-wise kernel's
output may take over the memory of an input that ends there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from umakit.errors import MemoryPlanError
from umakit.memory.lifetimes import (
    Lifetime,
    memory_owner,
    merge_shared,
    shared_memory,
    taken_over,
    tensor_lifetimes,
)
from umakit.memory.planners import PLANNERS, arena_size, live_set_bound
from umakit.program import Program

__all__ = [
    "ALIGNMENT",
    "PLANNERS",
    "Lifetime",
    "MemoryPlan",
    "plan_memory",
    "taken_over",
    "tensor_lifetimes",
]

ALIGNMENT = 16
"""Bytes; enough for every C type and for common vector units."""

DEFAULT_PLANNER = "optimal"


@dataclass(frozen=True)
class MemoryPlan:
    """Where tensors live.

    Attributes:
        offsets: byte offset in the arena by tensor name.
        arena_size: bytes of the arena, a multiple of the alignment.
        live_set_bound: the largest sum of sizes alive at one step; no plan that keeps whole
            tensors apart can be smaller, one with takeovers can.
        alignment: bytes; of the arena itself and of every tensor in it.
        shared: input whose memory an output takes over, by output.
    """

    offsets: dict[str, int]
    arena_size: int
    live_set_bound: int
    alignment: int
    shared: dict[str, str] = field(default_factory=dict)


def plan_memory(
    program: Program, alignment: int = ALIGNMENT, planner: str = DEFAULT_PLANNER
) -> MemoryPlan:
    """Plan the arena of a program.

    Args:
        program: whose tensors are to be placed.
        alignment: bytes, a power of two.
        planner: a name of `PLANNERS`.

    Raises:
        MemoryPlanError: the alignment is no power of two, or there is no such planner.
    """
    if alignment < 1 or alignment & (alignment - 1):
        raise MemoryPlanError(f"alignment {alignment} is no power of two")
    if planner not in PLANNERS:
        raise MemoryPlanError(
            f"there is no memory planner {planner!r}", fix=f"choose from {', '.join(PLANNERS)}"
        )
    tensors = tensor_lifetimes(program)
    shared = shared_memory(program, tensors)
    pieces = [
        replace(item, size=-(-item.size // alignment) * alignment)
        for item in merge_shared(tensors, shared)
    ]
    placed = PLANNERS[planner](pieces)
    offsets = {item.name: placed[memory_owner(item.name, shared)] for item in tensors}
    return MemoryPlan(
        offsets, arena_size(pieces, placed), live_set_bound(tensors), alignment, shared
    )
