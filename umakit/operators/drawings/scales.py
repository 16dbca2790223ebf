# SPDX-License-Identifier: Apache-2.0
"""Drawings of scales, and of matching weights and biases."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from umakit.operators.drawing import Array, NotDrawable, Random, Settings
from umakit.operators.numeric.fixed_point import (
    Arithmetic,
    fixed_point,
    float32_multipliers,
    high_product,
    shift_right_rounding,
)
from umakit.operators.parameters import BIAS_DTYPES

SCALES = ("usual", "tie", "threshold", "small", "large")
"""Scales: `tie` are powers of two, so that many products lie halfway between two integers; at a
`threshold` a multiplier that differs by one LSB shows in a result."""

WEIGHTED_SCALES = (*SCALES, "saturating")
"""Scales of layers with weights: `saturating` ones yield products of 2^31 and more, which the
rounding of TensorFlow Lite does not have."""

SPREAD = 75
"""Standard deviation of random int8 values, about."""

MULTIPLIER_BITS = 31
LARGEST_MULTIPLIER = 2**MULTIPLIER_BITS - 1


def weights_of(settings: Settings, shape: tuple[int, ...], random: Random) -> list[Array]:
    """Return weights with output channels first, bias, multipliers and shifts.

    Raises:
        NotDrawable: the rounding has no saturating products.
    """
    is_tflm = settings["rounding"] == Arithmetic.TFLM.value
    if is_tflm and settings["scale"] == "saturating":
        raise NotDrawable("TensorFlow Lite's rounding has no products of 2^31")
    outputs, terms = shape[0], math.prod(shape[1:])
    kind = str(settings["weights"])
    weights: Array = random.integers(-127, 128, shape)
    if kind == "extreme":
        weights = random.choice([-128, 127], shape)
    elif kind == "lowest":
        weights = np.full(shape, -128)
    dtype = str(settings["dtype"])
    wide = dtype in BIAS_DTYPES
    spread = SPREAD * (256 if wide else 1) * SPREAD * math.sqrt(terms)
    largest = max(2, int(spread))
    bias = random.integers(-largest, largest, outputs)
    count = 1 if settings["scales"] == 1 else outputs
    first = "usual" if settings["scale"] in ("threshold", "saturating") else settings["scale"]
    divisor = spread / (100 * (256 if wide else 1))
    multipliers, shifts = factors({**settings, "scale": first}, divisor, count, random)
    if wide and is_tflm:  # sums of 64 bits: 15 bits
        multipliers = np.minimum((multipliers.astype(np.int64) + 2**15) >> 16, 2**15 - 1)
    elif settings["scale"] == "threshold":
        _put_on_thresholds(settings, weights, bias, multipliers, shifts, random)
    elif settings["scale"] == "saturating":
        _saturate(weights, bias, multipliers, shifts, random)
    bias_dtype = BIAS_DTYPES.get(dtype, "int32")
    return [weights.astype(np.int8), bias.astype(bias_dtype), multipliers.astype(np.int32), shifts]


def factors(settings: Settings, divisor: float, count: int, random: Random) -> tuple[Array, Array]:
    """Return multipliers and shifts of the factors from a sum to a result.

    Args:
        settings: `scale` is one of `SCALES`; at a `threshold` factors are one half, where the first
            rounding of TensorFlow Lite shows a multiplier that is too small by one.
    """
    kind = str(settings["scale"])
    found = random.uniform(0.5, 1.5, count) / divisor
    if kind == "tie":
        found = np.exp2(np.floor(np.log2(found)))
    elif kind == "threshold":
        found = np.full(count, 0.5)
    elif kind == "small":
        found = found / random.choice([16, 256, 4096], count)
    elif kind == "large":
        found = found * random.choice([4, 16, 64], count)
    return scaled(settings, [float(factor) for factor in found])


def scaled(settings: Settings, factors: Sequence[float]) -> tuple[Array, Array]:
    """Return multipliers and shifts of factors; for ONNX Runtime from float32."""
    found = fixed_point(factors)
    if settings["rounding"] == Arithmetic.ORT.value:
        return float32_multipliers(found.multipliers), found.shifts
    return found.multipliers, found.shifts


def _put_on_thresholds(
    settings: Settings,
    weights: Array,
    bias: Array,
    multipliers: Array,
    shifts: Array,
    random: Random,
) -> None:
    """Put multipliers where an error of one LSB changes a result.

    A channel with weights 0 has its bias as sum, whatever the data are. Its multiplier becomes the
    least multiplier whose product with the bias rounds to the result, or the multiplier below.
    Changes all arrays in place.

    Args:
        weights: output channels first.
        multipliers, shifts: one, or one per output channel; of usual scales.
    """
    lsb = 2**7 if settings["rounding"] == Arithmetic.ORT.value else 1
    single = len(multipliers) == 1
    outputs = len(bias)
    channels = [int(random.integers(outputs))] if single else range(0, outputs, 2)
    for channel in channels:
        place = 0 if single else channel
        right = -int(shifts[place])
        if right < 0:
            continue
        result = int(random.integers(1, 100)) * int(random.choice([-1, 1]))
        total, least = _threshold(settings, result, int(multipliers[place]), right)
        multiplier = -(-least // lsb) * lsb
        if multiplier <= LARGEST_MULTIPLIER:
            weights[channel] = 0
            bias[channel] = total
            multipliers[place] = multiplier - lsb * int(random.integers(2))


def _saturate(
    weights: Array, bias: Array, multipliers: Array, shifts: Array, random: Random
) -> None:
    """Make products of 2^31 and 2^32, with channels whose sum is the bias, whatever the data are.

    Changes all arrays in place.

    Args:
        weights: output channels first.
    """
    exponents = random.integers(3, 20, len(multipliers))
    multipliers[:] = 1 << (MULTIPLIER_BITS - 1)
    more = random.choice([0, 0, 1], len(shifts))
    signs = random.choice([-1, 1, 1], len(bias))
    more[0], signs[0] = 0, 1  # 2^31 is too large, -2^31 is not
    shifts[:] = MULTIPLIER_BITS + 1 - exponents + more
    weights[::2] = 0
    bias[::2] = (signs * (1 << exponents))[::2]


def _threshold(settings: Settings, result: int, multiplier: int, right: int) -> tuple[int, int]:
    """Return a sum, and the least multiplier from the sum to a result.

    TensorFlow Lite rounds the product to an integer (halves up), then its right shift (halves
    away from zero); others round once.

    Args:
        result: result of the layer without zero point; not 0.
    """
    total = _threshold_product(settings, abs(result), right) // multiplier
    least = threshold_multiplier(settings, result, total, right)
    return (-total if result < 0 else total), least


def _threshold_product(settings: Settings, size: int, right: int) -> int:
    """Return the least product of a sum and a multiplier that becomes the result."""
    if settings["rounding"] == Arithmetic.TFLM.value:
        least = ((2 * size << right) - (1 << right) + 1) // 2
        return (least << MULTIPLIER_BITS) - (1 << (MULTIPLIER_BITS - 1))
    return ((2 * size - 1) << (MULTIPLIER_BITS + right - 1)) + 1


def threshold_multiplier(settings: Settings, result: int, total: int, right: int) -> int:
    """Return the least multiplier from a sum of a magnitude to a result.

    Args:
        result: result of the layer without zero point; not 0.
        total: magnitude of the sum, above 0.
    """
    product = _threshold_product(settings, abs(result), right)
    return product // total + 1 if result < 0 else -(-product // total)


def tflm_scaled(value: int, multiplier: int, shift: int) -> int:
    """Return a value times a factor with TensorFlow Lite's rounding."""
    product = high_product(value << max(shift, 0), multiplier)
    return shift_right_rounding(product, max(-shift, 0)) if shift < 0 else product
