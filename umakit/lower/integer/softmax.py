# SPDX-License-Identifier: Apache-2.0
"""Integer softmax: exponentials from a table, and a reciprocal by Newton's method.

The arithmetic is that of gemmlowp's fixed-point functions (`GetReciprocal`,
`one_over_one_plus_x_for_x_in_0_1`) as TensorFlow Lite's integer softmax uses them.
"""

from __future__ import annotations

import math
from typing import Any

from umakit import tvm_api
from umakit.operators.kernels.loops import (
    accumulators,
    add_to,
    bound,
    buffer,
    int32,
    kernel,
    loop,
    sequence,
    set_to,
    store_shifted,
    unflatten,
)
from umakit.operators.numeric.requantize import header_call
from umakit.quantization.operators import Softmax

tirx = tvm_api.tirx

SUM_INTEGER_BITS = 12
"""Integer bits of the sum of exponentials (`kAccumulationIntegerBits`)."""

RESULT_BITS = {"int8": 8, "uint8": 8, "int16": 16}
"""Fractional bits of a result."""


def softmax(known: Softmax, data_shape: tuple[int, ...], data_dtype: str) -> Any:
    """Kernel (data, table, output) of a softmax over the last axis.

    Args:
        known: parameters of the operator.
        data_shape: [..., n].
        data_dtype: of the data.
    """
    *outer, length = data_shape
    data = buffer("data", data_shape, data_dtype)
    table = buffer("table", [256], "int32")
    output = buffer("output", known.output_shape, known.output_dtype)
    largest = tirx.decl_buffer([1], data_dtype, "largest", scope="local")
    total, zero = accumulators(1), int32(0)
    bits = RESULT_BITS[known.output_dtype]

    def row(number: Any) -> Any:
        def place(i: Any) -> list[Any]:
            return [*unflatten(number, outer), i]

        def exponential(i: Any) -> Any:
            return table[int32(largest[zero]) - int32(data[tuple(place(i))])]

        def rounded(i: Any) -> Any:
            """An exponential with the fractional bits of the sum."""
            return header_call("divide_by_power_of_two", exponential(i), SUM_INTEGER_BITS)

        scale, right = tirx.Var("scale", "int32"), tirx.Var("right", "int32")

        def store(i: Any) -> Any:
            product = header_call("high_product", scale, exponential(i))
            statements, probability = bound(
                "probability", header_call("divide_by_power_of_two", product, right)
            )
            return sequence(*statements, store_shifted(
                output, place(i), probability, known.output_zero_point, known
            ))  # fmt: skip

        return sequence(
            tirx.AllocBuffer(largest),
            set_to(largest, zero, data[tuple(place(zero))]),
            loop("i", length, lambda i: set_to(
                largest, zero, tirx.max(largest[zero], data[tuple(place(i))])
            )),
            tirx.AllocBuffer(total),
            set_to(total, zero, zero),
            loop("i", length, lambda i: add_to(total, zero, rounded(i))),
            tirx.Bind(scale, header_call("reciprocal", int32(total[zero]))),
            tirx.Bind(right, int32(SUM_INTEGER_BITS + 31 - bits) - header_call(
                "leading_zeros", int32(total[zero])
            )),
            loop("i", length, store),
        )  # fmt: skip

    body = loop("row", math.prod(outer), row)
    # The table has a value for each distance from the largest element, which none is above.
    return kernel([data, table, output], body, inside=True)
