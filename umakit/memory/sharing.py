# SPDX-License-Identifier: Apache-2.0
"""In-place outputs, which reuse the memory of an input."""

from __future__ import annotations

from collections.abc import Callable

from umakit.program.lifetimes import running_tensors, tensor_users
from umakit.program.live_sets import Lifetime
from umakit.program.program import KernelCall, Program


def shared_memory(
    program: Program, lifetimes: list[Lifetime], reachable: Callable[[frozenset[str]], bool]
) -> dict[str, str]:
    """Return the input whose memory an in-place output reuses, by output.

    Args:
        program: the program; kernels list the inputs that they may overwrite.
        lifetimes: lifetimes of all tensors.
        reachable: function that tells whether all targets of a set can access some memory.
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
                or source.name in running_tensors(program, step)
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


def merge_shared(lifetimes: list[Lifetime], shared: dict[str, str]) -> list[Lifetime]:
    """Merge the lifetimes of tensors that share memory, under the name of the first tensor."""
    merged: dict[str, Lifetime] = {}
    for item in lifetimes:
        owner = memory_owner(item.name, shared)
        earlier = merged.get(owner)
        merged[owner] = (
            Lifetime(owner, item.size, item.first, item.last)
            if earlier is None
            else Lifetime(
                owner, item.size, min(earlier.first, item.first), max(earlier.last, item.last)
            )
        )
    return list(merged.values())


def memory_owner(name: str, shared: dict[str, str]) -> str:
    """Return the tensor that a tensor shares memory with, directly or indirectly."""
    while name in shared:
        name = shared[name]
    return name


def taken_over(call: KernelCall, shared: dict[str, str]) -> int | None:
    """Return the index of the input that the call's output overwrites; None without such an
    input."""
    source = shared.get(call.outputs[0]) if len(call.outputs) == 1 else None
    return call.inputs.index(source) if source in call.inputs else None
