# SPDX-License-Identifier: Apache-2.0
"""`quantized.interpolation` (16-bit data, table of the result's dtype): linear interpolation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from umakit import tvm_api
from umakit.operators.drawing import Array, Settings, Tensor
from umakit.operators.drawings.families import elements
from umakit.operators.interface import Interface
from umakit.operators.kernels.calls import kernel_of_operands
from umakit.operators.kernels.loops import buffer, int32, kernel, loop, unflatten
from umakit.operators.parameters import Parameters
from umakit.operators.registry import IntegerOperator, Shapes, register

tirx = tvm_api.tirx


@dataclass(frozen=True)
class Interpolation(Parameters):
    """A function of each 16-bit element by linear interpolation between tabulated values.

    Attributes:
        step_bits: adjacent tabulated values belong to integers that are 2**step_bits apart.
    """

    operator: ClassVar[str] = "interpolation"

    step_bits: int


def _kernel(parameters: Interpolation, shapes: Shapes, dtypes: list[str]) -> tvm_api.PrimFunc:
    """Return the kernel (data, table, output) of linear interpolation in a table.

    Args:
        parameters: parameters of the operator.
        shapes, dtypes: shapes and dtypes of the 16-bit data and of the table.
    """
    shape = shapes[0]
    data = buffer("data", shape, dtypes[0])
    table = buffer("table", shapes[1], parameters.output_dtype)
    output = buffer("output", parameters.output_shape, parameters.output_dtype)
    least = 2**15 if dtypes[0] == "int16" else 0
    step = 1 << parameters.step_bits

    def one(i: tvm_api.PrimExpr) -> tvm_api.Stmt:
        place = int32(data[tuple(unflatten(i, shape))]) + int32(least)
        index, rest = place >> int32(parameters.step_bits), place & int32(step - 1)
        begin, end = (int32(table[at]) for at in (index, index + int32(1)))
        both = begin * (int32(step) - rest) + end * rest + int32(step >> 1)
        value = (both >> int32(parameters.step_bits)).astype(parameters.output_dtype)
        return tirx.BufferStore(output, value, unflatten(i, parameters.output_shape))

    return kernel([data, table, output], loop("i", math.prod(shape), one))


def _drawn(
    common: dict[str, Any], data: Tensor, settings: Settings, random: np.random.Generator
) -> tuple[Interpolation, list[Array]]:
    bits, (low, high) = int(settings["step_bits"]), common["clip"]
    table = random.integers(low, high + 1, (1 << (16 - bits)) + 1).astype(data.dtype)
    return Interpolation(**common, step_bits=bits), [table]


register(
    IntegerOperator(
        name="interpolation",
        parameters=Interpolation,
        kernel=kernel_of_operands(_kernel),
        drawing=elements(_drawn, dtype=("int16",), rounding=("even",), step_bits=(7, 6, 9, 12)),
        interface=Interface(operands={"data": "", "table": ""}, dtypes="int16", clips=False),
    )
)
