# SPDX-License-Identifier: Apache-2.0
"""Lifetimes of a program's tensors, and the targets that use each tensor."""

from __future__ import annotations

from umakit.program.live_sets import Lifetime
from umakit.program.program import Program, Role

IN_ARENA = (Role.INTERMEDIATE, Role.SCRATCH)


def tensor_lifetimes(program: Program) -> list[Lifetime]:
    """Return the lifetime of each tensor of the arena, in order of first use."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for step, call in enumerate(program.calls):
        for name in call.arguments:
            if program.tensors[name].role in IN_ARENA:
                first.setdefault(name, step)
                last[name] = max(last.get(name, step), step + call.overlapped)
    return [Lifetime(name, program.tensors[name].size, first[name], last[name]) for name in first]


def tensor_users(program: Program) -> dict[str, frozenset[str]]:
    """Return the targets whose kernels access each tensor of the arena."""
    users: dict[str, frozenset[str]] = {}
    for call in program.calls:
        for name in call.arguments:
            if program.tensors[name].role in IN_ARENA:
                users[name] = users.get(name, frozenset()) | {call.target}
    return users


def running_tensors(program: Program, step: int) -> set[str]:
    """Return the tensors of earlier steps that may still be running during a step."""
    return {
        name
        for earlier, call in enumerate(program.calls[:step])
        if call.overlapped and earlier + call.overlapped >= step
        for name in call.arguments
    }
