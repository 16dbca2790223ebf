# SPDX-License-Identifier: Apache-2.0
"""When each tensor of a program is alive, and who uses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from umakit.program.program import Program, Role

IN_ARENA = (Role.INTERMEDIATE, Role.SCRATCH)


@dataclass(frozen=True)
class Lifetime:
    """A piece of memory that is wanted from one step to another, both included."""

    name: str
    size: int
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Whether both are alive at some step."""
        return self.first <= other.last and other.first <= self.last


def tensor_lifetimes(program: Program) -> list[Lifetime]:
    """First and last step of every tensor of the arena, in order of first use."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for step, call in enumerate(program.calls):
        for name in call.arguments:
            if program.tensors[name].role in IN_ARENA:
                first.setdefault(name, step)
                last[name] = max(last.get(name, step), step + call.overlapped)
    return [Lifetime(name, program.tensors[name].size, first[name], last[name]) for name in first]


def live_set_bound(lifetimes: Sequence[Lifetime]) -> int:
    """The largest sum of sizes alive at one step: no plan can be smaller."""
    return max(
        (
            sum(other.size for other in lifetimes if other.first <= item.first <= other.last)
            for item in lifetimes
        ),
        default=0,
    )


def tensor_users(program: Program) -> dict[str, frozenset[str]]:
    """Targets whose kernels touch each tensor of the arena."""
    users: dict[str, frozenset[str]] = {}
    for call in program.calls:
        for name in call.arguments:
            if program.tensors[name].role in IN_ARENA:
                users[name] = users.get(name, frozenset()) | {call.target}
    return users


def running_tensors(program: Program, step: int) -> set[str]:
    """Tensors of earlier steps that may still run while a step does."""
    return {
        name
        for earlier, call in enumerate(program.calls[:step])
        if call.overlapped and earlier + call.overlapped >= step
        for name in call.arguments
    }
