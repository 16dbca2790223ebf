# SPDX-License-Identifier: Apache-2.0
"""The steps of a compiled program as input of network bounds: their reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from umakit.machine.bounds import CycleBound
from umakit.machine.bounds.network import Read, Step
from umakit.machine.layer import Layer
from umakit.patterns import Composite
from umakit.program.program import KernelCall, Program, Role, Tensor

READ_WHOLE = (
    "QAdd QSubtract QMultiply QDivide QSquaredDifference QLeakyRelu QPrelu QLookup QSigmoidLookup "
    "QRequantize QQuantize QSoftmax QSoftmaxLookup QLogSoftmax QProbabilities QL2Normalization "
    "QBatchMatmul QConcatenation QGlobalAveragePool QMean QSum QArgMax QArgMin"
).split()
"""Names of patterns of operators that need each byte of each operand. For operators that are
neither here nor a `Layer`, no operand counts."""


def steps_of(program: Program) -> list[Step]:
    """Return the steps of a program in order, with the bytes that each needs."""
    return [_step(program, call) for call in program.calls]


def _step(program: Program, call: KernelCall) -> Step:
    composite = program.kernels[call.kernel].composite if call.kernel else None
    operands = [tensor for tensor, _ in program.operands_of(call)]
    constants = {each.name: each.size for each in operands if each.role is Role.CONSTANT}
    tensors = [each for each in operands if each.role is not Role.CONSTANT]
    stored = sum(constants.values())
    reads, weights, parameters = _needed(composite, tensors, stored)
    return Step(
        call.label, call.target, call.macs, tuple(reads),
        {tensor.name: tensor.size for tensor, _ in program.results_of(call)},
        weights, parameters, constants,
    )  # fmt: skip


def _needed(
    composite: Composite | None, tensors: Sequence[Tensor], stored: int
) -> tuple[list[Read], int, int]:
    """Return a step's reads, and the fewest bytes of weights and of parameters.

    Constants are those of the network, without padding to blocks of the accelerator.
    """
    nothing = [Read(each.name, each.size, 0, "") for each in tensors]
    if composite is None:
        return nothing, 0, 0
    if type(composite).__name__ in READ_WHOLE:
        return [Read(each.name, each.size, each.size, "") for each in tensors], 0, 0
    try:
        layer = Layer.of(composite)
    except TypeError:
        return nothing, 0, 0
    if len(tensors) != 1 + layer.adds:
        return nothing, 0, 0
    reads = [
        Read(each.name, each.size, each.size * layer.compulsory[role] // whole, role)
        for each, role, whole in zip(
            tensors, ("data", "addend"), (layer.data_bytes, layer.result_bytes), strict=False
        )
    ]
    if layer.is_pool:
        return reads, 0, 0
    weights = min(layer.compulsory["weights"], stored)
    return reads, weights, min(layer.compulsory["parameters"], stored - weights)


def known_bytes(bound: CycleBound, steps: Sequence[Step], where: str) -> CycleBound:
    """Return the bound of an accelerator's layers, without bytes if a layer's are unknown."""
    count = sum(step.where == where and is_unknown(step) for step in steps)
    if not count:
        return bound
    why = f"bytes: nothing says what {count} of its layers need of their operands"
    return replace(bound, memory=None, bytes=None, unknown=(*bound.unknown, why))


def is_unknown(step: Step) -> bool:
    """Whether the needed bytes of an operand of a step are unknown."""
    return any(read.size and not read.bytes for read in step.reads)
