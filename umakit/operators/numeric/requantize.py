# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of `umakit/requantize.h` in TIR: pure calls of its functions.

The header defines the arithmetic for generated kernels, drivers and the simulator. Kernels call the
functions by name; the C printer prints the calls and includes the header. For targets without C,
`umakit.lower.expand_requantize` replaces the calls by expressions.
"""

from __future__ import annotations

from umakit import tvm_api
from umakit.operators.numeric.fixed_point import Arithmetic, OwnRounding, Rounding
from umakit.tvm_api import PrimExpr, tirx

HEADER = "umakit/requantize.h"

PREFIX = "umakit_"
RESULTS = {
    f"{PREFIX}{name}": dtype
    for name, dtype in {
        "requantize_tflm": "int32",
        "requantize_tflm_int64": "int32",
        "requantize_ort": "int32",
        "requantize_even": "int32",
        "high_product": "int32",
        "divide_by_power_of_two": "int32",
        "leading_zeros": "int32",
        "reciprocal": "int32",
        "round_to_float32": "int64",
        "divide_to_even": "int64",
        "saturate": "int32",
        "add_and_clamp": "int32",
    }.items()
}
"""The dtype of the result of each function that kernels call."""


def header_call(function: str, *arguments: int | PrimExpr) -> PrimExpr:
    """A call of a function of the header.

    Args:
        function: name without prefix.
        arguments: TIR expressions of the types in the header; Python integers become int32.
    """
    name = f"{PREFIX}{function}"
    values = [tirx.IntImm("int32", a) if isinstance(a, int) else a for a in arguments]
    return tirx.call_pure_extern(RESULTS[name], name, *values)


def called_function(expression: tvm_api.Expr) -> str:
    """The name of the header's function that an expression calls; empty for other expressions."""
    name = str(getattr(getattr(expression, "op", None), "name", ""))
    if not name.endswith("call_pure_extern"):
        return ""
    function = str(expression.args[0].value)
    return function if function in RESULTS else ""


def requantize(
    value: PrimExpr, multiplier: PrimExpr, shift: PrimExpr, rounding: Rounding
) -> PrimExpr:
    """`value * multiplier * 2**(shift - 31)`, rounded; an int32 expression.

    Args:
        value: an int32 expression; an int64 expression for `Arithmetic.EVEN`, and for multipliers
            of 15 bits (`multipliers.reduced_multipliers`), where the factor is `2**(shift - 15)`.
    """
    factor = (multiplier.astype("int32"), shift.astype("int32"))
    if isinstance(rounding, OwnRounding):
        return tirx.call_pure_extern("int32", rounding.function, value.astype("int32"), *factor)
    if rounding is Arithmetic.EVEN:
        return header_call("requantize_even", value.astype("int64"), *factor)
    if tvm_api.dtype_of(value) == "int64":
        return header_call("requantize_tflm_int64", value, *factor)
    return header_call(f"requantize_{rounding.value}", value, *factor)


def add_and_clamp(value: PrimExpr, zero_point: int, lowest: int, highest: int) -> PrimExpr:
    """An int32 expression plus a zero point, clipped."""
    return header_call("add_and_clamp", value, zero_point, lowest, highest)
