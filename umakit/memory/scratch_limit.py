# SPDX-License-Identifier: Apache-2.0
"""The limit of the arena of an export for a CPU, next to that of an export for any.

Kernels for a CPU pad rows and pack operands in scratch, and may not write over their inputs as
those for any CPU do. Where the arena would pass the limit, kernels take their form for any CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Protocol, TypeVar

from umakit.memory.limits import SMALL_SCRATCH
from umakit.memory.plan import GenericLayer, MemoryPlan, ScratchUse
from umakit.partition.report import CPU
from umakit.program.lifetimes import live_set_bound, tensor_lifetimes
from umakit.program.program import KernelCall, Program, Role


class Planned(Protocol):
    """A network with its memory plan."""

    @property
    def program(self) -> Program:
        """Its steps, kernels and tensors."""

    @property
    def memory(self) -> MemoryPlan:
        """The place of each tensor."""


PlannedT = TypeVar("PlannedT", bound=Planned)


def largest_arena(generic: MemoryPlan, percent: int, program: Program) -> int:
    """Return the largest arena in bytes that an export for a CPU may have.

    Copies in another layout are not scratch, so that only a limit of 0 forbids them.

    Args:
        generic: memory plan of the export for any CPU.
        percent: percent above its live-set bound, or above that of `program` without scratch if
            this is larger, but at least `SMALL_SCRATCH`; 0 allows no more than its arena.
        program: the network for the CPU.
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
    generic: PlannedT, percent: int, plan: Callable[[frozenset[int], bool], PlannedT]
) -> tuple[PlannedT, ScratchUse]:
    """Return a network for a CPU whose arena is within the limit.

    First kernels of layers above the limit take their form for any CPU. If that is not enough, the
    network also keeps its layout, which needs no copies in another one. What then remains is the
    network for any CPU, which is within the limit.

    Args:
        generic: the network for any CPU.
        percent: the limit, as in `largest_arena`.
        plan: returns the network for the CPU from rows of its offload report whose kernels are
            those for any CPU, and whether it keeps its layout.
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
    """Return the layers on the CPU whose kernels are to take their form for any CPU.

    These are the layers during which more bytes are alive than the limit. If there are none, the
    arena is too large because of where tensors lie, and it is the layer with the most scratch.

    Args:
        program: the network for the CPU.
        plan: its memory plan, whose arena is above the limit.
        most: largest arena in bytes.
        generic_rows: rows of the offload report whose kernels have this form.
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
    """Return the bytes of the arena that are in use during each step.

    Memory that an output takes over from an input counts once.
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
