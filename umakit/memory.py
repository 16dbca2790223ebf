# SPDX-License-Identifier: Apache-2.0
"""Fifth stage: every intermediate and scratch tensor gets an offset in one arena.

Tensors that are alive at the same time must not overlap. Offsets are found greedily in several
orders, the best of which is kept (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural
Net Inference", 2020, describe the greedy orders).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from umakit.program import Program, Role

ALIGNMENT = 16
"""Bytes; enough for every C type and for common vector units."""

IN_ARENA = (Role.INTERMEDIATE, Role.SCRATCH)


@dataclass(frozen=True)
class Lifetime:
    """A tensor that wants room in the arena from one step to another, both included."""

    name: str
    size: int
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Whether both are alive at some step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class MemoryPlan:
    """Where tensors live.

    Attributes:
        offsets: byte offset in the arena by tensor name.
        arena_size: bytes of the arena, a multiple of the alignment.
        live_set_bound: the largest sum of aligned sizes alive at one step; no plan that keeps
            whole tensors can be smaller.
        alignment: bytes; of the arena itself and of every tensor in it.
    """

    offsets: dict[str, int]
    arena_size: int
    live_set_bound: int
    alignment: int


def plan_memory(program: Program, alignment: int = ALIGNMENT) -> MemoryPlan:
    """Plan the arena of a program.

    Args:
        program: whose tensors are to be placed.
        alignment: bytes, a power of two.
    """
    lifetimes = [
        Lifetime(item.name, _align(item.size, alignment), item.first, item.last)
        for item in tensor_lifetimes(program)
    ]
    best: dict[str, int] = {}
    best_size: int | None = None
    for order in _ORDERS:
        offsets = _place(sorted(lifetimes, key=order))
        size = max((offsets[item.name] + item.size for item in lifetimes), default=0)
        if best_size is None or size < best_size:
            best, best_size = offsets, size
    return MemoryPlan(best, best_size or 0, _live_set_bound(lifetimes), alignment)


def tensor_lifetimes(program: Program) -> list[Lifetime]:
    """First and last step of every tensor of the arena, in order of first use."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for step, call in enumerate(program.calls):
        for name in call.arguments:
            if program.tensors[name].role in IN_ARENA:
                first.setdefault(name, step)
                last[name] = step
    return [Lifetime(name, program.tensors[name].size, first[name], last[name]) for name in first]


def _align(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _live_set_bound(lifetimes: list[Lifetime]) -> int:
    return max(
        (
            sum(other.size for other in lifetimes if other.first <= item.first <= other.last)
            for item in lifetimes
        ),
        default=0,
    )


_ORDERS: tuple[Callable[[Lifetime], tuple[int | str, ...]], ...] = (
    lambda item: (-item.size, item.first, item.name),
    lambda item: (item.first, -item.size, item.name),
    lambda item: (-(item.last - item.first + 1) * item.size, item.first, item.name),
    lambda item: (-(item.last - item.first), -item.size, item.name),
)


def _place(order: list[Lifetime]) -> dict[str, int]:
    """Lowest free offset for each tensor in turn."""
    offsets: dict[str, int] = {}
    placed: list[Lifetime] = []
    for item in order:
        taken = sorted(
            (offsets[other.name], offsets[other.name] + other.size)
            for other in placed
            if other.meets(item)
        )
        offset = 0
        for start, end in taken:
            if offset + item.size <= start:
                break
            offset = max(offset, end)
        offsets[item.name] = offset
        placed.append(item)
    return offsets
