# SPDX-License-Identifier: Apache-2.0
"""float32 arithmetic in integers: what ONNX Runtime computes between integer tensors.

ONNX Runtime multiplies an int32 sum by a float32 factor and rounds the float32 product to the
nearest integer, ties to even (`MlasRequantizeOutput`). So the result is rounded twice, and a
product next to a tie becomes that tie. Rounding the exact product once differs in a few of a
million sums; here the same is computed with 64-bit integers, exactly.

A float32 has 24 significant bits. In a number with F fractional bits whose highest bit has the
weight 2**k, float32 rounds at most 2**(k - 24) up or down (one bit of the 25th place). A product
that is nearer to a tie n + 1/2 than that (or just as near: the tie's last bit is 0) becomes the
tie, which goes to the even one of n and n + 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api

tirx = tvm_api.tirx
Array = npt.NDArray[Any]

SIGNIFICANT_BITS = 24
LARGEST_FACTOR = 64.0
"""Factors must be smaller, so that a tie's neighbourhood has a whole number of steps."""

QUOTIENT_LIMIT = 1023
"""Larger quotients are clipped whatever they are: results and zero points have 8 bits."""


# --- NumPy --------------------------------------------------------------------------------------


def float32_integer(value: np.float32) -> tuple[int, int]:
    """(m, e) with value == m * 2**e and m odd, or (0, 0)."""
    numerator, denominator = float(value).as_integer_ratio()
    if numerator == 0:
        return 0, 0
    zeros = (numerator & -numerator).bit_length() - 1
    return numerator >> zeros, zeros - (denominator.bit_length() - 1)


def round_to_float32(values: Array) -> Array:
    """Integers rounded to 24 significant bits, ties to even: what float32 makes of them.

    Args:
        values: int64 of magnitudes below 2**62.
    """
    magnitude = np.abs(values)
    unit: Array = np.maximum(_highest_power(magnitude) >> (SIGNIFICANT_BITS - 1), 1)
    odd = ((magnitude & unit) != 0) & (unit > 1)
    rounded: Array = (magnitude + ((unit - 1) >> 1) + odd) & -unit
    return np.asarray(np.where(values < 0, -rounded, rounded))


def _highest_power(values: Array) -> Array:
    """The highest power of two in each of some positive integers; 0 in 0."""
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


# --- the same in TIR ----------------------------------------------------------------------------


def int64(value: Any) -> Any:
    """An expression of, or converted to, 64 bits."""
    return tirx.IntImm("int64", value) if isinstance(value, int) else value.astype("int64")


def bind_data(name: str, value: Any) -> tuple[list[Any], Any]:
    """A variable for an int64 value that reads data, and its binding.

    TVM finds common subexpressions by itself where no data is read; a variable for them would be
    left without a use.
    """
    if not tvm_api.collect(value, tvm_api.TensorLoad):
        return [], value
    return bind(name, value)


def bind(name: str, value: Any) -> tuple[list[Any], Any]:
    """A variable for an int64 value, and its binding."""
    variable = tirx.Var(name, "int64")
    return [tirx.Bind(variable, value)], variable


def float32_product(value: Any, multiplier: Any, right: Any, at_most: int) -> tuple[list[Any], Any]:
    """TIR of `rint(float32(value) * factor)` for a float32 factor.

    Args:
        value: an int32 expression.
        multiplier: the factor's 31-bit multiplier.
        right: by how many bits products are shifted, an int64 expression of 25 to 62.
        at_most: what the value's magnitude does not exceed.

    Returns:
        Statements that bind intermediate values, and the int32 result, limited to about +-1024.
    """
    first, signed = bind("signed", int64(value))
    magnitude = tirx.Select(signed < int64(0), int64(0) - signed, signed)
    statements = first
    if at_most >= 2**SIGNIFICANT_BITS:
        more, magnitude = _rounded_magnitude(magnitude, 31)
        statements += more
    second, product = bind("product", magnitude * int64(multiplier))
    third, quotient = bind("quotient", tirx.min(product >> right, int64(QUOTIENT_LIMIT)))
    fourth, smeared = _smeared(quotient, 10)
    # A float32 between n and n + 1 is off by at most this.
    reach = (smeared + int64(1)) << (right - int64(SIGNIFICANT_BITS + 1))
    fifth, reach = bind("reach", reach)
    odd = (quotient & int64(1)) > int64(0)
    towards_even = tirx.Select(odd, reach, int64(-1) - reach)
    half = int64(1) << (right - int64(1))
    rounded = tirx.min((product + half + towards_even) >> right, int64(QUOTIENT_LIMIT + 1))
    sixth, rounded = bind("rounded", rounded)
    result = tirx.Select(signed < int64(0), int64(0) - rounded, rounded)
    return [*statements, *second, *third, *fourth, *fifth, *sixth], result.astype("int32")


def exact_product(value: Any, multiplier: Any, right: Any) -> tuple[list[Any], Any]:
    """TIR of `value * multiplier / 2**right` to the nearest integer, ties to even.

    Args:
        value: an expression of 32 or 64 bits; products are below 2**62 (`exact_multipliers`).
        multiplier: an integer expression.
        right: an int64 expression of 1 to 62.

    Returns:
        Statements that bind intermediate values, and the int32 result, limited to 31 bits.
    """
    statements, product = bind("product", int64(value) * int64(multiplier))
    half = int64(1) << (right - int64(1))
    odd = (product >> right) & int64(1)
    return statements, _limited((product + (half - int64(1) + odd)) >> right)


def float32_rounding(value: Any) -> tuple[list[Any], Any]:
    """TIR of `round_to_float32` of an int64 expression; statements and the result."""
    first, signed = _stored("signed", value)
    magnitude = tirx.Select(signed < int64(0), int64(0) - signed, signed)
    second, rounded = _rounded_magnitude(magnitude, 62)
    result = tirx.Select(signed < int64(0), int64(0) - rounded, rounded)
    third, result = _stored("result", result)
    return [*first, *second, *third], result


def divide_to_even_expression(value: Any, exponent: int) -> Any:
    """TIR of `divide_to_even` of an int64 variable, as int32."""
    half_less = int64(((1 << exponent) >> 1) - 1)
    odd = (value >> int64(exponent)) & int64(1)
    return _limited((value + half_less + odd) >> int64(exponent))


def _limited(value: Any) -> Any:
    """An int64 as int32."""
    return tirx.max(tirx.min(value, int64(2**30)), int64(-(2**30))).astype("int32")


def _rounded_magnitude(magnitude: Any, bits: int) -> tuple[list[Any], Any]:
    """A number of at most so many bits, rounded to 24 of them."""
    first, smeared = _smeared(magnitude, bits)
    highest = (smeared + int64(1)) >> int64(1)
    unit = tirx.max(highest >> int64(SIGNIFICANT_BITS - 1), int64(1))
    second, unit = bind("unit", unit)
    # Half a unit if the last place is odd, else a little less; nothing if all bits fit.
    odd = tirx.Select(tirx.all(unit > int64(1), (magnitude & unit) > int64(0)), int64(1), int64(0))
    total = magnitude + ((unit - int64(1)) >> int64(1)) + odd
    third, rounded = bind("rounded", total & (int64(0) - unit))
    return [*first, *second, *third], rounded


def _smeared(value: Any, bits: int) -> tuple[list[Any], Any]:
    """A number of at most so many bits with all bits below its highest set."""
    statements, smeared = _stored("smeared", value)
    step = 1
    while step < bits:
        wider = smeared | (smeared >> int64(step))
        statements.append(tirx.BufferStore(smeared.source, wider, smeared.indices))
        step *= 2
    more, result = bind("below", smeared)
    return [*statements, *more], result


def _stored(name: str, value: Any) -> tuple[list[Any], Any]:
    """A local variable for an int64 value, and how it is read.

    TVM would put expressions in the place of bindings. Where they are used twice in each of several
    steps, there would be more and more of them.
    """
    local, zero = tirx.decl_buffer([1], "int64", name, scope="local"), tirx.IntImm("int32", 0)
    return [tirx.AllocBuffer(local), tirx.BufferStore(local, value, [zero])], local[zero]
