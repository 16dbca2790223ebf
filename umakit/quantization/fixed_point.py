# SPDX-License-Identifier: Apache-2.0
"""Fixed-point multipliers: how integer kernels multiply by a real number without floats.

A factor becomes `multiplier * 2**(shift - 31)` with a 32-bit multiplier, after B. Jacob et al.,
"Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference"
(2018), section 2.2, in the variants of the runtimes whose results are to be met.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.quantization.float32 import bind_data as bind_data
from umakit.quantization.float32 import exact_product, float32_product
from umakit.quantization.float32 import int64 as int64

tirx = tvm_api.tirx
Array = npt.NDArray[Any]


class Rounding(Enum):
    """How a product with a fixed-point multiplier is rounded to an integer.

    `TFLM` rounds twice, as TensorFlow Lite Micro and gemmlowp: the doubled high half of the
    64-bit product to nearest (ties up), then the shifted result to nearest (ties away from 0).
    `ORT` yields what ONNX Runtime computes with float32: the sum and its product are rounded to
    24 bits, then to an integer, ties to even; `float32_product` says how, in integers.
    `EVEN` rounds the exact product once, ties to even: next to what ONNX Runtime computes in
    float32 for integers of 16 bits.
    """

    TFLM = "tflm"
    ORT = "ort"
    EVEN = "even"


@dataclass(frozen=True)
class FixedPoint:
    """Real factors in fixed point, one for all channels or one for each.

    Attributes:
        multipliers: int32[n]; 0 or at least 2**30.
        shifts: int8[n]; left shifts, negative ones shift right.
    """

    multipliers: Array
    shifts: Array


def fixed_point(factors: Sequence[float]) -> FixedPoint:
    """`QuantizeMultiplier` of TensorFlow Lite for each factor.

    Args:
        factors: non-negative float64 numbers below 2**31.
    """
    pairs = [quantize_multiplier(float(factor)) for factor in factors]
    return FixedPoint(
        np.array([pair[0] for pair in pairs], np.int32),
        np.array([pair[1] for pair in pairs], np.int8),
    )


def quantize_multiplier(factor: float) -> tuple[int, int]:
    """(multiplier, shift) of one factor; factors too small for 31 right shifts become 0.

    Raises:
        ValueError: the factor is negative, no number, or 2**31 and more.
    """
    if not 0.0 <= factor < 2.0**31:
        raise ValueError(f"{factor} has no fixed-point multiplier")
    fraction, shift = math.frexp(factor)
    multiplier = math.floor(fraction * 2**31 + 0.5)  # exact: a float64 has 53 bits
    if multiplier == 2**31:
        multiplier, shift = multiplier // 2, shift + 1
    return (0, 0) if shift < -31 else (multiplier, shift)


def round_half_away(value: float) -> int:
    """`TfLiteRound`: the nearest integer, ties away from zero."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def high_product(left: int, right: int) -> int:
    """gemmlowp's `SaturatingRoundingDoublingHighMul` of two int32 that are not both the minimum."""
    return (left * right + 2**30) >> 31


def shift_right_rounding(value: int, exponent: int) -> int:
    """gemmlowp's `RoundingDivideByPOT`: division by 2**exponent, ties away from zero."""
    remainder, mask = value & ((1 << exponent) - 1), (1 << exponent) - 1
    return (value >> exponent) + (1 if remainder > (mask >> 1) + (value < 0) else 0)


# --- the same in TIR ----------------------------------------------------------------------------


def high_product_expression(left: Any, right: Any) -> Any:
    """`high_product` of two expressions; int64, with a value of 32 bits."""
    return (int64(left) * int64(right) + int64(2**30)) >> int64(31)


def shift_right_rounding_expression(value: Any, exponent: Any, *, at_least_one: bool) -> Any:
    """`shift_right_rounding` of an int64 variable.

    Args:
        value: a variable; it is used several times.
        exponent: an int64 expression.
        at_least_one: whether the exponent is known to be 1 or more, for which less code will do.
    """
    if at_least_one:
        half = int64(1) << (exponent - int64(1))
        return (value + half + (value >> int64(63))) >> exponent
    mask = (int64(1) << exponent) - int64(1)
    threshold = (mask >> int64(1)) + int64(value < int64(0))
    return (value >> exponent) + int64((value & mask) > threshold)


@dataclass(frozen=True)
class ShiftRange:
    """The least and the largest left shift of a kernel's multipliers."""

    least: int
    largest: int

    @classmethod
    def of(cls, shifts: Array) -> ShiftRange:
        """The range of an array of shifts."""
        return cls(int(shifts.min()), int(shifts.max()))


def multiply(
    value: Any,
    multiplier: Any,
    shift: Any,
    shifts: ShiftRange,
    rounding: Rounding,
    at_most: int = 2**31,
) -> tuple[list[Any], Any]:
    """TIR of `value * multiplier * 2**(shift - 31)`, TensorFlow Lite's
    `MultiplyByQuantizedMultiplier`.

    Args:
        value: an int32 expression; or an int64 one, for multipliers of 15 bits
            (`parameters.reduced_multipliers`).
        multiplier, shift: integer expressions, of `fixed_point`.
        shifts: what values the shift can take.
        rounding: of the result.
        at_most: what the value's magnitude does not exceed.

    Returns:
        Statements that bind intermediate values, and the int32 result.
    """
    if rounding is Rounding.EVEN:
        return exact_product(value, multiplier, int64(31) - int64(shift))
    if tvm_api.dtype_of(value) == "int64":
        right = int64(15) - int64(shift)
        half = int64(1) << (right - int64(1))
        return [], ((value * int64(multiplier) + half) >> right).astype("int32")
    if rounding is Rounding.ORT:
        return float32_product(value, multiplier, int64(31) - int64(shift), at_most)
    if shifts.largest > 0:
        # The reference shifts in 32 bits.
        left = tirx.max(shift.astype("int32"), tirx.IntImm("int32", 0))
        value = value * (tirx.IntImm("int32", 1) << left)
    bindings, high = bind_data("high", high_product_expression(value, multiplier))
    if shifts.least >= 0:
        return bindings, high.astype("int32")
    right = int64(0) - int64(shift)
    if shifts.largest > 0:
        right = tirx.max(right, int64(0))
    rounded = shift_right_rounding_expression(high, right, at_least_one=shifts.largest < 0)
    return bindings, rounded.astype("int32")
