# SPDX-License-Identifier: Apache-2.0
"""Sums and products of two quantized tensors, equal to ONNX Runtime's float32 arithmetic.

Each float32 constant is an integer multiple of a common power of two, so the same steps can be
taken in 64-bit integers that are rounded to 24 bits where float32 would be. Most of the time that
is not needed: all pairs of integers are tried here, and where a constant exists with which the
exact sum gives the same result for each pair, the kernel computes just that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from umakit.operators.numeric.float32 import divide_to_even, float32_integer, round_to_float32
from umakit.operators.tables.functions import all_integers, dequantized, quantized
from umakit.operators.tensors import NotAnIsland, Scale
from umakit.quantization.onnx_operators import Float32Pair, Float32Product, Float32Sum

Array = npt.NDArray[Any]
P = TypeVar("P", bound=Float32Pair)
MOST_BITS = 60
"""Of intermediate results."""

MOST_FRACTION_BITS = 40
FEWEST_FRACTION_BITS = 24


def float32_sum(
    common: dict[str, Any], scales: Sequence[Scale], target: Scale, shapes: Sequence[Any]
) -> Float32Sum:
    """Parameters of a sum.

    int8 is computed as uint8, because that is what ONNX Runtime makes of it on x86-64.

    Args:
        common: the fields of all `Parameters`.
        scales: of left and right.
        target: of the result.
        shapes: of left and right.

    Raises:
        NotAnIsland: scales so different that 64 bits do not hold the sum.
    """
    offset = 128 if target.dtype == "int8" else 0
    left, right = scales
    ratios = [scale.scale / target.scale for scale in scales]
    zero_left, zero_right, zero = (
        np.float32(scale.zero_point + offset) for scale in (left, right, target)
    )
    # float32(zero - fma(A / C, zero_left, float32(B / C * zero_right))), exact in float64.
    inner = np.float32(
        np.longdouble(ratios[0]) * np.longdouble(zero_left)
        + np.longdouble(np.float32(ratios[1] * zero_right))
    )
    values = [*ratios, np.float32(zero - inner)]
    fields, bits = _fixed_point(values, factor_bits=9)
    known = Float32Sum(
        **common,
        offsets=(offset, offset),
        factors=(fields[0], fields[1]),
        constant=fields[2],
        fraction_bits=bits,
        output_offset=-offset,
        scalar=_scalar(*shapes),
        plain=0,
    )
    return _simplified(known, left.dtype, right.dtype)


def float32_product(
    common: dict[str, Any], scales: Sequence[Scale], target: Scale, shapes: Sequence[Any]
) -> Float32Product:
    """Parameters of a product; arguments and errors as of `float32_sum`."""
    offset = 128 if target.dtype == "int8" else 0
    left, right = scales
    ratio = np.float32(left.scale * right.scale) / target.scale
    values = [ratio, np.float32(target.zero_point + offset)]
    fields, bits = _fixed_point(values, factor_bits=17)
    known = Float32Product(
        **common,
        offsets=(-left.zero_point, -right.zero_point),
        factors=(fields[0], 0),
        constant=fields[1],
        fraction_bits=bits,
        output_offset=-offset,
        scalar=0,
        plain=0,
    )
    return _simplified(known, left.dtype, right.dtype)


def nearest_pair(
    kind: type[P], common: dict[str, Any], scales: Sequence[Scale], target: Scale, sign: int = 1
) -> P:
    """Parameters of a sum, difference or product of any dtypes, rounded once.

    ONNX Runtime dequantizes the operands, combines them in float32 and quantizes the result. That
    is met exactly where a constant exists that does it for all pairs of 8-bit integers; otherwise
    a few pairs that are next to a tie are off by one.

    Args:
        kind: of the parameters.
        common: the fields of all `Parameters`.
        scales: of left and right.
        target: of the result.
        sign: -1 for a difference.

    Raises:
        NotAnIsland: scales so different that 64 bits do not hold the result.
    """
    left, right = scales
    if issubclass(kind, Float32Product):
        ratios = [float(left.scale) * float(right.scale) / float(target.scale)]
        magnitudes = [left.magnitude * right.magnitude]
    else:
        ratios = [float(left.scale) / float(target.scale)]
        ratios.append(sign * float(right.scale) / float(target.scale))
        magnitudes = [left.magnitude, right.magnitude]
    largest = sum(abs(r) * m for r, m in zip(ratios, magnitudes, strict=True)) + 2**17
    bits = min(MOST_FRACTION_BITS, MOST_BITS - math.ceil(math.log2(largest)))
    if bits < FEWEST_FRACTION_BITS:
        raise NotAnIsland("the scales are too different")
    factors = [round(ratio * 2**bits) for ratio in ratios]
    known = kind(
        **common,
        offsets=(-left.zero_point, -right.zero_point),
        factors=(factors[0], factors[1] if len(factors) > 1 else 0),
        constant=(target.zero_point << bits) + (1 << (bits - 1)),
        fraction_bits=bits,
        output_offset=0,
        scalar=0,
        plain=1,
    )
    if max(left.bits, right.bits, target.bits) > 8:
        return known
    a, b = dequantized(left)[:, None], dequantized(right)[None, :]
    reals = a * b if isinstance(known, Float32Product) else a + b if sign > 0 else a - b
    wanted = quantized(reals, target, known.clip).astype(np.int64)
    return _with_constant(known, left.dtype, right.dtype, wanted) or known


def _fixed_point(values: Sequence[Any], factor_bits: int) -> tuple[list[int], int]:
    """float32 numbers as integers with a common number of fraction bits, and that number.

    All but the last one are multiplied with integers of so many bits.
    """
    pairs = [float32_integer(np.float32(value)) for value in values]
    bits = max(1, *(-exponent for _, exponent in pairs))
    if bits > MOST_BITS - 12:
        raise NotAnIsland("the scales are too different")
    integers = [mantissa << (bits + exponent) for mantissa, exponent in pairs]
    *factors, constant = (abs(integer) for integer in integers)
    if (sum(factors) << factor_bits) + constant >= 1 << MOST_BITS:
        raise NotAnIsland("the scales are too different")
    return integers, bits


def _scalar(left: Sequence[int], right: Sequence[int]) -> int:
    """Which operand ONNX Runtime sees as one number for each run of the other: 0, 1 or 2."""
    rank = max(len(left), len(right))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in (left, right)]
    for first, second in zip(*(reversed(shape) for shape in padded), strict=True):
        if first != second:
            return 1 if first == 1 else 2
        if first > 1:
            return 0
    return 0


def exact_results(known: Float32Pair, left: Array, right: Array) -> Array:
    """Results before clipping, step by step as float32; int64.

    Args:
        known: the parameters.
        left, right: int64 of shapes that broadcast.
    """
    a, b = left + known.offsets[0], right + known.offsets[1]
    if isinstance(known, Float32Product):
        total = round_to_float32(round_to_float32(a * b * known.factors[0]) + known.constant)
    else:
        parts = [a * known.factors[0], b * known.factors[1]]
        first, second = (0, 1) if known.scalar == 1 else (1, 0)
        part = round_to_float32(parts[first]) if known.scalar else parts[first]
        total = round_to_float32(round_to_float32(part + known.constant) + parts[second])
    return divide_to_even(total, known.fraction_bits) + known.output_offset


def _simplified(known: P, left: str, right: str) -> P:
    """With `plain`, if some constant makes the exact sum right for all pairs of integers."""
    a, b = all_integers(left)[:, None], all_integers(right)[None, :]
    results = np.clip(exact_results(known, a, b), *known.clip)
    halved = replace(known, constant=known.constant + (1 << (known.fraction_bits - 1)))
    return _with_constant(halved, left, right, results) or known


def _with_constant(known: P, left: str, right: str, wanted: Array) -> P | None:
    """With `plain` and the constant that yields given results for all pairs, if there is one.

    Args:
        known: has half a step in its constant.
        left, right: dtypes.
        wanted: clipped results, int64[256, 256].
    """
    low, high = (limit - known.output_offset for limit in known.clip)
    results = wanted - known.output_offset
    a = all_integers(left)[:, None] + known.offsets[0]
    b = all_integers(right)[None, :] + known.offsets[1]
    if isinstance(known, Float32Product):
        total = a * b * known.factors[0]
    else:
        total = a * known.factors[0] + b * known.factors[1]
    bits = known.fraction_bits
    # (total + constant) >> bits must be the result: a lower and an upper bound for each pair.
    least = np.where(results > low, (results << bits) - total, -(1 << 62)).max()
    most = np.where(results < high, ((results + 1) << bits) - 1 - total, 1 << 62).min()
    if least > most:
        return None
    return replace(known, constant=int(min(max(known.constant, int(least)), int(most))), plain=1)
