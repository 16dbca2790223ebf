# SPDX-License-Identifier: Apache-2.0
"""Limit on the arena of an export for a specific CPU, relative to the generic export.

CPU-specific kernels pad rows and pack operands in scratch memory, and cannot work in place like
generic kernels. If the arena would exceed the limit, some kernels take their generic form.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

from umakit.memory.plan import GenericLayer, MemoryPlan, PlannedProgram, ScratchUse
from umakit.memory.planners import SMALL_SCRATCH
from umakit.partition.report import CPU
from umakit.program.live_sets import live_set_bound
from umakit.program.program import KernelCall, Program, Role, tensor_lifetimes


def largest_arena(generic: MemoryPlan, percent: int, program: Program) -> int:
    """Return the largest allowed arena in bytes of an export for a specific CPU.

    `percent` is above the larger live-set bound of `generic` and of `program` without scratch, at
    least `SMALL_SCRATCH` bytes; 0 allows only the arena of `generic`, without copies to another
    layout.
    """
    if percent == 0:
        return generic.arena_size
    tensors = [
        item
        for item in tensor_lifetimes(program)
        if program.tensors[item.name].role is not Role.SCRATCH
    ]
    bound = max(generic.live_set_bound, live_set_bound(tensors))
    allowed = max(bound * percent // 100, SMALL_SCRATCH)
    return max(generic.arena_size, bound + allowed)


def within_limit(
    generic: PlannedProgram, percent: int, plan: Callable[[frozenset[int], bool], PlannedProgram]
) -> tuple[PlannedProgram, ScratchUse]:
    """Return a network for a CPU with an arena within the limit.

    First the layers above the limit take generic kernels, whose rows `plan` gets. If this is not
    enough, the network also keeps its layout. The last resort is the generic network.
    """
    arena = generic.memory.arena_size
    for keeps_layout in (False, True):
        rows: frozenset[int] = frozenset()
        layers: dict[str, GenericLayer] = {}
        while True:
            planned = plan(rows, keeps_layout)
            most = largest_arena(generic.memory, percent, planned.program)
            if planned.memory.arena_size <= most:
                found = tuple(layers.values())
                return planned, ScratchUse(percent, arena, most, found, keeps_layout)
            above = layers_above(planned.program, planned.memory, most, rows)
            if not above:
                break
            for call in above:
                size = scratch_bytes(planned.program, call)
                layers.setdefault(call.label, GenericLayer(call.label, size))
                rows |= set(call.rows)
    everything = tuple(
        layers.get(call.label, GenericLayer(call.label, None))
        for call in generic.program.calls
        if call.target == CPU and call.kernel
    )
    most = largest_arena(generic.memory, percent, generic.program)
    return generic, ScratchUse(percent, arena, most, everything, keeps_layout=True)


def layers_above(
    program: Program, plan: MemoryPlan, most: int, generic_rows: frozenset[int] = frozenset()
) -> list[KernelCall]:
    """Return the CPU layers that should take generic kernels, apart from `generic_rows`.

    These are the layers during which more bytes are alive than the limit, or, if fragmentation
    enlarges the arena, the layer with the most scratch.
    """
    candidates = {
        step: call
        for step, call in enumerate(program.calls)
        if call.target == CPU and call.kernel and call.rows and generic_rows.isdisjoint(call.rows)
    }
    alive = alive_bytes(program, plan)
    above = [call for step, call in candidates.items() if alive[step] > most]
    if above or not candidates:
        return above
    largest = max(candidates.values(), key=lambda call: scratch_bytes(program, call))
    return [largest] if scratch_bytes(program, largest) else []


def scratch_bytes(program: Program, call: KernelCall) -> int:
    """Return the bytes of a layer's scratch in the arena."""
    tensors = [program.tensors[name] for name in call.scratch]
    return sum(tensor.size for tensor in tensors if not tensor.pool)


def alive_bytes(program: Program, plan: MemoryPlan) -> list[int]:
    """Return the live bytes of the arena at each step.

    Memory that an in-place output reuses counts once.
    """
    alive = {
        item.name: item for item in tensor_lifetimes(program) if not program.tensors[item.name].pool
    }
    changes = [0] * (len(program.calls) + 1)
    for name, item in alive.items():
        changes[item.first] += item.size
        changes[item.last + 1] -= item.size
        owner = alive.get(plan.shared.get(name, ""))
        if owner is not None:
            first, last = max(item.first, owner.first), min(item.last, owner.last)
            if first <= last:  # while both are in use
                changes[first] -= item.size
                changes[last + 1] += item.size
    return list(accumulate(changes))[:-1]
