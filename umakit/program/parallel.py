# SPDX-License-Identifier: Apache-2.0
"""CPU kernels in parts for concurrent execution by the caller's threads."""

from __future__ import annotations

from dataclasses import replace

from umakit.lower import Kernel
from umakit.lower.parts import choose_parts, scratch_step
from umakit.partition.report import CPU
from umakit.program.program import KernelCall, Program


def in_parts(program: Program, most: int) -> Program:
    """Split the kernels of a program into parts where possible and worthwhile.

    Each part has its own scratch.

    Args:
        program: the program.
        most: maximum number of parts of a kernel; 0 leaves the program unchanged.
    """
    if most == 0:
        return program
    kernels, tensors = dict(program.kernels), dict(program.tensors)
    for call in program.calls:
        if not call.kernel or call.target != CPU:
            continue
        kernel = _in_parts(program.kernels[call.kernel], call, most)
        kernels[call.kernel] = kernel
        if kernel.parts is None:
            continue
        for name, parameter in zip(call.scratch, kernel.scratch, strict=True):
            elements = kernel.parts.count * scratch_step(parameter.elements, parameter.dtype)
            tensors[name] = replace(tensors[name], shape=(elements,))
    return replace(program, kernels=kernels, tensors=tensors, parts=most)


def _in_parts(kernel: Kernel, call: KernelCall, most: int) -> Kernel:
    """Return the kernel of a call split into parts, or unchanged."""
    if kernel.allocating_body is None or kernel.returns_status or kernel.calls_driver:
        return kernel
    shared = [each.variable for each in kernel.outputs]
    shared += [kernel.inputs[number].variable for number in kernel.in_place]
    parts = choose_parts(kernel.allocating_body, shared, most, call.macs)
    return replace(kernel, parts=parts)
