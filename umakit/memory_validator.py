# SPDX-License-Identifier: Apache-2.0
"""Checks every memory plan; shares no code with the planner.

It replays the program byte by byte: each tensor claims its bytes when it is written, and whenever
a step reads a tensor, all its bytes must still be its own. A plan that overlaps two live tensors
fails however its lifetimes were computed.
"""

from __future__ import annotations

import numpy as np

from umakit.errors import MemoryPlanError
from umakit.memory import MemoryPlan
from umakit.program import KernelCall, Program, Role


def validate_plan(program: Program, plan: MemoryPlan) -> None:
    """Prove that a plan keeps every tensor intact from its write to its last read.

    Raises:
        MemoryPlanError: a tensor without an offset, outside the arena or misaligned; two tensors
            of one step that overlap; a tensor that is overwritten before its last use.
    """
    planned = {
        name: tensor
        for name, tensor in program.tensors.items()
        if tensor.role in (Role.INTERMEDIATE, Role.SCRATCH)
    }
    for name, tensor in planned.items():
        offset = plan.offsets.get(name)
        if offset is None:
            raise MemoryPlanError("has no offset", where=f"tensor {name}")
        if offset < 0 or offset + tensor.size > plan.arena_size:
            raise MemoryPlanError(
                f"bytes {offset} to {offset + tensor.size} are outside the arena of "
                f"{plan.arena_size}",
                where=f"tensor {name}",
            )
        if offset % plan.alignment:
            raise MemoryPlanError(
                f"offset {offset} is no multiple of {plan.alignment}", where=f"tensor {name}"
            )
    for output, source in plan.shared.items():
        if plan.offsets.get(output) != plan.offsets.get(source):
            raise MemoryPlanError(
                f"takes over the memory of {source} but lies elsewhere", where=f"tensor {output}"
            )
    _replay(program, plan)


def _replay(program: Program, plan: MemoryPlan) -> None:
    nobody = -1
    owner = np.full(plan.arena_size, nobody, dtype=np.int64)
    numbers = {name: number for number, name in enumerate(program.tensors)}
    names = list(program.tensors)

    def span(name: str) -> slice:
        return slice(plan.offsets[name], plan.offsets[name] + program.tensors[name].size)

    def check(name: str, step: int, call: KernelCall) -> None:
        strangers = np.unique(owner[span(name)][owner[span(name)] != numbers[name]])
        if strangers.size:
            thief = names[strangers[0]] if strangers[0] != nobody else "nobody"
            raise MemoryPlanError(
                f"some of its bytes belong to {thief} at step {step} ({call.label})",
                where=f"tensor {name}",
            )

    for step, call in enumerate(program.calls):
        inputs = [name for name in call.inputs if name in plan.offsets]
        for name in inputs:
            check(name, step, call)
        written = [name for name in (*call.outputs, *call.scratch) if name in plan.offsets]
        for name in written:
            owner[span(name)] = numbers[name]
        # After the writes everything must still be in place, but for what may be overwritten.
        given_up = {name for name in inputs if _may_take_over(program, plan, call, name)}
        for name in (*(n for n in inputs if n not in given_up), *written):
            check(name, step, call)


def _may_take_over(program: Program, plan: MemoryPlan, call: KernelCall, source: str) -> bool:
    """Whether the call's output lies exactly on an input that its kernel may overwrite."""
    kernel = program.kernels.get(call.kernel)
    if kernel is None or len(call.outputs) != 1 or call.outputs[0] not in plan.offsets:
        return False
    output = call.outputs[0]
    if plan.shared.get(output) != source:
        return False
    positions = [position for position, name in enumerate(call.inputs) if name == source]
    return (
        plan.offsets[source] == plan.offsets[output]
        and program.tensors[source].size == program.tensors[output].size
        and len(positions) == 1
        and positions[0] in kernel.in_place
    )
