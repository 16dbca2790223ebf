# SPDX-License-Identifier: Apache-2.0
"""C spellings of TVM's types and values."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.errors import LoweringError

C_TYPES = {
    "float32": "float",
    "float64": "double",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "bool": "bool",
}

_TRAILING_ZEROS = re.compile(r"\.?0+p")


def c_type(dtype: str) -> str:
    """Return the C99 type of a TVM dtype."""
    try:
        return C_TYPES[dtype]
    except KeyError:
        raise LoweringError(f"dtype {dtype} has no C99 type") from None


def float_literal(value: float, dtype: str) -> str:
    """Return the shortest decimal literal that is read back as exactly this float32 or float64.

    Infinities and NaN use the macros of `math.h`.
    """
    number = np.float32(value) if dtype == "float32" else np.float64(value)
    suffix = "f" if dtype == "float32" else ""
    # The macros are of float.
    double = "" if dtype == "float32" else "(double)"
    if np.isnan(number):
        return f"{double}NAN"
    if np.isinf(number):
        return f"{double}INFINITY" if number > 0 else f"-{double}INFINITY"
    text = str(number)
    if not any(character in text for character in ".e"):
        text += ".0"
    return text + suffix


def hexadecimal_floats(values: npt.NDArray[Any]) -> list[str]:
    """Return hexadecimal C99 literals of floats, exact whatever the compiler's rounding."""
    if not values.size:
        return []
    suffix = "f" if values.dtype == np.float32 else ""
    # Python writes all 13 digits. One replacement in all numbers is ten times as fast as many.
    text = _TRAILING_ZEROS.sub("p", " ".join(map(float.hex, values.tolist())))
    texts = [f"{number}{suffix}" for number in text.split(" ")]
    for place in np.flatnonzero(~np.isfinite(values)):
        texts[place] = float_literal(float(values[place]), str(values.dtype))
    return texts


def integer_literal(value: int, dtype: str) -> str:
    """Return a C literal of an integer dtype, without implementation-defined conversions."""
    if dtype == "bool":
        return "true" if value else "false"
    if dtype == "int64":
        return "INT64_MIN" if value == -(2**63) else f"INT64_C({value})"
    if dtype == "uint64":
        return f"UINT64_C({value})"
    if dtype == "uint32":
        return f"{value}u"
    return "INT32_MIN" if value == -(2**31) else str(value)
