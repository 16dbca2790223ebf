# SPDX-License-Identifier: Apache-2.0
"""`quantized.divide` (left, right), and DIV of TensorFlow Lite.

The source is kernels/internal/reference/div.h with TensorFlow Lite Micro's div.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.drawings import pairs
from umakit.operators.interface import PAIR, Interface
from umakit.operators.kernels import loops as ir
from umakit.operators.kernels.elementwise import elementwise_kernel
from umakit.operators.numeric.fixed_point import quantize_multiplier
from umakit.operators.numeric.requantize import header_call
from umakit.operators.parameters import Pair, Parameters
from umakit.operators.registry import Shapes, register
from umakit.operators.tflite import TfliteNode, converts
from umakit.operators.tflite_integers import result_fields, scale_of
from umakit.tvm_api import Buffer, PrimExpr, Stmt, int32, int64

relax, tirx = tvm_api.relax, tvm_api.tirx

LEAST_HEADROOM = 23
"""Bits that a difference of 8-bit integers can be shifted left at least."""

SHIFTS = (8, 9, 12, 16, 20, LEAST_HEADROOM)
"""Drawn shifts of quotient factors; `convert` accepts no others for 8-bit operands."""


@dataclass(frozen=True)
class Divide(Parameters):
    """The quotient of two tensors whose shapes broadcast; a divisor of 0 counts as 1 LSB.

    Attributes:
        zero_points: zero points of the operands.
        multiplier, shift: multiplier and shift of the quotient.
    """

    operator: ClassVar[str] = "divide"

    zero_points: Pair
    multiplier: int
    shift: int


@converts("DIV", "float32", "int8", same_dtype=True)
def convert(node: TfliteNode) -> tvm_api.Expr:
    """DIV: float32 directly, int8 with the reciprocal of the divisor in fixed point."""
    activation = node.options("DivOptions").FusedActivationFunction()
    values = node.values()
    if node.tensor(0).dtype == "float32":
        quotient = node.emit(relax.op.divide(*values))
        return node.quantized(quotient, activation)
    left, right = map(scale_of, node.tensors)
    result = scale_of(node.result)
    # In float64, as the released runtime computes, though div.cc reads like float32.
    factor = float(left.scale) / (float(right.scale) * float(result.scale))
    multiplier, shift = quantize_multiplier(factor)
    if shift > LEAST_HEADROOM:
        raise ModelError("the result's scale is too small for the operands'")
    if shift < right.magnitude.bit_length() - 1:
        raise ModelError(
            f"TensorFlow Lite's kernel yields other numbers than quotients where a left scale "
            f"divided by right and result's, {factor:.4g}, is below "
            f"{2 ** (right.magnitude.bit_length() - 2)}: it shifts by more than 31 bits",
            fix="leave the operator in float",
        )
    parameters = Divide(
        **result_fields(node, activation),
        zero_points=(left.zero_point, right.zero_point),
        multiplier=multiplier,
        shift=shift,
    )
    return parameters.call(values, None)


def _kernel(parameters: Divide, shapes: Shapes, dtypes: list[str]) -> tvm_api.PrimFunc:
    def one(output: Buffer, at: list[PrimExpr], *pair: PrimExpr) -> Stmt:
        elements = [
            int32(element) - int32(zero_point)
            for element, zero_point in zip(pair, parameters.zero_points, strict=True)
        ]
        # In memory: TVM would put the formulas of variables in their place again and again.
        local = tirx.decl_buffer([4], "int32", "parts", scope="local")
        names = ("value", "magnitude", "headroom", "quotient")
        value, magnitude, headroom, quotient = (local[int32(n)] for n in range(len(names)))
        given, divisor = tirx.Var("given", "int32"), tirx.Var("divisor", "int32")
        zero, one_step = int32(0), int32(1)
        # The leading sign bits of a number are its leading zeros less one; of a negative number
        # the leading zeros of its complement.
        folded = tirx.Select(value < zero, int32(-1) - value, value)
        right = int32(31 - parameters.shift) - header_call("leading_zeros", magnitude) + headroom
        scaled = tirx.Select(
            right < one_step,
            quotient,
            header_call(
                "divide_by_power_of_two", quotient, tirx.max(tirx.min(right, int32(32)), one_step)
            ),
        )
        # In 64 bits: only 0 and -1 have a headroom of 31 bits, and 2**31 is no int32.
        stores = [
            tirx.Select(divisor < zero, zero - given, given),
            tirx.max(tirx.max(divisor, zero - divisor), one_step),
            header_call("leading_zeros", folded) - one_step,
            header_call(
                "high_product",
                header_call("high_product", int32(int64(value) << int64(headroom)),
                            header_call("reciprocal", magnitude)),
                int32(parameters.multiplier),
            ),
        ]  # fmt: skip
        return ir.sequence(
            tirx.AllocBuffer(local),
            tirx.Bind(given, elements[0]),
            tirx.Bind(divisor, elements[1]),
            *(tirx.BufferStore(local, item, [int32(n)]) for n, item in enumerate(stores)),
            ir.store_shifted(output, at, scaled, parameters.output_zero_point, parameters),
        )

    return elementwise_kernel(parameters, shapes, dtypes, ("left", "right"), one)


register(
    parameters=Divide,
    kernel_of_operands=_kernel,
    drawing=pairs.quotient(Divide, SHIFTS),
    interface=Interface(operands=PAIR, broadcasts=False),
)
