# SPDX-License-Identifier: Apache-2.0
"""1 / sqrt(n) of an integer in fixed point, after `GetInvSqrtQuantizedMultiplierExp`.

The source is TensorFlow Lite's kernels/internal/common.h. `inverse_square_root` computes with
Python's integers for tables, `in_fixed_point` with TIR for kernels.
"""

from __future__ import annotations

from umakit.operators.numeric.fixed_point import high_product, shift_right_rounding
from umakit.operators.numeric.requantize import header_call
from umakit.tvm_api import Expr, PrimExpr, Stmt, tirx

LARGEST = 2**29 - 1
"""Largest integer that is taken here; the reference divides larger ones by 4 first."""

INT32_MAX = 2**31 - 1
ONE, ONE_AND_A_HALF = 1 << 28, (1 << 28) + (1 << 27)
"""With 28 fractional bits."""

HALF_SQRT_2 = 1518500250
"""With 31 fractional bits."""

NEWTON_STEPS = 5
SHIFT = 11


def inverse_square_root(value: int) -> tuple[int, int]:
    """(multiplier, shift) of 1 / sqrt(value) = `multiplier * 2**(shift - 31)`.

    Args:
        value: 0 to `LARGEST`; 0 counts as 1.
    """
    assert 0 <= value <= LARGEST, value
    if value <= 1:
        return INT32_MAX, 0
    pairs = (31 - value.bit_length()) // 2 - 1
    whole = (value << (2 * pairs)) >> 1
    half, x = shift_right_rounding(whole, 1), ONE
    for _ in range(NEWTON_STEPS):
        cube = _saturated(high_product(high_product(x, x), x) << 6)
        x = _saturated((high_product(ONE_AND_A_HALF, x) - high_product(half, cube)) << 3)
    x = high_product(x, HALF_SQRT_2)
    shift = SHIFT - pairs
    return (x << -shift, 0) if shift < 0 else (x, -shift)


def _saturated(value: int) -> int:
    return min(max(value, -(2**31)), INT32_MAX)


def in_fixed_point(value: PrimExpr) -> tuple[list[Stmt], PrimExpr, PrimExpr]:
    """Return statements, and int32 expressions of multiplier and shift of 1 / sqrt(value).

    Args:
        value: int32 expression that reads data, 0 to `LARGEST`; 0 counts as 1.
    """
    # In memory: TVM would put the formulas of variables in their place again and again.
    root = tirx.decl_buffer([4], "int32", "root", scope="local")
    number = {name: _int32(place) for place, name in enumerate(("x", "half", "pairs", "norm"))}
    x, half, pairs, norm = (root[number[name]] for name in ("x", "half", "pairs", "norm"))
    store = [
        ("norm", tirx.max(value, _int32(1))),
        ("pairs", ((header_call("leading_zeros", norm) - _int32(1)) >> _int32(1)) - _int32(1)),
        ("half", header_call(
            "divide_by_power_of_two", (norm << (pairs * _int32(2))) >> _int32(1), 1
        )),
        ("x", _int32(ONE)),
    ]  # fmt: skip
    step = tirx.Var("step", "int32")
    square = tirx.Var("square", "int32")
    cube = _widened(header_call("high_product", square, x), 6)
    difference = header_call("high_product", _int32(ONE_AND_A_HALF), x) - header_call(
        "high_product", half, cube
    )
    newton = tirx.SeqStmt([
        tirx.Bind(square, header_call("high_product", x, x)),
        tirx.BufferStore(root, _widened(difference, 3), [number["x"]]),
    ])  # fmt: skip
    shift = _int32(SHIFT) - pairs
    inverse = header_call("high_product", x, _int32(HALF_SQRT_2)) << tirx.max(
        _int32(0) - shift, _int32(0)
    )
    is_one = norm <= _int32(1)
    statements = [
        tirx.AllocBuffer(root),
        *(tirx.BufferStore(root, given, [number[name]]) for name, given in store),
        tirx.For(step, _int32(0), _int32(NEWTON_STEPS), tirx.ForKind.SERIAL, newton),
        tirx.BufferStore(root, tirx.Select(is_one, _int32(INT32_MAX), inverse), [number["x"]]),
        tirx.BufferStore(
            root, tirx.Select(is_one, _int32(0), _int32(0) - tirx.max(shift, _int32(0))),
            [number["half"]],
        ),
    ]  # fmt: skip
    return statements, x, half


def _int32(value: int) -> PrimExpr:
    return tirx.IntImm("int32", value)


def _widened(expression: Expr, bits: int) -> PrimExpr:
    return header_call("saturate", expression.astype("int64") * tirx.IntImm("int64", 1 << bits))
