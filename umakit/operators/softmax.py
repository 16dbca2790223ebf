# SPDX-License-Identifier: Apache-2.0
"""`quantized.softmax` (data [rows, n], table int32[256]): softmax of 8 bits over the last axis.

Exponentials come from a table, the reciprocal from Newton's method. The arithmetic is from
gemmlowp's fixed-point functions (`GetReciprocal`, `one_over_one_plus_x_for_x_in_0_1`) in TensorFlow
Lite's integer softmax; scales are from `softmax_common.cc`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.derivation.expressions import check_last_axis, has_scale
from umakit.operators.drawing import NotDrawable, Random, Settings, Tensor
from umakit.operators.drawings.families import Fields, MadeOfOne, elements
from umakit.operators.interface import Interface, rows
from umakit.operators.islands import Island
from umakit.operators.kernels import loops as ir
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.numeric.requantize import header_call
from umakit.operators.parameters import Parameters
from umakit.operators.registry import Recognition, Shapes, register
from umakit.operators.tables.sixteen_bits import exponential_table, fixed_point_of_differences
from umakit.operators.tensors import NoIntegerForm
from umakit.operators.tflite import QUANTIZED, TfliteNode, converts
from umakit.tvm_api import PrimExpr, int32, tirx

SUM_INTEGER_BITS = 12
"""Integer bits of the sum of exponentials (`kAccumulationIntegerBits`)."""

MOST_TERMS = 2**SUM_INTEGER_BITS - 1
"""Elements of a row: the sum of one more that are equal is 2**31, which overflows the reference's
int32 (`sum_of_exps` in `reference/softmax.h`), so that it defines no result."""


RESULT_BITS = {"int8": 8, "uint8": 8, "int16": 16}
"""Fractional bits of a result."""


@dataclass(frozen=True)
class Softmax(Parameters):
    """Softmax over the last axis, with a table of exponentials (`tables.exponentials`).

    Attributes:
        multiplier, shift: factor of differences to the largest element of a row; products have 26
            fractional bits, and the table has their exponentials.
        diff_min: least difference with an exponential other than 0.
    """

    operator: ClassVar[str] = "softmax"

    multiplier: int = 0
    shift: int = 0
    diff_min: int = 0


def _derive(island: Island) -> tvm_api.Expr:
    result, source = island.result, island.operand()
    check_last_axis(result)
    low, _ = result.scale.limits
    scale = 1 / 65536 if result.scale.dtype == "int16" else 1 / 256
    if not has_scale(result.scale, scale) or result.scale.zero_point != low:
        raise NoIntegerForm(f"softmax's result has a scale other than 1/{1 / scale:.0f}")
    if result.shape[-1] > MOST_TERMS:
        raise NoIntegerForm(
            f"softmax is over {result.shape[-1]} elements: TensorFlow Lite's sum of exponentials "
            f"overflows where more than {MOST_TERMS} are equal"
        )
    try:
        table = exponential_table(float(source.scale.scale))
        multiplier, shift, radius = fixed_point_of_differences(float(source.scale.scale))
    except ValueError as error:
        raise NoIntegerForm(str(error)) from None
    parameters = Softmax(
        **result.common(island.arithmetic), multiplier=multiplier, shift=shift, diff_min=-radius
    )
    return parameters.call([source.integers, tvm_api.relax.const(table)], result.span)


def _kernel(parameters: Softmax, shapes: Shapes, dtypes: list[str]) -> tvm_api.PrimFunc:
    """Return the kernel (data, table, output) of a softmax over the last axis."""
    data_shape, data_dtype = shapes[0], dtypes[0]
    *outer, length = data_shape
    data = ir.buffer("data", data_shape, data_dtype)
    table = ir.buffer("table", [256], "int32")
    output = ir.buffer("output", parameters.output_shape, parameters.output_dtype)
    largest = tirx.decl_buffer([1], data_dtype, "largest", scope="local")
    total, zero = ir.accumulators(1), int32(0)
    bits = RESULT_BITS[parameters.output_dtype]

    def row(number: PrimExpr) -> tvm_api.Stmt:
        def place(i: PrimExpr) -> list[PrimExpr]:
            return [*ir.unflatten(number, outer), i]

        def exponential(i: PrimExpr) -> PrimExpr:
            return table[int32(largest[zero]) - int32(data[tuple(place(i))])]

        def rounded(i: PrimExpr) -> PrimExpr:
            """An exponential with the fractional bits of the sum."""
            return header_call("divide_by_power_of_two", exponential(i), SUM_INTEGER_BITS)

        reciprocal, shift = tirx.Var("reciprocal", "int32"), tirx.Var("shift", "int32")

        def store(i: PrimExpr) -> tvm_api.Stmt:
            product = header_call("high_product", reciprocal, exponential(i))
            # A shift above 31, for a sum of exponentials of 512 or more and stored 8 bits,
            # makes 0 of 32 bits; the reference ends the program there.
            inside = header_call("divide_by_power_of_two", product, tirx.min(shift, int32(31)))
            statements, probability = ir.bound(
                "probability", tirx.Select(shift > int32(31), int32(0), inside)
            )
            return ir.sequence(*statements, ir.store_shifted(
                output, place(i), probability, parameters.output_zero_point, parameters
            ))  # fmt: skip

        return ir.sequence(
            tirx.AllocBuffer(largest),
            ir.set_to(largest, zero, data[tuple(place(zero))]),
            ir.loop("i", length, lambda i: ir.set_to(
                largest, zero, tirx.max(largest[zero], data[tuple(place(i))])
            )),
            tirx.AllocBuffer(total),
            ir.set_to(total, zero, zero),
            ir.loop("i", length, lambda i: ir.add_to(total, zero, rounded(i))),
            tirx.Bind(reciprocal, header_call("reciprocal", int32(total[zero]))),
            tirx.Bind(shift, int32(SUM_INTEGER_BITS + 31 - bits) - header_call(
                "leading_zeros", int32(total[zero])
            )),
            ir.loop("i", length, store),
        )  # fmt: skip

    body = ir.loop("row", math.prod(outer), row)
    # The table has a value for each distance from the largest element.
    return ir.kernel([data, table, output], body, inside=True)


def _drawn(common: Fields, data: Tensor, settings: Settings, random: Random) -> MadeOfOne:
    if data.shape[-1] > MOST_TERMS:
        raise NotDrawable("a sum of more exponentials than its integer bits hold")
    scale = float(np.exp2(random.uniform(-9, 0)))
    multiplier, shift, radius = fixed_point_of_differences(scale)
    parameters = Softmax(**common, multiplier=multiplier, shift=shift, diff_min=-radius)
    return parameters, [exponential_table(scale)]


def _least(data: Tensor, zero_point: int) -> int:
    return int(np.iinfo(data.dtype).min)


register(
    parameters=Softmax,
    kernel_of_operands=_kernel,
    recognitions=(Recognition(("nn.softmax",), _derive, (Arithmetic.TFLM,)),),
    takes_clip=True,
    drawing=elements(
        _drawn, result=_least, dtype=("int8", "uint8"), rounding=("tflm",), clip=("none",)
    ),
    interface=Interface(operands={"data": "", "exponentials": "int32"}, sizes=rows),
)


INT16_RESULT = ("int8", "int16")
"""Only the result of a softmax of 8 bits has 16 that are not symmetric."""


@converts("SOFTMAX", "float32", *QUANTIZED, INT16_RESULT, asymmetric=(INT16_RESULT,))
def convert(node: TfliteNode) -> tvm_api.Expr:
    """SOFTMAX over the last axis, with a factor of 1."""
    beta = node.options("SoftmaxOptions").Beta()
    if beta != 1.0:
        raise ModelError(f"its beta is {beta}, only 1 is supported")
    return node.imported()
