# SPDX-License-Identifier: Apache-2.0
"""Overlap of steps on the CPU with steps on accelerators.

A driver with a queue may return before the accelerator is done; the last driver call of a kernel
waits for completion. If independent CPU steps follow, the waiting call moves behind these steps,
and the layer's tensors stay alive until then. Reordering of steps creates more such opportunities.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from umakit.lower.driver_calls import DriverCall, DriverCallKind
from umakit.lower.parts import choose_parts, scratch_step
from umakit.partition.report import CPU
from umakit.program.live_sets import live_set_bound
from umakit.program.program import Completion, KernelCall, Program, tensor_lifetimes
from umakit.registration.backend import Backend

Overlap = Literal["free", "always", "never"]
"""When steps on the CPU overlap with accelerators: if it costs no memory, always or never."""


def overlap_with_cpu(
    program: Program, backends: Mapping[str, Backend], when: Overlap = "free"
) -> Program:
    """Return the same steps, possibly reordered, of which CPU steps overlap with accelerators.

    Overlapping steps have a `completion`; `free` forbids a larger lower bound of the memory.
    """
    queued = {name for name, backend in backends.items() if backend.completion is not None}
    if when == "never" or not queued or all(call.target in queued for call in program.calls):
        return program
    reordered = replace(program, calls=tuple(_started_early(program.calls, queued)))
    candidates = [_with_late_completions(each) for each in (reordered, program)]
    for candidate in candidates:
        if when == "always" or _least_memory(candidate) <= _least_memory(program):
            return candidate
    return program


def _least_memory(program: Program) -> int:
    """Return the lower bound of the arena in bytes, without tensors in scratchpads."""
    lifetimes = tensor_lifetimes(program)
    return live_set_bound([item for item in lifetimes if not program.tensors[item.name].pool])


def _started_early(calls: Sequence[KernelCall], queued: Collection[str]) -> Iterable[KernelCall]:
    """Yield steps with accelerators with a queue early, each followed by independent CPU steps."""
    left = list(calls)
    made = {name for call in calls for name in call.outputs}
    while left:
        ready = [call for call in left if not made.intersection(call.inputs)]
        chosen = next((call for call in ready if call.target in queued), ready[0])
        order = [chosen]
        if chosen.target in queued:
            order += [call for call in ready if call.target == CPU]
        for call in order:
            left.remove(call)
            yield call
        made -= {name for call in order for name in call.outputs}


def _with_late_completions(program: Program) -> Program:
    """Move completions behind the following independent steps."""
    kernels = dict(program.kernels)
    calls = list(program.calls)
    for step, call in enumerate(calls):
        finish = kernels[call.kernel].body[-1] if call.kernel else None
        if not isinstance(finish, DriverCall) or finish.kind is not DriverCallKind.FINISH:
            continue
        independent = _independent(program, step)
        if not independent:
            continue
        started = kernels[call.kernel].without([finish], f"{call.kernel}_started")
        kernels[started.name] = started
        calls[step] = replace(
            call, kernel=started.name, completion=Completion(finish, after=independent)
        )
    used = {call.kernel for call in calls}
    return replace(
        program,
        calls=tuple(calls),
        kernels={name: kernel for name, kernel in kernels.items() if name in used},
    )


def _independent(program: Program, step: int) -> int:
    """Return the number of following CPU steps that are independent of a step and cannot fail."""
    outputs = set(program.calls[step].outputs)
    count = 0
    for call in program.calls[step + 1 :]:
        kernel = program.kernels.get(call.kernel)
        if call.target != CPU or outputs.intersection(call.inputs):
            break
        if kernel is not None and kernel.returns_status:
            break
        count += 1
    return count


def in_parts(program: Program, most: int) -> Program:
    """Split kernels into at most so many parts with scratch of their own; 0 splits none."""
    if most == 0:
        return program
    kernels, tensors = dict(program.kernels), dict(program.tensors)
    for call in program.calls:
        if not call.kernel or call.target != CPU:
            continue
        kernel = program.kernels[call.kernel]
        if kernel.allocating_body is None or kernel.returns_status or kernel.calls_driver:
            continue
        shared = [each.variable for each in kernel.outputs]
        shared += [kernel.inputs[number].variable for number in kernel.in_place]
        parts = choose_parts(kernel.allocating_body, shared, most, call.macs)
        kernels[call.kernel] = replace(kernel, parts=parts)
        if parts is None:
            continue
        for name, parameter in zip(call.scratch, kernel.scratch, strict=True):
            elements = parts.count * scratch_step(parameter.elements, parameter.dtype)
            tensors[name] = replace(tensors[name], shape=(elements,))
    return replace(program, kernels=kernels, tensors=tensors, parts=most)
