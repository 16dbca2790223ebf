# SPDX-License-Identifier: Apache-2.0
"""Inline functions of generated C for operations that C leaves undefined or that would lose NaN.

Each function is defined for all values of its arguments:

- `maximum`, `minimum`: NaN if an argument is NaN, as in IEEE 754-2019; the sign of the result is
  open for two zeros of different signs, as in NumPy.
- `at_least`, `at_most`: maximum and minimum for a limit other than NaN, in one comparison.
- `int8_from`, ...: conversions of floats, truncated and limited to the type; NaN becomes 0.
- `quotient`, `remainder`: a division by 0 gives 0, as in NumPy; the lowest number by -1 wraps.
- `shift_left`, `shift_right`: amounts outside of the type's width shift all bits out.
"""

from __future__ import annotations

import math
import re

import numpy as np

from umakit.codegen.c_types import c_type, float_literal, integer_literal
from umakit.codegen.vector_functions import EXPONENTIAL, vector_function
from umakit.text.names import HELPER, VECTOR_FUNCTIONS

EXTREMES = {"maximum": ">", "minimum": "<"}
VECTOR_HELPER = re.compile(
    rf"(?P<operation>vector|broadcast|lower|upper|maximum|minimum|at_least|at_most|{'|'.join(VECTOR_FUNCTIONS)})"
    r"_(?P<vector>(?P<type>float32|u?int32|int16)x(?P<lanes>\d+))"
)
HALVES = ("lower", "upper")
"""Halves of two vectors whose numbers alternate."""

LIMITS = {"at_least": ">=", "at_most": "<="}


def helper_definition(name: str) -> str:
    """Return the C definition of an inline helper such as `maximum_float32`.

    Args:
        name: operation and argument type, in the form of `umakit.text.names.HELPER`.

    Raises:
        ValueError: there is no such helper.
    """
    vector = VECTOR_HELPER.fullmatch(name)
    if vector is not None:
        return _vector_helper(vector)
    parts = HELPER.fullmatch(name)
    if parts is None:
        raise ValueError(f"no helper is called {name}")
    operation, type_ = parts["operation"], parts["type"]
    if parts["target"]:
        return _function(name, c_type(parts["target"]), [f"{c_type(type_)} x"], _converted(parts))
    spelling = c_type(type_)
    two = [f"{spelling} a", f"{spelling} b"]
    if operation in EXTREMES:
        return _function(name, spelling, two, _extreme(EXTREMES[operation], type_))
    if operation in LIMITS:
        body = [f"return limit {LIMITS[operation]} x ? limit : x;"]
        return _function(name, spelling, [f"{spelling} limit", f"{spelling} x"], body)
    if operation in ("quotient", "remainder"):
        return _function(name, spelling, two, _division(operation, type_))
    if operation in ("shift_left", "shift_right"):
        parameters = [f"{spelling} x", f"{spelling} amount"]
        return _function(name, spelling, parameters, _shift(operation, type_))
    expression = {
        "complement": f"({spelling})~x",
        "absolute": _absolute(type_),
        "rsqrt": "1.0f / sqrtf(x)" if type_ == "float32" else "1.0 / sqrt(x)",
        "sigmoid": "1.0f / (1.0f + expf(-x))" if type_ == "float32" else "1.0 / (1.0 + exp(-x))",
    }[operation]
    return _function(name, spelling, [f"{spelling} x"], [f"return {expression};"])


def helper_order(name: str) -> tuple[int, str]:
    """Return the sorting key of a helper: vector types, then their helpers, then vector functions,
    in the order of their calls."""
    parts = VECTOR_HELPER.fullmatch(name)
    operation = "" if parts is None else parts["operation"]
    if operation not in VECTOR_FUNCTIONS:
        return (0 if operation == "vector" else 1, name)
    return (2 if operation == EXPONENTIAL else 3, name)


def _vector_helper(parts: re.Match[str]) -> str:
    """Return the definition of a vector type of gcc and clang, or of a vector of equal numbers."""
    vector, element, lanes = parts["vector"], c_type(parts["type"]), int(parts["lanes"])
    size = lanes * np.dtype(parts["type"]).itemsize
    if parts["operation"] == "vector":
        # Tensors are arrays of numbers: a vector may begin at each number, and aliases the array.
        attributes = f"vector_size({size}), aligned({size // lanes}), may_alias"
        return f"typedef {element} {vector} __attribute__(({attributes}));\n"
    if parts["operation"] in VECTOR_FUNCTIONS:
        text = vector_function(parts["operation"], vector)
        return f"static inline {vector} {parts[0]}({vector} x)\n{{\n{text}\n}}\n"
    if parts["operation"] in HALVES:
        first = lanes // 2 if parts["operation"] == "upper" else 0
        pairs = ", ".join(f"a[{n}], b[{n}]" for n in range(first, first + lanes // 2))
        body = [f"return ({vector}){{{pairs}}};"]
        return _function(parts[0], vector, [f"{vector} a", f"{vector} b"], body)
    if parts["operation"] == "broadcast":
        numbers = ", ".join(["x"] * lanes)
        return _function(parts[0], vector, [f"{element} x"], [f"return ({vector}){{{numbers}}};"])
    return _vector_extreme(parts[0], parts["operation"], vector, lanes)


def _vector_extreme(name: str, operation: str, vector: str, lanes: int) -> str:
    """Return the definition of an extreme of two vectors, lane by lane."""
    mask = f"int32x{lanes}"

    def chosen(condition: str, yes: str, no: str) -> str:
        return f"({vector})((({mask}){yes} & {condition}) | (({mask}){no} & ~{condition}))"

    if operation in LIMITS:
        body = [
            f"const {mask} beyond = limit {LIMITS[operation]} x;",
            "",
            f"return {chosen('beyond', 'limit', 'x')};",
        ]
        return _function(name, vector, [f"{vector} limit", f"{vector} x"], body)
    body = [
        "/* Comparisons with NaN are false, so that a NaN in b is the result, too. */",
        f"const {mask} first = (a {EXTREMES[operation]} b) | (a != a);",
        "",
        f"return {chosen('first', 'a', 'b')};",
    ]
    return _function(name, vector, [f"{vector} a", f"{vector} b"], body)


def _function(name: str, result: str, parameters: list[str], body: list[str]) -> str:
    lines = "".join(f"    {line}".rstrip() + "\n" for line in body)
    return f"static inline {result} {name}({', '.join(parameters)})\n{{\n{lines}}}\n"


def _extreme(symbol: str, type_: str) -> list[str]:
    if not type_.startswith("float"):
        return [f"return a {symbol} b ? a : b;"]
    # A comparison with NaN is false and leaves NaN in b; compilers have vector forms of both.
    return [
        f"const {c_type(type_)} number = a {symbol} b ? a : b;",
        "",
        "return a != a ? a : number;",
    ]


def _converted(parts: re.Match[str]) -> list[str]:
    """Return a float-to-integer conversion that truncates and saturates, with exact limits."""
    target, type_ = parts["target"], parts["type"]
    limits = np.iinfo(target)
    low, high = int(limits.min), int(limits.max)
    # The least number that truncates to `low`, or `low` itself if no float lies in between.
    digits = 24 if type_ == "float32" else 53
    below = low == 0 or math.log2(-low) < digits
    reached = (
        f"x > {float_literal(low - 1, type_)}" if below else f"x >= {float_literal(low, type_)}"
    )
    lowest = f"x < 0.0{'f' if type_ == 'float32' else ''}"
    return [
        f"if (x >= {float_literal(high + 1, type_)}) {{",
        f"    return {integer_literal(high, target)};",
        "}",
        f"if ({reached}) {{",
        f"    return ({c_type(target)})x;",
        "}",
        f"return {lowest} ? {integer_literal(low, target)} : 0;" if low else "return 0;",
    ]


def _division(operation: str, type_: str) -> list[str]:
    symbol = "/" if operation == "quotient" else "%"
    spelling = c_type(type_)
    if type_ in ("int32", "int64"):
        by_minus_one = f"({spelling})(0u - (u{spelling})a)" if symbol == "/" else "0"
        divided = f"b == -1 ? {by_minus_one} : a {symbol} b"
        return ["if (b == 0) {", "    return 0;", "}", f"return {divided};"]
    small = type_ in ("int8", "int16", "uint8", "uint16")
    divided = f"({spelling})(a {symbol} b)" if small else f"a {symbol} b"
    return ["if (b == 0) {", "    return 0;", "}", f"return {divided};"]


def _shift(operation: str, type_: str) -> list[str]:
    spelling, bits = c_type(type_), np.iinfo(type_).bits
    signed = type_.startswith("int")
    inside = f"amount >= 0 && amount < {bits}" if signed else f"amount < {bits}"
    if operation == "shift_right" and signed:
        return [f"return ({spelling})(x >> ({inside} ? amount : {bits - 1}));"]
    if operation == "shift_right":
        return [f"return ({spelling})({inside} ? x >> amount : 0);"]
    # Through an unsigned type of at least 32 bits: negative numbers must not be shifted left.
    wide = "uint64_t" if bits == 64 else "uint32_t"
    return [f"return ({spelling})({inside} ? ({wide})x << amount : 0);"]


def _absolute(type_: str) -> str:
    spelling = c_type(type_)
    if type_ in ("int32", "int64"):
        return f"x < 0 ? ({spelling})(0u - (u{spelling})x) : x"  # the lowest number has no opposite
    return f"({spelling})(x < 0 ? -x : x)"
