# SPDX-License-Identifier: Apache-2.0
"""Activation functions of 8-bit integers as tables, computed with TensorFlow Lite Micro's results.

Sources are TensorFlow Lite Micro's `logistic.h`, `tanh.h`, `hard_swish.h`, `leaky_relu.h` (all in
`kernels/internal/reference`) with their `*_common.cc`, `elu.cc`, and gemmlowp's `fixedpoint.h`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from umakit.operators.numeric.fixed_point import (
    Array,
    high_product,
    quantize_multiplier,
    round_half_away,
    shift_right_rounding,
)
from umakit.operators.tables.exponentials import INT32_MAX, exponential
from umakit.operators.tensors import Scale

LOGISTIC_INTEGER_BITS = 4
"""Integer bits of the fixed-point argument (`kInputIntegerBits`)."""

FORTY_EIGHT_SEVENTEENTHS = 1515870810
MINUS_THIRTY_TWO_SEVENTEENTHS = -1010580540
"""With 29 fractional bits: the first approximation of 1 / x on [1/2, 1]."""

ONE_OF_29_BITS = 1 << 29
NEWTON_STEPS = 3


def logistic_table(source: Scale) -> Array:
    """1 / (1 + exp(-x)) with scale 1/256 and zero point -128.

    Args:
        source: of x, int8.

    Returns:
        int8[256], for x = -128, ..., 127.

    Raises:
        ValueError: the reference does not take the scale.
    """

    def function(argument: int) -> int:
        probability = _sigmoid(argument)
        return shift_right_rounding(probability, 31 - 8) - 128

    return saturating_table(source, function)


def tanh_table(source: Scale) -> Array:
    """tanh(x) with scale 1/128 and zero point 0; otherwise as `logistic_table`."""
    return saturating_table(source, lambda argument: shift_right_rounding(_tanh(argument), 31 - 7))


def hard_swish_table(source: Scale, result: Scale) -> Array:
    """x * min(max(x + 3, 0), 6) / 6 in 16-bit fixed point.

    Args:
        source: of x, int8.
        result: of the result, int8.

    Returns:
        int8[256], for x = -128, ..., 127.

    Raises:
        ValueError: the reference does not take the scales.
    """
    # In float64, as the released runtime computes, though hard_swish_common.cc reads like float32.
    fine = float(source.scale) / 128
    output_by, output_shift = _short_multiplier(fine / float(result.scale))
    ramp_by, ramp_shift = _short_multiplier(fine / (3.0 / 32768.0))
    if not (-15 <= output_shift <= 0 and -15 <= ramp_shift <= 31):
        raise ValueError("the scales of operand and result are too far apart for 16 bits")

    def function(integer: int) -> int:
        value = (integer - source.zero_point) * 128
        ramp = value
        if ramp_shift > 0:
            ramp = _int16(ramp * 2 ** (ramp_shift - 1))
        ramp = _short_high_product(ramp, ramp_by)
        if ramp_shift > 0:
            ramp = _int16(ramp * 2)
        if ramp_shift < 0:
            ramp = shift_right_rounding(ramp, -ramp_shift)
        ramp = (ramp + 2**15) >> 1
        product = ramp * _short_high_product(value, output_by)
        truncated = int(math.copysign(abs(product) >> 15, product))
        return shift_right_rounding(truncated, -output_shift) + result.zero_point

    return table_of(function)


def elu_table(source: Scale, result: Scale) -> Array:
    """x where it is positive, exp(x) - 1 elsewhere, computed in float32 as `elu.cc` does.

    Args:
        source: of x, int8.
        result: of the result, int8.

    Returns:
        int8[256], for x = -128, ..., 127.
    """
    inverse = np.float32(1) / result.scale

    def function(integer: int) -> int:
        value = source.scale * np.float32(integer - source.zero_point)
        if value < 0:
            value = np.float32(np.exp(np.float64(value))) - np.float32(1)
        return round_half_away(float(value * inverse)) + result.zero_point

    return table_of(function)


def multiplied(value: int, multiplier: int, shift: int) -> int:
    """`MultiplyByQuantizedMultiplier` with double rounding.

    Raises:
        ValueError: the shifted value has more than 32 bits.
    """
    shifted = value * 2 ** max(shift, 0)
    if abs(shifted) >= 2**31:
        raise ValueError("a result's scale is too small for that of its operand")
    return shift_right_rounding(high_product(shifted, multiplier), max(-shift, 0))


def table_of(function: Callable[[int], int]) -> Array:
    return np.clip([function(integer) for integer in range(-128, 128)], -128, 127).astype(np.int8)


def saturating_table(source: Scale, function: Callable[[int], int]) -> Array:
    """A function of fixed-point arguments, and its limits where arguments get too large."""
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


def _sigmoid(argument: int) -> int:
    """gemmlowp's `logistic`, of 27 fractional bits; the result has 31."""
    if argument == 0:
        return 1 << 30
    positive = _int32(_newton(exponential(-abs(argument), LOGISTIC_INTEGER_BITS)) * 2)
    return positive if argument > 0 else INT32_MAX - positive


def _tanh(argument: int) -> int:
    """gemmlowp's `tanh`, of 27 fractional bits; the result has 31."""
    if argument == 0:
        return 0
    # Twice the argument is the same number with one integer bit more.
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


def _short_multiplier(factor: float) -> tuple[int, int]:
    """A multiplier of 15 bits (`DownScaleInt32ToInt16Multiplier`) and its shift."""
    multiplier, shift = quantize_multiplier(factor)
    return min((multiplier + 2**15) >> 16, 2**15 - 1), shift


def _short_high_product(left: int, right: int) -> int:
    """`SaturatingRoundingDoublingHighMul` of two int16, of which one is not the minimum."""
    return (left * right + 2**14) >> 15


def _int16(value: int) -> int:
    return min(max(value, -(2**15)), 2**15 - 1)


def _int32(value: int) -> int:
    return min(max(value, -(2**31)), INT32_MAX)
