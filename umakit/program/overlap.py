# SPDX-License-Identifier: Apache-2.0
"""Between the fourth and fifth stage: the CPU works while an accelerator does.

A driver with a queue may return before the accelerator is done; the last call of its kernels waits
for that. Where steps on the CPU follow that need nothing of it, the wait moves behind them, and
tensors of the layer stay alive until then. Steps are put into an order that has more such places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from umakit import tvm_api
from umakit.backend.base import UMABackend
from umakit.lower import Kernel
from umakit.memory import live_set_bound, tensor_lifetimes
from umakit.partition.report import CPU
from umakit.program.program import KernelCall, Program

Overlap = Literal["free", "always", "never"]
"""Whether steps on the CPU run beside accelerators: where that costs no memory, or even if."""


def overlap_with_cpu(
    program: Program, backends: Mapping[str, UMABackend], when: Overlap = "free"
) -> Program:
    """Let steps on the CPU run beside accelerators.

    Args:
        program: whose kernels wait for their accelerator themselves.
        backends: by target, with what they registered by `_register_completion`.
        when: `free` if the least memory of the network does not grow, `always` or `never`.

    Returns:
        The same steps, perhaps in another order; some with `KernelCall.beside` and kernels that
        do not wait.
    """
    waits = {name: b.completion for name, b in backends.items() if b.completion is not None}
    if when == "never" or not waits or all(call.target in waits for call in program.calls):
        return program
    reordered = replace(program, calls=tuple(_started_early(program.calls, waits)))
    candidates = [_with_waits(each, waits) for each in (reordered, program)]
    for candidate in candidates:
        if when == "always" or _least_memory(candidate) <= _least_memory(program):
            return candidate
    return program


def _least_memory(program: Program) -> int:
    """Bytes outside of scratchpads, which the CPU does not use."""
    lifetimes = tensor_lifetimes(program)
    return live_set_bound([item for item in lifetimes if not program.tensors[item.name].pool])


def _started_early(calls: Sequence[KernelCall], waits: Mapping[str, str]) -> Iterable[KernelCall]:
    """Steps with an accelerator's as early as can be, and behind each what the CPU can do
    meanwhile."""
    left = list(calls)
    made = {name for call in calls for name in call.outputs}
    while left:
        ready = [call for call in left if not made.intersection(call.inputs)]
        chosen = next((call for call in ready if call.target in waits), ready[0])
        order = [chosen]
        if chosen.target in waits:
            order += [call for call in ready if call.target == CPU]
        for call in order:
            left.remove(call)
            yield call
        made -= {name for call in order for name in call.outputs}


def _with_waits(program: Program, waits: Mapping[str, str]) -> Program:
    """The program with the waits of its kernels behind the steps that can do without."""
    kernels = dict(program.kernels)
    calls = list(program.calls)
    for step, call in enumerate(calls):
        if call.target not in waits:
            continue
        beside = _independent(program, step)
        waiting = _without_wait(kernels[call.kernel], waits[call.target])
        if beside and waiting is not None:
            kernels[waiting.name] = waiting
            calls[step] = replace(call, kernel=waiting.name, beside=beside)
    used = {call.kernel for call in calls}
    return replace(
        program,
        calls=tuple(calls),
        kernels={name: kernel for name, kernel in kernels.items() if name in used},
    )


def _independent(program: Program, step: int) -> int:
    """How many steps on the CPU follow that read nothing of a step and cannot fail."""
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


def _without_wait(kernel: Kernel, function: str) -> Kernel | None:
    """A kernel that does not wait for its accelerator; None if it does not end with that."""
    *others, wait, check = kernel.statements
    if not isinstance(wait, tvm_api.tirx.Bind) or _called(wait.value) != function:
        return None
    del check
    return replace(kernel, name=f"{kernel.name}_started", statements=tuple(others))


def _called(value: Any) -> str:
    """Name of the C function that an expression calls; empty if it is no such call."""
    if isinstance(value, tvm_api.Call) and str(getattr(value.op, "name", "")).endswith(
        "call_extern"
    ):
        return str(value.args[0].value)
    return ""
