# SPDX-License-Identifier: Apache-2.0
"""gemmlowp's fixed-point arithmetic on NumPy's int64, element by element.

Written from B. Jacob et al., "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference" (2018), and the specification in gemmlowp's `fixedpoint.h`. It
shares no code with umakit: it is what umakit's results are compared with.

A number with `i` integer bits is an int32 with 31 - i fractional bits, held in an int64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
ONE = INT32_MAX
"""1 with no integer bits, as near as it gets."""


def quantize_multiplier(factor: float) -> tuple[int, int]:
    """The 31-bit mantissa of a factor and its exponent: factor = mantissa * 2**(exponent - 31)."""
    if factor == 0.0:
        return 0, 0
    fraction, exponent = math.frexp(factor)
    mantissa = math.floor(fraction * 2.0**31 + 0.5)
    if mantissa == 2**31:
        mantissa, exponent = 2**30, exponent + 1
    return (0, 0) if exponent < -31 else (mantissa, exponent)


def doubling_high_product(left: Any, right: Any) -> Array:
    """`SaturatingRoundingDoublingHighMul`: left * right / 2**31 to nearest, ties up."""
    product = np.asarray(left, np.int64) * np.asarray(right, np.int64)
    nudged = product + np.where(product >= 0, 2**30, 1 - 2**30)
    quotient = np.sign(nudged) * (np.abs(nudged) >> 31)  # towards zero, as C divides
    both_least = (np.asarray(left) == INT32_MIN) & (np.asarray(right) == INT32_MIN)
    return np.where(both_least, INT32_MAX, quotient)


def rounding_divide(value: Any, exponent: Any) -> Array:
    """`RoundingDivideByPOT`: value / 2**exponent to nearest, ties away from zero."""
    value, exponent = np.asarray(value, np.int64), np.asarray(exponent, np.int64)
    half = (np.int64(1) << exponent) >> 1
    return np.asarray(np.sign(value) * ((np.abs(value) + half) >> exponent))


def saturating_shift(value: Any, left: int) -> Array:
    """`SaturatingRoundingMultiplyByPOT`: value * 2**left, kept within 32 bits."""
    if left < 0:
        return rounding_divide(value, -left)
    return np.clip(np.asarray(value, np.int64) << left, INT32_MIN, INT32_MAX)


def rescaled(value: Any, mantissa: Any, exponent: Any) -> Array:
    """`MultiplyByQuantizedMultiplier` of 32-bit values, rounded twice."""
    exponent = np.asarray(exponent, np.int64)
    shifted = np.asarray(value, np.int64) << np.maximum(exponent, 0)
    return rounding_divide(doubling_high_product(shifted, mantissa), np.maximum(-exponent, 0))


def rescaled_wide(value: Any, mantissa: Any, exponent: Any) -> Array:
    """`MultiplyByQuantizedMultiplier` of 64 bits: a mantissa of 15, rounded once, ties up."""
    mantissa = np.asarray(mantissa, np.int64)
    short = np.where(mantissa < 0x7FFF0000, (mantissa + 2**15) >> 16, 0x7FFF)
    right = 15 - np.asarray(exponent, np.int64)
    product = np.asarray(value, np.int64) * short + (np.int64(1) << (right - 1))
    return np.asarray(product >> right)


# --- functions ----------------------------------------------------------------------------------


def exponential(value: Any, integer_bits: int) -> Array:
    """`exp_on_negative_values` of numbers of at most 0; no integer bits in the result.

    exp(a) = exp(r) exp(-1/4)^b0 exp(-1/2)^b1 exp(-1)^b2 ..., with r in [-1/4, 0) and the binary
    digits b of the rest.
    """
    value = np.asarray(value, np.int64)
    fraction_bits = 31 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    rest = (value & (quarter - 1)) - quarter
    result = _exponential_of_little(saturating_shift(rest, integer_bits))
    digits = rest - value
    for power in range(-2, integer_bits):
        factor = math.floor(math.exp(-(2.0**power)) * 2.0**31 + 0.5)
        is_set = (digits >> (fraction_bits + power)) & 1
        result = np.where(is_set, doubling_high_product(result, factor), result)
    return np.where(value == 0, ONE, result)


def _exponential_of_little(value: Array) -> Array:
    """exp on [-1/4, 0): Taylor's polynomial of degree 4 around -1/8."""
    eighth = math.floor(math.exp(-1 / 8) * 2.0**31 + 0.5)
    third = math.floor(2.0**31 / 3 + 0.5)
    x = value + 2**28
    x2 = doubling_high_product(x, x)
    x3 = doubling_high_product(x2, x)
    x4 = doubling_high_product(x2, x2)
    high = doubling_high_product(saturating_shift(x4, -2) + x3, third)
    polynomial = x + saturating_shift(high + x2, -1)
    return np.clip(eighth + doubling_high_product(eighth, polynomial), INT32_MIN, INT32_MAX)


def _twice_reciprocal(x: Any) -> Array:
    """2 / (1 + x) with 2 integer bits, for x in [0, 1] without: three steps of Newton's method."""
    total = np.asarray(x, np.int64) + ONE
    half = np.sign(total) * ((np.abs(total) + 1) // 2)
    result = math.floor(48 / 17 * 2**29 + 0.5) + doubling_high_product(
        half, -math.floor(32 / 17 * 2**29 + 0.5)
    )
    for _ in range(3):
        error = 2**29 - doubling_high_product(half, result)
        result = result + saturating_shift(doubling_high_product(result, error), 2)
    return result


def reciprocal(x: Any) -> Array:
    """1 / (1 + x) for x in [0, 1], without integer bits in both."""
    return saturating_shift(_twice_reciprocal(x), 1)


def logistic(value: Any, integer_bits: int) -> Array:
    """1 / (1 + exp(-x)); no integer bits in the result."""
    value = np.asarray(value, np.int64)
    positive = reciprocal(exponential(-np.abs(value), integer_bits))
    result = np.where(value > 0, positive, ONE - positive)
    return np.where(value == 0, 2**30, result)


def hyperbolic_tangent(value: Any, integer_bits: int) -> Array:
    """tanh(x) = (1 - exp(-2 x)) / (1 + exp(-2 x)); no integer bits in the result."""
    value = np.asarray(value, np.int64)
    # The same bits with one integer bit more are twice the number.
    power = exponential(-np.abs(value), integer_bits + 1)
    positive = saturating_shift(_twice_reciprocal(power) - 2**29, 2)
    return np.asarray(np.sign(value) * positive)
