# SPDX-License-Identifier: Apache-2.0
"""Tables for the interpolation of functions of 16-bit integers.

Sources are TensorFlow Lite Micro's `logistic_common.cc`, `tanh.cc`, `softmax_common.cc` and
`kernels/internal/common.h` (`sigmoid_table_uint16`, `LUTPopulate`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from umakit.operators.numeric.fixed_point import Array, round_half_away

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
    """The exponent of a scale that is nearly a power of two (`CheckedLog2`); None for other
    scales."""
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
