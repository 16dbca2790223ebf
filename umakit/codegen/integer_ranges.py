# SPDX-License-Identifier: Apache-2.0
"""Ranges of integer expressions, which show that arithmetic cannot overflow.

TIR wraps around and C leaves the overflow of signed integers undefined, so arithmetic on data is
printed with unsigned types. Where dtypes alone show that nothing overflows, as for a product of two
int8 in 32 bits, plain signed C is printed, which compilers vectorize.
"""

from __future__ import annotations

import numpy as np

from umakit import tvm_api
from umakit.operators.numeric import requantize
from umakit.operators.numeric.fixed_point import Arithmetic

Range = tuple[int, int]
ARITHMETIC = ("Add", "Sub", "Mul")
REQUANTIZE = tuple(f"umakit_requantize_{rounding.value}" for rounding in Arithmetic)


def overflows(node: tvm_api.PrimExpr) -> bool:
    """Whether an addition, subtraction or multiplication may leave the range of its dtype."""
    low, high = _unlimited(node)
    least, largest = _limits(str(node.ty.dtype))
    return low < least or high > largest


def integer_range(node: tvm_api.PrimExpr) -> Range:
    """Return the range of an integer expression, derived from the dtypes of its operands."""
    limits = _limits(str(node.ty.dtype))
    kind = type(node).__name__
    value = tvm_api.integer_value(node)
    if value is not None:
        return value, value
    if kind in ARITHMETIC:
        return limits if overflows(node) else _unlimited(node)
    if kind == "Cast" and _is_integer(node.value):
        low, high = integer_range(node.value)
        return (low, high) if limits[0] <= low and high <= limits[1] else limits
    if kind in ("Min", "Max"):
        pick = min if kind == "Min" else max
        (a, b), (c, d) = integer_range(node.a), integer_range(node.b)
        return pick(a, c), pick(b, d)
    return _result_range(requantize.called_function(node), node, limits)


def _result_range(function: str, node: tvm_api.PrimExpr, limits: Range) -> Range:
    """Return the range of the result of a function of `umakit/requantize.h`, or of its dtype."""
    arguments = [integer_range(argument) for argument in node.args[1:]] if function else []
    if function == "umakit_add_and_clamp":
        return arguments[2][0], arguments[3][1]
    if function == "umakit_leading_zeros":
        return 0, 32
    if function in REQUANTIZE:
        value, multiplier = (max(abs(low), abs(high)) for low, high in arguments[:2])
        least_right = 31 - arguments[2][1]
        if 31 <= least_right <= 62:
            # Rounded up twice at most; float32 rounds to the next power of two at most.
            power = 1 << ((value * multiplier >> least_right) + 2).bit_length()
            return max(-power, limits[0]), min(power, limits[1])
    return limits


def _unlimited(node: tvm_api.PrimExpr) -> Range:
    """Return the range of an arithmetic operation on unbounded integers."""
    (a, b), (c, d) = integer_range(node.a), integer_range(node.b)
    kind = type(node).__name__
    if kind == "Add":
        return a + c, b + d
    if kind == "Sub":
        return a - d, b - c
    products = (a * c, a * d, b * c, b * d)
    return min(products), max(products)


def _is_integer(node: tvm_api.PrimExpr) -> bool:
    return str(node.ty.dtype).startswith(("int", "uint"))


def _limits(dtype: str) -> Range:
    if not dtype.startswith(("int", "uint")):
        return (0, 1) if dtype == "bool" else (-(2**63), 2**64)
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)
