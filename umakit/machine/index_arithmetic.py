# SPDX-License-Identifier: Apache-2.0
"""Index arithmetic on Python integers and on TIR expressions, with the same results.

A tile's coordinates are computed by the same code for the cost model (integers) and for the
arguments of driver calls (TIR variables).
"""

from __future__ import annotations

from typing import Any

from umakit import tir, tvm_api

Number = Any
"""An int or a TIR expression of int32."""


def minimum(left: Number, right: Number) -> Number:
    """Return the smaller operand."""
    if isinstance(left, int) and isinstance(right, int):
        return min(left, right)
    return tvm_api.tirx.min(left, right)


def maximum(left: Number, right: Number) -> Number:
    """Return the larger operand."""
    if isinstance(left, int) and isinstance(right, int):
        return max(left, right)
    return tvm_api.tirx.max(left, right)


def floor_div(left: Number, right: int) -> Number:
    """Return the quotient left / right, rounded down."""
    if isinstance(left, int) or right == 1:
        return left // right if isinstance(left, int) else left
    return tvm_api.tirx.floordiv(left, right)


def floor_mod(left: Number, right: int) -> Number:
    """Return the remainder left - right * floor_div(left, right)."""
    return left % right if isinstance(left, int) else tvm_api.tirx.floormod(left, right)


def times(value: Number, name: str, factor: int) -> Number:
    """Return value * factor; the factor gets a name in generated C."""
    return value * (factor if isinstance(value, int) else tir.constant(name, factor))


def named(name: str, value: Number) -> Number:
    """Return a value with a name in generated C; an int stays as it is."""
    return value if isinstance(value, int) else tir.named(name, value)
