# SPDX-License-Identifier: Apache-2.0
"""Inline functions of generated C for operations that C leaves undefined or that would lose NaN.

Each function is defined for all values of its arguments:

- `maximum`, `minimum`: NaN if an argument is NaN, as in IEEE 754-2019; the sign of the result is
  open for two zeros of different signs, as in NumPy.
- `at_least`, `at_most`: maximum and minimum for a limit other than NaN, in one comparison.
- `int8_from`, ...: conversions of floats, truncated and limited to the type; NaN becomes 0.
- `quotient`, `remainder`: a division by 0 gives 0, as in NumPy; the lowest number by -1 wraps.
- `shift_left`, `shift_right`: amounts outside of the type's width shift all bits out.

Functions of vectors of floats compute lane by lane, without branches, with errors of less than two
units in the last place. NaN, infinities, zeros with their sign, subnormal numbers and overflow are
as in the functions of `math.h`, but nothing sets `errno`.

- `exp`: W. Cody and W. Waite, "Software Manual for the Elementary Functions", 1980: x is n times
  ln(2) plus a rest. The upper part of ln(2) has so few digits that its product with n is exact.
  The polynomial of the rest is from `expf` in S. Moshier's Cephes library. The result is
  multiplied by 2^n in two steps, since 2^n need not be a normal number.
- `tanh`: the polynomial of Cephes' `tanhf` below 0.625, and 1 - 2 / (exp(2 x) + 1) above.
- `erf`: x + x P(x^2) below 59/64, and 1 - exp(-x Q(x)) above. P and Q were fitted in float64 with
  the smallest relative error, by C. Lawson's weights, each coefficient rounded before the next.
"""

from __future__ import annotations

import math
import re

import numpy as np

from umakit.codegen.c_types import c_type, float_literal, integer_literal
from umakit.text.names import HELPER, VECTOR_FUNCTIONS

EXPONENTIAL = "exp"
"""Function that other vector functions call."""

BODIES = {
    "exp": """
    const VECTOR limited = at_most_VECTOR(broadcast_VECTOR(90.0f),
        at_least_VECTOR(broadcast_VECTOR(-105.0f), x));
    /* Adding 1.5 * 2^23 rounds to an integer, which is in the lowest bits then. */
    const VECTOR n = limited * 1.44269504f + 12582912.0f - 12582912.0f;
    const VECTOR r = limited - n * 0.693359375f + n * 2.12194440e-4f;
    const VECTOR p = ((((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r
        + 4.1665795894e-2f) * r + 1.6666665459e-1f) * r + 5.0000001201e-1f;
    const VECTOR half = n * 0.5f + 12582912.0f - 12582912.0f;
    const BITS scale = (BITS)(half + 12583039.0f) << 23;
    const BITS rest = (BITS)(n - half + 12583039.0f) << 23;

    return (p * r * r + r + 1.0f) * (VECTOR)scale * (VECTOR)rest;
""",
    "tanh": """
    const BITS sign = (BITS)x & 0x80000000u;
    const VECTOR a = (VECTOR)((BITS)x & 0x7fffffffu);
    const VECTOR z = a * a;
    const VECTOR p = (((-5.70498872745e-3f * z + 2.06390887954e-2f) * z - 5.37397155531e-2f) * z
        + 1.33314422036e-1f) * z - 3.33332819422e-1f;
    const VECTOR large = 1.0f - 2.0f / (exp_VECTOR(a + a) + 1.0f);
    const BITS is_small = (BITS)(a < 0.625f);
    const BITS result = ((BITS)(p * z * a + a) & is_small) | ((BITS)large & ~is_small);

    return (VECTOR)(result | sign);
""",
    "erf": """
    const BITS sign = (BITS)x & 0x80000000u;
    const VECTOR a = at_most_VECTOR(broadcast_VECTOR(4.0f), (VECTOR)((BITS)x & 0x7fffffffu));
    const VECTOR z = a * a;
    const VECTOR p = ((((-5.9945049e-4f * z + 4.9940380e-3f) * z - 2.6767349e-2f) * z
        + 1.1281844e-1f) * z - 3.7612498e-1f) * z + 1.2837915e-1f;
    const VECTOR q = (((((1.1300842e-5f * a - 3.2350642e-4f) * a + 3.6453379e-3f) * a
        - 2.3768190e-2f) * a + 1.0624403e-1f) * a + 6.3514698e-1f) * a + 1.2864956e-1f;
    const VECTOR large = 1.0f - exp_VECTOR(-(q * a + a));
    const BITS is_small = (BITS)(a < 0.921875f);
    const BITS result = ((BITS)(p * a + a) & is_small) | ((BITS)large & ~is_small);

    return (VECTOR)(result | sign);
""",
    "fabs": """
    return (VECTOR)((BITS)x & 0x7fffffffu);
""",
}
"""C text of each function of `x`."""


def vector_function(operation: str, vector: str) -> str:
    """Return the body of an inline function of a vector of floats."""
    bits = vector.replace("float32", "uint32")
    return BODIES[operation].strip("\n").replace("VECTOR", vector).replace("BITS", bits)


def needed_helpers(operation: str, vector: str) -> set[str]:
    """Return the names of a vector function and of its required helpers."""
    found = {f"{operation}_{vector}"}
    text = vector_function(operation, vector)
    for type_ in ("float32", "int32", "uint32"):
        found.add(f"vector_{vector.replace('float32', type_)}")
    for name in re.findall(rf"\b([a-z_]+)_{vector}\b", text):
        needs_more = name in BODIES and name != operation
        found |= needed_helpers(name, vector) if needs_more else {f"{name}_{vector}"}
    return found


EXTREMES = {"maximum": ">", "minimum": "<"}
VECTOR_HELPER = re.compile(
    rf"(?P<operation>vector|broadcast|lower|upper|maximum|minimum|at_least|at_most|{'|'.join(VECTOR_FUNCTIONS)})"
    r"_(?P<vector>(?P<type>float32|u?int32|int16)x(?P<lanes>\d+))"
)
HALVES = ("lower", "upper")
"""Halves of two vectors whose numbers alternate."""

LIMITS = {"at_least": ">=", "at_most": "<="}


def helper_definition(name: str) -> str:
    """Return the C definition of an inline helper such as `maximum_float32`, a name of `HELPER`."""
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
