# SPDX-License-Identifier: Apache-2.0
"""float32 arithmetic in integers, for ONNX Runtime's computations between integer tensors.

ONNX Runtime multiplies an int32 sum by a float32 factor and rounds the float32 product to the
nearest integer, ties to even (`MlasRequantizeOutput`). So the result is rounded twice, and a
product next to a tie becomes the tie. Rounding the exact product once differs in a few of a million
sums; here 64-bit integers give exactly the same results.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SIGNIFICANT_BITS = 24
LARGEST_FACTOR = 64.0
"""Factors must be smaller, so that a tie's neighbourhood has a whole number of steps."""


def float32_integer(value: np.float32) -> tuple[int, int]:
    """(m, e) with value == m * 2**e and m odd, or (0, 0)."""
    numerator, denominator = float(value).as_integer_ratio()
    if numerator == 0:
        return 0, 0
    zeros = (numerator & -numerator).bit_length() - 1
    return numerator >> zeros, zeros - (denominator.bit_length() - 1)


def round_to_float32(values: Array) -> Array:
    """Integers rounded to 24 significant bits, ties to even, like a conversion to float32.

    Args:
        values: int64 of magnitudes below 2**62.
    """
    magnitude = np.abs(values)
    unit: Array = np.maximum(_highest_power(magnitude) >> (SIGNIFICANT_BITS - 1), 1)
    odd = ((magnitude & unit) != 0) & (unit > 1)
    rounded: Array = (magnitude + ((unit - 1) >> 1) + odd) & -unit
    return np.asarray(np.where(values < 0, -rounded, rounded))


def _highest_power(values: Array) -> Array:
    """The highest power of two in each positive integer; 0 for 0."""
    smeared: Array = values.copy()
    for step in (1, 2, 4, 8, 16, 32):
        smeared |= smeared >> step
    highest: Array = (smeared + 1) >> 1
    return highest


def divide_to_even(values: Array, exponent: int) -> Array:
    """Division by 2**exponent to the nearest integer, ties to even."""
    half = (1 << exponent) >> 1
    if not half:
        return values
    result: Array = (values + half - 1 + ((values >> exponent) & 1)) >> exponent
    return result
