# SPDX-License-Identifier: Apache-2.0
"""When each tensor of the arena is alive, and which outputs take over an input's memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from umakit.program.program import KernelCall, Program, Role

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
                last[name] = max(last.get(name, step), step + call.beside)
    return [Lifetime(name, program.tensors[name].size, first[name], last[name]) for name in first]


def tensor_users(program: Program) -> dict[str, frozenset[str]]:
    """Targets whose kernels touch each tensor of the arena."""
    users: dict[str, frozenset[str]] = {}
    for call in program.calls:
        for name in call.arguments:
            if program.tensors[name].role in IN_ARENA:
                users[name] = users.get(name, frozenset()) | {call.target}
    return users


def shared_memory(
    program: Program, lifetimes: list[Lifetime], reachable: Callable[[frozenset[str]], bool]
) -> dict[str, str]:
    """Outputs that take over the memory of an input which ends there, by output.

    Args:
        program: its kernels know which inputs they may overwrite.
        lifetimes: of all its tensors.
        reachable: whether some memory can be used by all of a set of targets.
    """
    by_name = {item.name: item for item in lifetimes}
    users = tensor_users(program)
    shared: dict[str, str] = {}
    for step, call in enumerate(program.calls):
        kernel = program.kernels.get(call.kernel)
        if kernel is None or len(call.outputs) != 1 or call.outputs[0] not in by_name:
            continue
        output = by_name[call.outputs[0]]
        for position in kernel.in_place:
            source = by_name.get(call.inputs[position])
            if (
                source is None
                or source.last != step
                or source.name in running_beside(program, step)
                or source.size != output.size
                or call.inputs.count(source.name) != 1
            ):
                continue
            owner = memory_owner(source.name, shared)
            together = users[owner] | users[output.name]
            if reachable(together):
                shared[output.name] = source.name
                users[owner] = together
                break
    return shared


def running_beside(program: Program, step: int) -> set[str]:
    """Tensors of earlier steps that may still run while a step does."""
    return {
        name
        for earlier, call in enumerate(program.calls[:step])
        if call.beside and earlier + call.beside >= step
        for name in call.arguments
    }


def merge_shared(lifetimes: list[Lifetime], shared: dict[str, str]) -> list[Lifetime]:
    """Lifetimes of memory instead of tensors: a chain of takeovers is one, called by its first."""
    merged: dict[str, Lifetime] = {}
    for item in lifetimes:
        owner = memory_owner(item.name, shared)
        known = merged.get(owner)
        merged[owner] = (
            Lifetime(owner, item.size, item.first, item.last)
            if known is None
            else Lifetime(
                owner, item.size, min(known.first, item.first), max(known.last, item.last)
            )
        )
    return list(merged.values())


def memory_owner(name: str, shared: dict[str, str]) -> str:
    """The tensor whose memory a tensor lives in, after all takeovers."""
    while name in shared:
        name = shared[name]
    return name


def taken_over(call: KernelCall, shared: dict[str, str]) -> int | None:
    """Position of the input that the call's output overwrites, None if there is none."""
    source = shared.get(call.outputs[0]) if len(call.outputs) == 1 else None
    return call.inputs.index(source) if source in call.inputs else None
