# SPDX-License-Identifier: Apache-2.0
"""Parts of elementwise kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from umakit.operators.kernels import loops as ir
from umakit.operators.numeric.requantize import requantize
from umakit.operators.parameters import CommonScaleParameters, Parameters
from umakit.operators.registry import Shapes
from umakit.tvm_api import Buffer, Expr, PrimExpr, PrimFunc, Stmt, int32, tirx

Combine = Callable[[PrimExpr, PrimExpr], tuple[Sequence[Stmt], PrimExpr]]
"""(left element, right element) -> statements, int32 value to rescale."""


def elementwise_kernel(
    parameters: Parameters,
    shapes: Shapes,
    dtypes: list[str],
    names: Sequence[str],
    one: Callable[..., Stmt],
    tables: int = 0,
    variable: str = "i",
) -> PrimFunc:
    """Return the kernel (operands, output) of an elementwise operator with broadcasting.

    Args:
        one: (output, indices, element of each operand, tables) -> statements that store a result.
        tables: number of operands, the last ones, that `one` gets as buffers.
        variable: name of the loop's variable in C.
    """
    operands = ir.buffers(names, shapes, dtypes)
    output = ir.buffer("output", parameters.output_shape, parameters.output_dtype)
    count = len(operands) - tables

    def at(i: PrimExpr) -> Stmt:
        place = ir.unflatten(i, parameters.output_shape)
        elements = [
            operand[tuple(broadcast(place, shape))]
            for operand, shape in zip(operands[:count], shapes[:count], strict=True)
        ]
        return one(output, place, *elements, *operands[count:])

    body = ir.loop(variable, math.prod(parameters.output_shape), at)
    return ir.kernel([*operands, output], body)


def binary_kernel(
    parameters: Parameters, shapes: Shapes, dtypes: list[str], combine: Combine, by: tuple[int, int]
) -> PrimFunc:
    """Return the kernel (left, right, output) of an operator that rescales a combined value.

    Args:
        combine: (left element, right element) -> statements and value.
        by: multiplier and shift of the combined value.
    """
    factor = (int32(by[0]), int32(by[1]))

    def one(output: Buffer, place: list[PrimExpr], left: PrimExpr, right: PrimExpr) -> Stmt:
        statements, value = combine(left, right)
        return ir.sequence(*statements, ir.store_rescaled(output, place, value, factor, parameters))

    names = ("left", "right")
    return elementwise_kernel(parameters, shapes, dtypes, names, one, variable="index")


def on_common_scale(
    parameters: CommonScaleParameters, left: Expr, right: Expr
) -> tuple[list[Stmt], tuple[Expr, Expr]]:
    """Return statements, and two elements as int32 at the common scale."""
    values, statements = [], []
    for name, element, zero_point, by, shift in zip(
        ("left", "right"), (left, right), parameters.zero_points, parameters.multipliers[:2],
        parameters.shifts[:2], strict=True,
    ):  # fmt: skip
        shifted = (int32(element) - int32(zero_point)) * int32(1 << parameters.left_shift)
        product = requantize(shifted, int32(by), int32(shift), parameters.arithmetic)
        part, value = ir.bound(f"scaled_{name}", product)
        statements += part
        values.append(value)
    return statements, (values[0], values[1])


def factor_by_sign(
    value: PrimExpr, multipliers: tuple[int, int], shifts: tuple[int, int]
) -> tuple[PrimExpr, PrimExpr]:
    """Return the first factor for values from 0 on, the second factor for negative values."""
    multiplier, shift = (
        tirx.Select(value < int32(0), int32(below), int32(above))
        for above, below in (multipliers, shifts)
    )
    return multiplier, shift


def broadcast(place: Sequence[PrimExpr], shape: Sequence[int]) -> list[PrimExpr]:
    """Return the indices into an operand for an index of the result; axes of one element repeat."""
    own = place[len(place) - len(shape) :]
    return [int32(0) if n == 1 else i for i, n in zip(own, shape, strict=True)]
