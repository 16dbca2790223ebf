# SPDX-License-Identifier: Apache-2.0
"""Tables of activation functions of 8-bit integers, in gemmlowp's fixed point.

Sources are TensorFlow Lite Micro's `logistic.h` and `tanh.h` (in `kernels/internal/reference`) and
gemmlowp's `fixedpoint.h`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from umakit.operators.numeric.fixed_point import (
    Array,
    high_product,
    quantize_multiplier,
    shift_right_rounding,
)
from umakit.operators.tables.sixteen_bits import INT32_MAX, exponential
from umakit.operators.tensors import NoIntegerForm, Scale

LOGISTIC_INTEGER_BITS = 4
"""Integer bits of the fixed-point argument (`kInputIntegerBits`)."""

FORTY_EIGHT_SEVENTEENTHS = 1515870810
MINUS_THIRTY_TWO_SEVENTEENTHS = -1010580540
"""With 29 fractional bits: the first approximation of 1 / x on [1/2, 1]."""

ONE_OF_29_BITS = 1 << 29
NEWTON_STEPS = 3


def multiplied(value: int, multiplier: int, shift: int) -> int:
    """`MultiplyByQuantizedMultiplier` with double rounding.

    Raises:
        ValueError: the shifted value has more than 32 bits.
    """
    shifted = value * 2 ** max(shift, 0)
    if abs(shifted) >= 2**31:
        raise ValueError("a result's scale is too small for that of its operand")
    return shift_right_rounding(high_product(shifted, multiplier), max(-shift, 0))


def check_result(result: Scale, scale: float, zero_point: int) -> None:
    """Refuse another scale or zero point than the kernel's."""
    if result.scale != np.float32(scale) or result.zero_point != zero_point:
        raise NoIntegerForm(
            f"its result has another scale than {scale} or another zero point than {zero_point}"
        )


def table_of(function: Callable[[int], int]) -> Array:
    """int8[256] of a function of x = -128, ..., 127, limited to int8."""
    return np.clip([function(integer) for integer in range(-128, 128)], -128, 127).astype(np.int8)


def saturating_table(source: Scale, function: Callable[[int], int]) -> Array:
    """Return the table of a function of fixed-point arguments; larger ones get its limits."""
    fractional = 31 - LOGISTIC_INTEGER_BITS
    multiplier, shift = quantize_multiplier(float(source.scale) * 2.0**fractional)
    if shift < 0:
        raise ValueError(f"scale {source.scale} is below the smallest of the fixed point")
    radius = math.floor((2**LOGISTIC_INTEGER_BITS - 1) * 2.0**fractional / 2.0**shift)

    def limited(integer: int) -> int:
        value = integer - source.zero_point
        if abs(value) >= radius:
            return -128 if value <= -radius else 127
        return function(multiplied(value, multiplier, shift))

    return table_of(limited)


# --- gemmlowp's fixed point ---------------------------------------------------------------------


def fixed_point_sigmoid(argument: int) -> int:
    """gemmlowp's `logistic` of 27 fractional bits; the result has 31 fractional bits."""
    if argument == 0:
        return 1 << 30
    positive = _int32(_newton(exponential(-abs(argument), LOGISTIC_INTEGER_BITS)) * 2)
    return positive if argument > 0 else INT32_MAX - positive


def fixed_point_tanh(argument: int) -> int:
    """gemmlowp's `tanh` of 27 fractional bits; the result has 31 fractional bits."""
    if argument == 0:
        return 0
    # Twice the argument is the same number with one more integer bit.
    squared = exponential(-abs(argument), LOGISTIC_INTEGER_BITS + 1)
    positive = _int32((_newton(squared) - ONE_OF_29_BITS) * 4)
    return positive if argument > 0 else -positive


def _newton(x: int) -> int:
    """2 / (1 + x) with 29 fractional bits, for x in [0, 1] with 31."""
    half = (x + INT32_MAX + 1) // 2
    result = FORTY_EIGHT_SEVENTEENTHS + high_product(half, MINUS_THIRTY_TWO_SEVENTEENTHS)
    for _ in range(NEWTON_STEPS):
        error = ONE_OF_29_BITS - high_product(half, result)
        result += _int32(high_product(result, error) * 4)
    return result


def _int32(value: int) -> int:
    return min(max(value, -(2**31)), INT32_MAX)
