# SPDX-License-Identifier: Apache-2.0
"""Sums and products of two quantized tensors, equal to ONNX Runtime's float32 arithmetic.

Each float32 constant is an integer multiple of a common power of two, so the same steps can be
taken in 64-bit integers, rounded to 24 bits wherever float32 is rounded. This rounding is rarely
needed: all pairs of integers are tried here, and if a constant makes the exact sum give the same
result for each pair, the kernel computes the exact sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, TypeVar

import numpy as np

from umakit import tvm_api
from umakit.operators.drawings import pairs
from umakit.operators.interface import PAIR, Interface
from umakit.operators.islands import Island, arithmetic_of
from umakit.operators.kernels.elementwise import elementwise_kernel
from umakit.operators.kernels.loops import store_shifted
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.numeric.float32 import divide_to_even, float32_integer, round_to_float32
from umakit.operators.numeric.requantize import header_call
from umakit.operators.parameters import CommonFields, Pair, Parameters
from umakit.operators.registry import Recognition, Shapes, register
from umakit.operators.tables.functions import all_integers, dequantized, quantized
from umakit.operators.tensors import Array, NoIntegerForm, Scale
from umakit.tvm_api import Buffer, PrimExpr, PrimFunc, Stmt, int32, int64, tirx

MOST_BITS = 60
"""Maximum number of bits of an intermediate result."""

MOST_FRACTION_BITS = 40
FEWEST_FRACTION_BITS = 24


@dataclass(frozen=True)
class Float32Pair(Parameters):
    """Two tensors combined in fixed point, with the results of float32.

    Attributes:
        offsets: numbers added to left and right first.
        factors: factors of left and right; for `Float32Product`, of the product and unused.
        constant: number added to the scaled operands.
        fraction_bits: number of fractional bits of factors and constant.
        output_offset: number added to the result, including the zero point.
        scalar: 1 or 2 if left or right is one number for each run of the other operand, else 0.
        plain: whether the sum is computed without intermediate rounding, because the results are
            equal or the arithmetic is defined this way; the constant then includes half an LSB.
    """

    multiplies: ClassVar[bool] = False

    offsets: Pair
    factors: Pair
    constant: int
    fraction_bits: int
    output_offset: int
    scalar: int
    plain: int


P = TypeVar("P", bound=Float32Pair)


def exact_sum(
    kind: type[P],
    common: CommonFields,
    scales: Sequence[Scale],
    target: Scale,
    shapes: Sequence[tuple[int, ...]],
) -> P:
    """Return the parameters of a sum equal to ONNX Runtime's.

    int8 is computed as uint8, as in ONNX Runtime on x86-64.
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
    parameters = kind(
        **common,
        offsets=(offset, offset),
        factors=(fields[0], fields[1]),
        constant=fields[2],
        fraction_bits=bits,
        output_offset=-offset,
        scalar=_scalar(*shapes),
        plain=0,
    )
    return _simplified(parameters, left.dtype, right.dtype)


def exact_product(
    kind: type[P],
    common: CommonFields,
    scales: Sequence[Scale],
    target: Scale,
    shapes: Sequence[tuple[int, ...]],
) -> P:
    """Return the parameters of a product; arguments and errors as in `exact_sum`."""
    offset = 128 if target.dtype == "int8" else 0
    left, right = scales
    ratio = np.float32(left.scale * right.scale) / target.scale
    values = [ratio, np.float32(target.zero_point + offset)]
    fields, bits = _fixed_point(values, factor_bits=17)
    parameters = kind(
        **common,
        offsets=(-left.zero_point, -right.zero_point),
        factors=(fields[0], 0),
        constant=fields[1],
        fraction_bits=bits,
        output_offset=-offset,
        scalar=0,
        plain=0,
    )
    return _simplified(parameters, left.dtype, right.dtype)


def nearest_pair(
    kind: type[P], common: CommonFields, scales: Sequence[Scale], target: Scale, sign: int = 1
) -> P:
    """Return the parameters of a sum, difference or product of any dtypes, rounded once.

    ONNX Runtime dequantizes the operands, combines them in float32 and quantizes the result. The
    result is the same if a constant suits all pairs of 8-bit integers; otherwise a few pairs with
    results close to a tie differ by one.

    Args:
        sign: -1 for a difference.
    """
    left, right = scales
    if kind.multiplies:
        ratios = [float(left.scale) * float(right.scale) / float(target.scale)]
        magnitudes = [left.magnitude * right.magnitude]
    else:
        ratios = [float(left.scale) / float(target.scale)]
        ratios.append(sign * float(right.scale) / float(target.scale))
        magnitudes = [left.magnitude, right.magnitude]
    largest = sum(abs(r) * m for r, m in zip(ratios, magnitudes, strict=True)) + 2**17
    bits = min(MOST_FRACTION_BITS, MOST_BITS - math.ceil(math.log2(largest)))
    if bits < FEWEST_FRACTION_BITS:
        raise NoIntegerForm("the scales are too different")
    factors = [round(ratio * 2**bits) for ratio in ratios]
    parameters = kind(
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
        return parameters
    a, b = dequantized(left)[:, None], dequantized(right)[None, :]
    reals = a * b if parameters.multiplies else a + b if sign > 0 else a - b
    wanted = quantized(reals, target, parameters.clip).astype(np.int64)
    return _with_constant(parameters, left.dtype, right.dtype, wanted) or parameters


def _fixed_point(values: Sequence[float | np.float32], factor_bits: int) -> tuple[list[int], int]:
    """Return float32 numbers as integers with a common number of fraction bits, and this number.

    All numbers but the last are factors of integers of `factor_bits` bits.
    """
    pairs = [float32_integer(np.float32(value)) for value in values]
    bits = max(1, *(-exponent for _, exponent in pairs))
    if bits > MOST_BITS - 12:
        raise NoIntegerForm("the scales are too different")
    integers = [mantissa << (bits + exponent) for mantissa, exponent in pairs]
    *factors, constant = (abs(integer) for integer in integers)
    if (sum(factors) << factor_bits) + constant >= 1 << MOST_BITS:
        raise NoIntegerForm("the scales are too different")
    return integers, bits


def _scalar(left: Sequence[int], right: Sequence[int]) -> int:
    """Return 1 or 2 if ONNX Runtime broadcasts left or right as one number per run, else 0."""
    rank = max(len(left), len(right))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in (left, right)]
    for first, second in zip(*(reversed(shape) for shape in padded), strict=True):
        if first != second:
            return 1 if first == 1 else 2
        if first > 1:
            return 0
    return 0


def exact_results(parameters: Float32Pair, left: Array, right: Array) -> Array:
    """Return the int64 results before clipping, with each step rounded as in float32.

    Args:
        left, right: int64 arrays whose shapes broadcast.
    """
    a, b = left + parameters.offsets[0], right + parameters.offsets[1]
    if parameters.multiplies:
        total = round_to_float32(
            round_to_float32(a * b * parameters.factors[0]) + parameters.constant
        )
    else:
        parts = [a * parameters.factors[0], b * parameters.factors[1]]
        first, second = (0, 1) if parameters.scalar == 1 else (1, 0)
        part = round_to_float32(parts[first]) if parameters.scalar else parts[first]
        total = round_to_float32(round_to_float32(part + parameters.constant) + parts[second])
    return divide_to_even(total, parameters.fraction_bits) + parameters.output_offset


def _simplified(parameters: P, left: str, right: str) -> P:
    """Return parameters with `plain` if a constant makes the exact sum right for all pairs."""
    a, b = all_integers(left)[:, None], all_integers(right)[None, :]
    results = np.clip(exact_results(parameters, a, b), *parameters.clip)
    halved = replace(
        parameters, constant=parameters.constant + (1 << (parameters.fraction_bits - 1))
    )
    return _with_constant(halved, left, right, results) or parameters


def _with_constant(parameters: P, left: str, right: str, wanted: Array) -> P | None:
    """Return parameters with `plain` and the constant that yields the given results, if any.

    Args:
        wanted: clipped results, int64[256, 256].
    """
    low, high = (limit - parameters.output_offset for limit in parameters.clip)
    results = wanted - parameters.output_offset
    a = all_integers(left)[:, None] + parameters.offsets[0]
    b = all_integers(right)[None, :] + parameters.offsets[1]
    if parameters.multiplies:
        total = a * b * parameters.factors[0]
    else:
        total = a * parameters.factors[0] + b * parameters.factors[1]
    bits = parameters.fraction_bits
    # (total + constant) >> bits must be the result: a lower and an upper bound for each pair.
    least = np.where(results > low, (results << bits) - total, -(1 << 62)).max()
    most = np.where(results < high, ((results + 1) << bits) - 1 - total, 1 << 62).min()
    if least > most:
        return None
    return replace(
        parameters, constant=int(min(max(parameters.constant, int(least)), int(most))), plain=1
    )


# --- islands and kernel ---------------------------------------------------------------------------


def derive_pair(
    kind: type[P], fused: Callable[..., P] | None, island: Island, sign: int = 1
) -> tvm_api.Expr:
    """Return a call of a sum, difference or product; ONNX Runtime fuses operands of equal dtypes.

    Args:
        fused: `exact_sum`, `exact_product`, or None.
        sign: -1 for a difference.
    """
    result, operands = island.result, island.operands()
    scales = [operand.scale for operand in operands]
    dtypes = {scale.dtype for scale in (*scales, result.scale)}
    arithmetic = arithmetic_of(*scales, result.scale)
    if fused is not None and len(dtypes) == 1 and arithmetic is Arithmetic.ORT:
        shapes = [tvm_api.static_shape(operand.integers) or () for operand in operands]
        parameters = fused(kind, result.common(Arithmetic.ORT), scales, result.scale, shapes)
    else:
        parameters = nearest_pair(kind, result.common(arithmetic), scales, result.scale, sign)
    return parameters.call([operand.integers for operand in operands], result.span)


def pair_kernel(parameters: Float32Pair, shapes: Shapes, dtypes: list[str]) -> PrimFunc:
    """Return the kernel (left, right, output) of a sum or product."""
    widened = int64 if any(dtype.endswith("16") for dtype in dtypes) else int32

    def one(output: Buffer, place: list[PrimExpr], *pair: PrimExpr) -> Stmt:
        a, b = (
            widened(int32(element) + int32(offset))
            for element, offset in zip(pair, parameters.offsets, strict=True)
        )
        value = _combined(parameters, a, b)
        return store_shifted(output, place, value, parameters.output_offset, parameters)

    return elementwise_kernel(parameters, shapes, dtypes, ("left", "right"), one)


def _combined(parameters: Float32Pair, a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """Return the int32 result of two expressions before the offset, as in `exact_results`.

    The expressions are int32, or int64 if their product has more than 32 bits.
    """
    constant = int64(parameters.constant)
    if parameters.multiplies:
        parts = [int64(a * b) * int64(parameters.factors[0])]
        first, second = 0, None
    else:
        parts = [int64(a) * int64(parameters.factors[0]), int64(b) * int64(parameters.factors[1])]
        first, second = (0, 1) if parameters.scalar == 1 else (1, 0)
    if parameters.plain:
        # GCC 12 (-O2) loses the high bits of a number that is shifted by a constant and added to
        # next, when it vectorizes; not where the number is limited first. So limit it to what can
        # be stored.
        total = sum(parts[1:], parts[0]) + constant
        low, high = (limit - parameters.output_offset for limit in parameters.clip)
        limited = tirx.max(
            tirx.min(total >> int64(parameters.fraction_bits), int64(high)), int64(low)
        )
        return limited.astype("int32")
    part = parts[first]
    if parameters.scalar or second is None:
        part = header_call("round_to_float32", part)
    total = header_call("round_to_float32", part + constant)
    if second is not None:
        total = header_call("round_to_float32", total + parts[second])
    return header_call("saturate", header_call("divide_to_even", total, parameters.fraction_bits))


@dataclass(frozen=True)
class Float32Sum(Float32Pair):
    """ONNX Runtime's QLinearAdd on x86-64 with AVX2: fma(a, A / C, fma(b, B / C, constant)).

    A difference has a negative second factor.
    """

    operator: ClassVar[str] = "float32_sum"


register(
    parameters=Float32Sum,
    kernel_of_operands=pair_kernel,
    recognitions=(
        Recognition(("add",), partial(derive_pair, Float32Sum, exact_sum), (Arithmetic.ORT,)),
        Recognition(
            ("subtract",), partial(derive_pair, Float32Sum, None, sign=-1), (Arithmetic.ORT,)
        ),
    ),
    takes_clip=True,
    drawing=pairs.with_float32(Float32Sum, exact_sum),
    interface=Interface(
        operands=PAIR, broadcasts=False, wide=("left_factor", "right_factor", "constant")
    ),
)


@dataclass(frozen=True)
class Float32Product(Float32Pair):
    """ONNX Runtime's QLinearMul: a * b * ratio + zero point, each step rounded."""

    operator: ClassVar[str] = "float32_product"
    multiplies: ClassVar[bool] = True


register(
    parameters=Float32Product,
    kernel_of_operands=pair_kernel,
    recognitions=(
        Recognition(
            ("multiply",),
            partial(derive_pair, Float32Product, exact_product),
            (Arithmetic.ORT,),
        ),
    ),
    takes_clip=True,
    drawing=pairs.with_float32(Float32Product, exact_product),
    interface=Interface(
        operands=PAIR,
        broadcasts=False,
        names={"factors": ("factor", "")},
        wide=("factor", "constant"),
    ),
)
