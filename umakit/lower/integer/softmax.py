# SPDX-License-Identifier: Apache-2.0
"""Integer softmax: exponentials from a table, and a reciprocal by Newton's method.

The arithmetic is that of gemmlowp's fixed-point functions (`GetReciprocal`,
`one_over_one_plus_x_for_x_in_0_1`) as TensorFlow Lite's integer softmax uses them.
"""

from __future__ import annotations

import math
from typing import Any

from umakit import tvm_api
from umakit.lower.integer.loops import buffer, int32, kernel, loop, sequence, store_clipped
from umakit.quantization.fixed_point import (
    bind_data,
    high_product_expression,
    int64,
    shift_right_rounding_expression,
)
from umakit.quantization.operators import Softmax

tirx = tvm_api.tirx

SUM_INTEGER_BITS = 12
"""Integer bits of the sum of exponentials (`kAccumulationIntegerBits`)."""

NEWTON_STEPS = 3
FORTY_EIGHT_SEVENTEENTHS = 1515870810
MINUS_THIRTY_TWO_SEVENTEENTHS = -1010580540
"""With 29 fractional bits: the first approximation of 1 / x on [1/2, 1]."""


class _Bindings:
    """64-bit intermediate values of a formula."""

    def __init__(self) -> None:
        self.statements: list[Any] = []

    def bind(self, name: str, value: Any) -> Any:
        """A variable for a value."""
        bindings, variable = bind_data(name, int64(value))
        self.statements += bindings
        return variable


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
    largest, total, zeros = (
        tirx.decl_buffer([1], "int32", name, scope="local")
        for name in ("largest", "total", "leading_zeros")
    )
    zero = int32(0)

    def row(number: Any) -> Any:
        def place(i: Any) -> list[Any]:
            return _place(number, outer, i)

        def exponential(i: Any) -> Any:
            return table[largest[zero] - int32(data[tuple(place(i))])]

        reciprocal = _Bindings()
        scale = _reciprocal(reciprocal, total[zero], zeros[zero])
        return sequence(
            *(tirx.AllocBuffer(item) for item in (largest, total, zeros)),
            _set(largest, int32(data[tuple(place(zero))])),
            loop("i", length, lambda i: _set(
                largest, tirx.max(largest[zero], int32(data[tuple(place(i))]))
            )),
            _set(total, zero),
            loop("i", length, lambda i: _add_exponential(total, exponential(i))),
            _set(zeros, int32(1)),
            # The sum is positive: its bits are counted down from bit 30.
            loop("bit", 31, lambda bit: _set(
                zeros, zeros[zero] + int32(total[zero] < (int32(1) << bit))
            )),
            *reciprocal.statements,
            loop("i", length, lambda i: _store(
                output, place(i), exponential(i), scale, zeros[zero], known
            )),
        )  # fmt: skip

    body = loop("row", math.prod(outer), row)
    return kernel([data, table, output], body)


def _place(row: Any, outer: list[int], i: Any) -> list[Any]:
    """Indices of element `i` of a row."""
    indices: list[Any] = [i]
    for extent in reversed(outer):
        indices.insert(0, tirx.floormod(row, int32(extent)))
        row = tirx.floordiv(row, int32(extent))
    return indices


def _set(variable: Any, value: Any) -> Any:
    return tirx.BufferStore(variable, value, [int32(0)])


def _add_exponential(total: Any, exponential: Any) -> Any:
    """Add an exponential, rounded to the fractional bits of the sum."""
    bindings = _Bindings()
    value = bindings.bind("exponential", exponential)
    rounded = shift_right_rounding_expression(
        value, int64(SUM_INTEGER_BITS), at_least_one=True
    ).astype("int32")
    return sequence(*bindings.statements, _set(total, total[int32(0)] + rounded))


def _reciprocal(bindings: _Bindings, total: Any, zeros: Any) -> Any:
    """1 / sum with 31 fractional bits, after the sum's leading zeros are shifted out."""
    bind = bindings.bind
    # The sum without its leading one, in [0, 1) with 31 fractional bits, and (it + 1) / 2.
    excess = bind("excess", (int64(total) << int64(zeros)) - int64(2**31))
    half = bind("half_denominator", (excess + int64(2**31)) >> int64(1))
    slope = high_product_expression(half, int64(MINUS_THIRTY_TWO_SEVENTEENTHS))
    x = bind("x", int64(FORTY_EIGHT_SEVENTEENTHS) + slope)
    for _ in range(NEWTON_STEPS):
        error = bind("error", int64(2**29) - high_product_expression(half, x))
        x = bind("x", x + _saturated(high_product_expression(x, error) * int64(4)))
    return bind("scale", _saturated(x * int64(2)))


def _saturated(value: Any) -> Any:
    """A 64-bit value limited to 32 bits."""
    return tirx.max(tirx.min(value, int64(2**31 - 1)), int64(-(2**31)))


def _store(
    output: Any, place: list[Any], exponential: Any, scale: Any, zeros: Any, known: Softmax
) -> Any:
    """exp * scale, with as many fractional bits as the result has."""
    bindings = _Bindings()
    high = bindings.bind("probability", high_product_expression(scale, exponential))
    bits = 16 if known.output_dtype == "int16" else 8
    exponent = int64(SUM_INTEGER_BITS + 31 - bits) - int64(zeros)
    value = shift_right_rounding_expression(high, exponent, at_least_one=False).astype("int32")
    shifted = value + int32(known.output_zero_point)
    return sequence(*bindings.statements, store_clipped(output, place, shifted, known))
