# SPDX-License-Identifier: Apache-2.0
"""The table of exponentials for integer softmax.

The arithmetic is from gemmlowp's `exp_on_negative_values` in TensorFlow Lite's integer softmax: a
polynomial on [-1/4, 0) and a product of tabulated powers for the rest.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.operators.numeric.fixed_point import (
    high_product,
    quantize_multiplier,
    shift_right_rounding,
)

INPUT_INTEGER_BITS = 5
"""Integer bits of the scaled differences (`kScaledDiffIntegerBits`)."""

INT32_MAX = 2**31 - 1
POWERS = (
    (-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535),
    (3, 720401), (4, 242),
)  # fmt: skip
"""(k, exp(-2**k) with 31 fractional bits)."""


def fixed_point_of_differences(input_scale: float) -> tuple[int, int, int]:
    """Multiplier, left shift and largest distance of softmax's negative differences.

    `high_product(difference * 2**shift, multiplier)` is a difference times the scale with 26
    fractional bits. Exponentials beyond the largest distance from the largest element are 0.

    Args:
        input_scale: scale of softmax's input.

    Raises:
        ValueError: the scale is too small for the reference.
    """
    fractional = 31 - INPUT_INTEGER_BITS
    multiplier, shift = quantize_multiplier(min(input_scale * 2.0**fractional, 2.0**31 - 1.0))
    if shift < 0:
        raise ValueError(f"scale {input_scale} is below the smallest of softmax's fixed point")
    radius = math.floor((2**INPUT_INTEGER_BITS - 1) * 2.0**fractional / 2.0**shift)
    return multiplier, shift, radius


def exponential_table(input_scale: float) -> npt.NDArray[Any]:
    """exp(-d * input_scale) for d = 0, ..., 255 in fixed point.

    Exponentials that the reference leaves out of the sum are 0.

    Args:
        input_scale: scale of softmax's input.

    Returns:
        int32[256] with 31 fractional bits.

    Raises:
        ValueError: the scale is too small for the reference.
    """
    multiplier, shift, radius = fixed_point_of_differences(input_scale)
    return np.array(
        [
            exponential(high_product(-d * 2**shift, multiplier), INPUT_INTEGER_BITS)
            if d <= radius
            else 0
            for d in range(256)
        ],
        np.int32,
    )


def exponential(value: int, integer_bits: int) -> int:
    """exp of a number of at most 0; the result has 31 fractional bits.

    Args:
        value: number with `31 - integer_bits` fractional bits.
        integer_bits: integer bits of the number, at most 5.
    """
    if value == 0:
        return INT32_MAX
    quarter = 1 << (31 - integer_bits - 2)
    modulus = (value & (quarter - 1)) - quarter
    result = _exponential_near_zero(modulus << integer_bits)
    remainder = modulus - value
    for exponent, power in POWERS:
        if exponent < integer_bits and remainder & (1 << (31 - integer_bits + exponent)):
            result = high_product(result, power)
    return result


def _exponential_near_zero(value: int) -> int:
    """exp of a number in [-1/4, 0) with 31 fractional bits: a Taylor series around -1/8."""
    exp_of_minus_eighth, third = 1895147668, 715827883
    x = value + (1 << 28)
    square = high_product(x, x)
    cube, fourth = high_product(square, x), high_product(square, square)
    inner = high_product(shift_right_rounding(fourth, 2) + cube, third) + square
    total = x + shift_right_rounding(inner, 1)
    return exp_of_minus_eighth + high_product(exp_of_minus_eighth, total)
