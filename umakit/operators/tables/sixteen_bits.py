# SPDX-License-Identifier: Apache-2.0
"""Tables for the interpolation of functions of 16-bit integers.

Sources are TensorFlow Lite Micro's `logistic_common.cc`, `tanh.cc`, `softmax_common.cc` and
`kernels/internal/common.h` (`sigmoid_table_uint16`, `LUTPopulate`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.operators.numeric.fixed_point import (
    Array,
    high_product,
    quantize_multiplier,
    round_half_away,
    shift_right_rounding,
)

STEPS_PER_UNIT = 24
"""Entries per unit of x in the table of 1 / (1 + exp(-x))."""

ABOVE_THE_NEAREST = (
    4, 8, 12, 14, 15, 16, 17, 19, 20, 21, 22, 25, 27, 28, 29, 30, 31, 33, 34, 35, 37, 39, 40, 41,
    43, 44, 45, 46, 49, 50, 54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255,
)  # fmt: skip
"""Entries of the reference's table that are one more than the nearest integer."""

ARGUMENT_BITS = 12
"""Fractional bits of arguments that need no multiplier."""

LARGEST_MULTIPLIER = 2**15 - 1
MOST_SHIFTS = 31
SEGMENTS = 512
"""Number of segments of a table of `LUTPopulate`."""

TOLERANCE_OF_POWERS = 1e-3
"""Largest deviation of log2(scale) from an integer for a power of two (`CheckedLog2`)."""


def sigmoid_table() -> Array:
    """1 / (1 + exp(-i / 24)) with 16 fractional bits, for i = 0, ..., 255; uint16."""
    values = np.round(65536.0 / (1.0 + np.exp(-np.arange(256) / STEPS_PER_UNIT)))
    values[list(ABOVE_THE_NEAREST)] += 1
    return values.astype(np.uint16)


def power_of_two(scale: float) -> int | None:
    """The exponent of a scale that is nearly a power of two (`CheckedLog2`), else None."""
    logarithm = np.float32(np.log(np.float32(scale))) * np.float32(1 / np.log(np.float32(2)))
    exponent = round_half_away(float(logarithm))
    return exponent if abs(float(logarithm) - exponent) < TOLERANCE_OF_POWERS else None


def sigmoid_argument(scale: float, *, tanh: bool) -> tuple[int, int]:
    """Return (multiplier, shift) from integers of a scale to positions in the table.

    Raises:
        ValueError: the reference does not support the scale.
    """
    exponent = power_of_two(scale)
    if exponent is not None and 0 <= exponent + ARGUMENT_BITS <= (1 if tanh else 0):
        return 3 << (exponent + ARGUMENT_BITS), 0
    multiplier, shift = float(np.float32(scale)) * 4096.0 * 3.0, 0
    if multiplier > LARGEST_MULTIPLIER:
        raise ValueError(f"scale {scale} is too large for 16 bits")
    while multiplier <= LARGEST_MULTIPLIER / 2 and shift < MOST_SHIFTS:
        multiplier, shift = 2 * multiplier, shift + 1
    return int(multiplier), shift


def softmax_tables() -> tuple[Array, Array]:
    """exp(x) on [-10, 0] and 1 / (1 + x) on [0, 1], int16[513] each."""
    spread = np.float32(65535)
    exponentials = _populate(np.float32(10) / spread, 32767, lambda x: math.exp(x))
    reciprocals = _populate(np.float32(1) / spread, -32768, lambda x: 1.0 / (1.0 + x))
    return exponentials, reciprocals


def _populate(scale: np.float32, zero_point: int, function: Callable[[float], float]) -> Array:
    """`LUTPopulate` of a function with results of 15 fractional bits, in float32."""
    f = np.float32

    def value(x: np.float32) -> np.float32:
        return f(function(float(x)))

    first, last = f(scale * f(-32768 - zero_point)), f(scale * f(32767 - zero_point))
    result_scale = f(f(2) / f(65535))
    spread = f(result_scale * f(32767)) - f(result_scale * f(-32768))
    inverse = f(f(65536) / f(spread))
    step = f(f(last - first) / f(SEGMENTS))
    half = f(step / f(2))
    table = []
    for i in range(SEGMENTS):
        start = f(first + f(f(i) * step))
        sample = round_half_away(float(f(value(start) * inverse)))
        end = f(value(f(first + f(f(i + 1) * step))) * inverse)
        between = round_half_away(float(f(f(end + f(sample)) / f(2))))
        middle = round_half_away(float(f(value(f(start + half)) * inverse)))
        table.append(sample - round_half_away((between - middle) / 2))
    table.append(round_half_away(float(f(value(last) * inverse))))
    return np.clip(table, -32768, 32767).astype(np.int16)


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
