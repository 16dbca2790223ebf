# SPDX-License-Identifier: Apache-2.0
"""`quantized.log_softmax` (data [..., n], exponentials and differences int32[256]), LOG_SOFTMAX.

The source is kernels/internal/reference/log_softmax.h of TensorFlow Lite, with
`log_x_for_x_greater_than_or_equal_to_1_impl` of kernels/internal/common.h.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.drawing import Array, NotDrawable, Random, Settings, Tensor
from umakit.operators.drawings.families import Fields, MadeOfOne, elements
from umakit.operators.interface import Interface, rows
from umakit.operators.kernels import loops as ir
from umakit.operators.numeric import fixed_point
from umakit.operators.numeric.requantize import header_call, requantize
from umakit.operators.parameters import Parameters
from umakit.operators.registry import Shapes, register
from umakit.operators.tables.sixteen_bits import exponential_table
from umakit.operators.tflite import TfliteNode, converts
from umakit.operators.tflite_integers import as_refusals, result_fields, scale_of, smaller_than_one
from umakit.tvm_api import PrimExpr, Stmt, int32, int64

relax, tirx = tvm_api.relax, tvm_api.tirx

INTEGER_BITS, SUM_BITS, RESULT_BITS = 5, 12, 4
"""Integer bits of differences and logarithms, of sums of exponentials, and of the result."""

FRACTION = 31 - INTEGER_BITS
MOST_TERMS = 2**SUM_BITS - 1
"""Elements of a row: the reference's int32 does not hold the sum of one more that are equal."""

LOG_2, SQRT_HALF, FOURTH_ROOT_OF_HALF = 1488522236, 1518500250, 1805811301
ALPHA_N, ALPHA_D, ALPHA_I, ALPHA_F = 117049297, 127690142, 1057819769, 638450708
"""With 31 fractional bits: coefficients of a quotient of polynomials near log(x)."""

POWER_FRACTION, QUARTER = 25, 1 << 23
"""Fractional bits of powers of two, and a quarter with these."""


@dataclass(frozen=True)
class LogSoftmax(Parameters):
    """The logarithm of softmax over the last axis, with scale 1/16 and zero point 127.

    Attributes:
        least: smallest difference to the largest element that counts in the sum.
        multiplier, shift: factor from logarithms in fixed point to integers of the data's scale.
    """

    operator: ClassVar[str] = "log_softmax"

    least: int
    multiplier: int
    shift: int


@converts("LOG_SOFTMAX", "float32", "int8")
def convert(node: TfliteNode) -> tvm_api.Expr:
    """LOG_SOFTMAX: float32 directly, int8 in fixed point."""
    value, shape = node.value(0), node.shape(0)
    if node.tensor(0).dtype == "float32":
        return relax.op.nn.log_softmax(value, -1)
    source, result = map(scale_of, (node.tensor(0), node.result))
    if (float(result.scale), result.zero_point) != (1 / 16, 127):
        raise ModelError("its result has another scale than 1/16 or another zero point than 127")
    if shape[-1] > MOST_TERMS:
        raise ModelError(f"it normalizes {shape[-1]} elements, more than {MOST_TERMS}")
    parameters, tables = _in_fixed_point(result_fields(node), float(source.scale))
    return parameters.call([value, *(relax.const(table) for table in tables)], None)


def _in_fixed_point(common: Mapping[str, Any], scale: float) -> tuple[LogSoftmax, list[Array]]:
    """Return the parameters and the tables for a scale of the data.

    Raises:
        ModelError: the fixed point does not hold the scale.
    """
    multiplier, shift = fixed_point.quantize_multiplier(min(scale * 2.0**FRACTION, 2.0**31 - 1.0))
    if shift < 1:
        raise ModelError("its input's scale is below the smallest of its fixed point")
    radius = math.floor((2**INTEGER_BITS - 1) * 2.0**FRACTION / 2.0**shift)
    back = smaller_than_one(2.0 ** (31 - shift) / multiplier, "the inverse of its input's scale")
    with as_refusals():
        exponentials = exponential_table(scale)
    terms = [fixed_point.shift_right_rounding(int(item), SUM_BITS) for item in exponentials]
    differences = [
        fixed_point.high_product(-d * 2**shift, multiplier) if d <= radius else 0
        for d in range(256)
    ]
    parameters = LogSoftmax(**common, least=-radius, multiplier=back[0], shift=back[1])
    return parameters, [np.array(table, np.int32) for table in (terms, differences)]


def _kernel(parameters: LogSoftmax, shapes: Shapes, dtypes: list[str]) -> tvm_api.PrimFunc:
    *outer, length = shapes[0]
    data = ir.buffer("data", shapes[0], dtypes[0])
    exponentials, differences = (
        ir.buffer(name, [256], "int32") for name in ("exponentials", "differences")
    )
    output = ir.buffer("output", parameters.output_shape, parameters.output_dtype)
    largest = tirx.decl_buffer([1], dtypes[0], "largest", scope="local")
    total, zero, (low, high) = ir.accumulators(1), int32(0), parameters.clip

    def row(number: PrimExpr) -> Stmt:
        def element(i: PrimExpr) -> PrimExpr:
            return data[(*ir.unflatten(number, outer), i)]

        def distance(i: PrimExpr) -> PrimExpr:
            return int32(largest[zero]) - int32(element(i))

        statements, logarithm, limit = _logarithm(parameters, ir.total_of(total, zero))

        def store(i: PrimExpr) -> Stmt:
            difference = int64(differences[distance(i)]) - int64(logarithm)
            places = FRACTION - RESULT_BITS
            rounded = header_call(
                "divide_by_power_of_two", header_call("saturate", difference), places
            )
            inside = header_call("add_and_clamp", rounded, parameters.output_zero_point, low, high)
            value = tirx.Select(zero - distance(i) > limit, inside, int32(low))
            place = [*ir.unflatten(number, outer), i]
            return tirx.BufferStore(output, value.astype(parameters.output_dtype), place)

        return ir.sequence(
            tirx.AllocBuffer(largest),
            ir.set_to(largest, zero, element(zero)),
            ir.loop("i", length, lambda i: ir.set_to(
                largest, zero, tirx.max(largest[zero], element(i))
            )),
            tirx.AllocBuffer(total),
            ir.set_to(total, zero, zero),
            ir.loop("i", length, lambda i: ir.add_to(total, zero, exponentials[distance(i)])),
            *statements,
            ir.loop("i", length, store),
        )  # fmt: skip

    body = ir.loop("row", math.prod(outer), row)
    # The table has a value for each distance from the largest element.
    return ir.kernel([data, exponentials, differences, output], body, inside=True)


def _logarithm(parameters: LogSoftmax, total: PrimExpr) -> tuple[list[Stmt], PrimExpr, PrimExpr]:
    """Return statements, the logarithm of a sum, and the difference below which results saturate.

    Args:
        total: int32 expression with `SUM_BITS` integer bits, positive.
    """
    # In memory: TVM would put the formulas of variables in their place again and again.
    names = ("sum", "part", "ratio", "square", "power", "log", "limit")
    parts = tirx.decl_buffer([len(names)], "int32", "log_parts", scope="local")
    sum_, part, ratio, square, power, log, limit = (parts[int32(n)] for n in range(len(names)))
    statements: list[Stmt] = [tirx.AllocBuffer(parts)]

    def keep(name: str, value: PrimExpr) -> None:
        statements.append(tirx.BufferStore(parts, value, [int32(names.index(name))]))

    product, zeros = (partial(header_call, name) for name in ("high_product", "leading_zeros"))
    keep("sum", total)
    first = _shifted(product(sum_ << (zeros(sum_) - int32(1)), int32(SQRT_HALF)), int32(1))
    keep("part", product(sum_, int32(SQRT_HALF)))
    second = _shifted(sum_, zeros(part) - int32(1))
    powers = [int32(SUM_BITS) - zeros(sum_), int32(SUM_BITS + 1) - zeros(part)]
    scaled = [item * int32(1 << POWER_FRACTION) for item in powers]
    keep("power", tirx.max(scaled[0] + int32(QUARTER), scaled[1] - int32(QUARTER)))
    keep("ratio", tirx.min(first, second))
    middle = int32((int64(ratio) + int64(FOURTH_ROOT_OF_HALF + 1)) >> int64(1))
    keep("part", ratio - int32(FOURTH_ROOT_OF_HALF))
    keep("part", part + part)
    keep("square", product(part, part))
    numerator = product(part, ratio) + product(product(part, square), int32(ALPHA_N))
    sum_of_terms = int32(ALPHA_I) + part + product(int32(ALPHA_D), square)
    denominator = product(middle, sum_of_terms) + product(int32(ALPHA_F), part)
    keep("log", numerator)
    keep("square", denominator)
    inverse = header_call("reciprocal", int32((int64(square) + int64(2**31)) >> int64(1)))
    fraction = product(header_call("divide_by_power_of_two", log, INTEGER_BITS + 1), inverse)
    keep("log", _shifted(product(power, int32(LOG_2)) + fraction, int32(1)))
    least = requantize(
        int32(int64(log) - int64(2**31)), int32(parameters.multiplier), int32(parameters.shift),
        parameters.arithmetic,
    )  # fmt: skip
    keep("limit", tirx.max(int32(parameters.least - 1), least))
    return statements, log, limit


def _shifted(value: PrimExpr, bits: PrimExpr) -> PrimExpr:
    return header_call("saturate", int64(value) << int64(bits))


def _drawn(common: Fields, data: Tensor, settings: Settings, random: Random) -> MadeOfOne:
    if data.shape[-1] > MOST_TERMS:
        raise NotDrawable("a sum of more exponentials than its integer bits hold")
    try:
        return _in_fixed_point(common, float(np.exp2(random.uniform(-9, 0))))
    except ModelError as reason:
        raise NotDrawable(str(reason)) from None


register(
    parameters=LogSoftmax,
    kernel_of_operands=_kernel,
    drawing=elements(
        _drawn,
        result=lambda data, zero_point: 127,
        dtype=("int8",),
        rounding=("tflm",),
        clip=("none",),
    ),
    interface=Interface(
        operands={"data": "", "exponentials": "int32", "differences": "int32"}, sizes=rows
    ),
)
