# SPDX-License-Identifier: Apache-2.0
"""Fixed-point multipliers: products of integers and real numbers without floats.

A factor becomes `multiplier * 2**(shift - 31)` with a 32-bit multiplier, after B. Jacob et al.,
"Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference"
(2018), section 2.2, in the variants of the runtimes with reproduced rounding. Kernels and drivers
multiply by the functions of `umakit/requantize.h`; the functions here are for constants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Arithmetic(Enum):
    """The rounding of a product with a fixed-point multiplier to an integer.

    `TFLM` rounds twice, like TensorFlow Lite Micro and gemmlowp: the doubled high half of the
    64-bit product to nearest (ties up), then the shifted result to nearest (ties away from 0).
    `ORT` gives the float32 results of ONNX Runtime: the sum and its product are rounded to 24 bits,
    then to an integer, ties to even; `umakit_requantize_ort` does so in integers. `EVEN` rounds the
    exact product once, ties to even: close to ONNX Runtime's float32 results for 16-bit integers.
    """

    TFLM = "tflm"
    ORT = "ort"
    EVEN = "even"


OWN = "own:"
"""Start of the name of a rounding that is a C function of a backend."""


@dataclass(frozen=True)
class OwnRounding:
    """A backend's own rounding: a C function (sum, multiplier, shift) of int32 -> int32."""

    function: str

    @property
    def value(self) -> str:
        """Name of the rounding, for example `own:my_npu_requantize`."""
        return f"{OWN}{self.function}"


Rounding = Arithmetic | OwnRounding


def rounding_named(name: str) -> Rounding:
    """Return a rounding by name, such as `tflm` or `own:my_npu_requantize`.

    Raises:
        ValueError: the rounding is unknown.
    """
    return OwnRounding(name.removeprefix(OWN)) if name.startswith(OWN) else Arithmetic(name)


MOST_OF_A_SUM = 2**30
"""Largest absolute sum of the terms of a mean, added in 32 bits with and without zero point."""


@dataclass(frozen=True)
class FixedPoint:
    """Real factors in fixed point, one for all channels or one per channel.

    Attributes:
        multipliers: int32[n]; 0 or at least 2**30.
        shifts: int8[n]; left shifts; negative shifts are right shifts.
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


def float32_multipliers(multipliers: Array) -> Array:
    """Return the multipliers of the nearest float32 factors: 24 significant bits, ties to even.

    Args:
        multipliers: int32[n], as in `FixedPoint`; the rounded multiplier stays below 2**31.
    """
    rounded = multipliers.astype(np.float32).astype(np.int64)
    return np.minimum(rounded, 2**31 - 2**7).astype(np.int32)


def quantize_multiplier(factor: float) -> tuple[int, int]:
    """(multiplier, shift) of one factor; factors too small for 31 right shifts become 0.

    Raises:
        ValueError: the factor is negative, NaN, or at least 2**31.
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
