# SPDX-License-Identifier: Apache-2.0
"""Multipliers of operators, derived from scales; refused if integers cannot express them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.operators.numeric.fixed_point import Arithmetic, FixedPoint, fixed_point
from umakit.operators.numeric.float32 import LARGEST_FACTOR
from umakit.operators.tensors import NoIntegerForm

Array = npt.NDArray[Any]

MOST_OF_WIDE_SHIFTS = 8
"""Bound within which products of 64-bit accumulators do not overflow."""

FEWEST_MULTIPLIER_BITS = 20
"""With fewer, a product would be off by more than a part of an LSB of 16 bits."""


def fixed_points(factors: Sequence[float]) -> FixedPoint:
    """`fixed_point` of factors.

    Raises:
        NoIntegerForm: a factor has no fixed-point multiplier.
    """
    try:
        return fixed_point(factors)
    except ValueError as error:
        raise NoIntegerForm(str(error)) from None


def multiplier_of(factor: float, at_most: int, arithmetic: Arithmetic) -> tuple[int, int]:
    """Multiplier and shift for values of magnitudes up to `at_most`.

    Raises:
        NoIntegerForm: the arithmetic does not support the factor.
    """
    if arithmetic is Arithmetic.ORT and not factor < LARGEST_FACTOR:
        raise NoIntegerForm("the result's scale is too small for the operands'")
    exact = arithmetic is Arithmetic.EVEN
    scaled = exact_multipliers([factor], at_most) if exact else fixed_points([factor])
    return int(scaled.multipliers[0]), int(scaled.shifts[0])


def exact_multipliers(factors: Sequence[float] | Array, at_most: int) -> FixedPoint:
    """Multipliers for `Arithmetic.EVEN`, with as many bits as fit into products of 62 bits.

    Args:
        at_most: upper limit of the magnitude of the values.

    Raises:
        NoIntegerForm: the products would have more bits, or would have to be shifted left.
    """
    bits = min(31, 62 - at_most.bit_length())
    scaled = fixed_points([float(factor) for factor in factors])
    reduced = (scaled.multipliers.astype(np.int64) + ((1 << (31 - bits)) >> 1)) >> (31 - bits)
    shifts = scaled.shifts.astype(np.int64) + (31 - bits)
    if bits < FEWEST_MULTIPLIER_BITS or (shifts > 30).any():
        raise NoIntegerForm("the result's scale is too small for the operands'")
    return FixedPoint(np.minimum(reduced, 2**31 - 1).astype(np.int32), shifts.astype(np.int8))


def reduced_multipliers(scaled: FixedPoint) -> FixedPoint:
    """Multipliers of 15 bits for 64-bit accumulators (`MultiplyByQuantizedMultiplier`, common.cc).

    Raises:
        NoIntegerForm: the reference does not support the shifts.
    """
    if (scaled.shifts >= MOST_OF_WIDE_SHIFTS).any():
        raise NoIntegerForm("the result's scale is too small for the products'")
    reduced = np.minimum((scaled.multipliers.astype(np.int64) + 2**15) >> 16, 2**15 - 1)
    return FixedPoint(reduced.astype(np.int32), scaled.shifts)


def check_headroom(magnitude: int, shift: int, arithmetic: Arithmetic) -> None:
    """Refuse left shifts that overflow the reference's 32 bits.

    Raises:
        NoIntegerForm: the largest value does not fit in 32 bits after the shift.
    """
    if arithmetic is Arithmetic.TFLM and magnitude << max(shift, 0) >= 2**31:
        raise NoIntegerForm("the result's scale is too small for the operands'")
