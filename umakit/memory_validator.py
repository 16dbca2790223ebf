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
from umakit.program import Program, Role


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
    _replay(program, plan)


def _replay(program: Program, plan: MemoryPlan) -> None:
    nobody = -1
    owner = np.full(plan.arena_size, nobody, dtype=np.int64)
    numbers = {name: number for number, name in enumerate(program.tensors)}
    names = list(program.tensors)
    for step, call in enumerate(program.calls):
        spans = {
            name: slice(plan.offsets[name], plan.offsets[name] + program.tensors[name].size)
            for name in call.arguments
            if name in plan.offsets
        }
        for name in (*call.outputs, *call.scratch):
            if name in spans:
                owner[spans[name]] = numbers[name]
        for name, span in spans.items():
            strangers = np.unique(owner[span][owner[span] != numbers[name]])
            if strangers.size:
                thief = names[strangers[0]] if strangers[0] != nobody else "nobody"
                raise MemoryPlanError(
                    f"some of its bytes belong to {thief} at step {step} ({call.label})",
                    where=f"tensor {name}",
                )
