# SPDX-License-Identifier: Apache-2.0
"""Operations whose result in C may differ from TIR's: overflow, promotion, division, shifts.

TIR wraps around in each dtype. C computes small integers in `int`, and leaves the overflow of
signed integers undefined, as well as divisions and shifts by some numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.codegen.integer_ranges import ARITHMETIC, IntegerRanges

SMALL_INTEGERS = ("int8", "int16", "uint8", "uint16")
PROMOTIONS = {
    *((small, "int16") for small in ("int8", "uint8")),
    *((small, "int32") for small in SMALL_INTEGERS),
}
"""Value-preserving casts, as (from, to), that C performs implicitly."""
BY_DTYPE = IntegerRanges()
"""Ranges that dtypes alone show, as compilers know them."""


def dtype(expression: tvm_api.PrimExpr) -> str:
    """Return the dtype of a TIR expression."""
    return str(expression.ty.dtype)


def is_promotion(node: tvm_api.PrimExpr) -> bool:
    """Whether a cast to 16 or 32 bits equals C's implicit integer promotion."""
    if type(node).__name__ != "Cast" or dtype(node.value) not in SMALL_INTEGERS:
        return False
    return (dtype(node.value), dtype(node)) in PROMOTIONS


class CArithmetic:
    """Questions about the operations of one kernel; without ranges, only dtypes are known."""

    def __init__(self, ranges: IntegerRanges | None = None) -> None:
        self.ranges = IntegerRanges() if ranges is None else ranges
        self._data: set[Any] = set()

    def bind(self, variable: tvm_api.Var, value: tvm_api.PrimExpr) -> None:
        """Record the bound value of a variable, to know whether it depends on data."""
        if self.depends_on_data(value):
            self._data.add(variable)

    def is_data(self, variable: tvm_api.Var) -> bool:
        """Whether a bound variable depends on data and not only on loop variables."""
        return variable in self._data

    def depends_on_data(self, expression: tvm_api.PrimExpr) -> bool:
        """Whether an expression reads a tensor and does not only depend on loop variables."""
        if tvm_api.collect(expression, tvm_api.TensorLoad):
            return True
        return any(variable in self._data for variable in tvm_api.collect(expression, tvm_api.Var))

    def may_wrap_around(self, node: tvm_api.PrimExpr) -> bool:
        """Whether data may make a signed operation overflow."""
        return self.depends_on_data(node) and self.ranges.overflows(node)

    def needs_more_than_int(self, node: tvm_api.PrimExpr) -> bool:
        """Whether C computes an int32 as int, with possibly more than the 16 bits of C99's int."""
        if not (self._is_narrow(node.a) and self._is_narrow(node.b)):
            return False
        low, high = self.ranges.of(node)
        return low < -(2**15) or high >= 2**15

    def _is_narrow(self, node: tvm_api.PrimExpr) -> bool:
        """Whether the C text of an expression may have a type of only 16 bits."""
        if dtype(node) in SMALL_INTEGERS or is_promotion(node):
            return True
        value = tvm_api.integer_value(node)
        if value is not None:
            return -(2**15) <= value < 2**15
        if type(node).__name__ not in ARITHMETIC or self.needs_more_than_int(node):
            return False
        return self._is_narrow(node.a) and self._is_narrow(node.b)

    def needs_guard(self, node: tvm_api.PrimExpr) -> bool:
        """Whether a node divides an integer by data that may be 0 or -1."""
        if dtype(node).startswith("float") or not self.depends_on_data(node):
            return False
        low, high = self.ranges.of(node.b)
        return low <= 0 <= high or (low <= -1 <= high and not dtype(node).startswith("uint"))

    def may_leave_width(self, value: tvm_api.PrimExpr, amount: tvm_api.PrimExpr) -> bool:
        """Whether a shift amount depends on data and may be negative or at least the width."""
        low, high = self.ranges.of(amount)
        wide = low < 0 or high >= np.iinfo(dtype(value)).bits
        return wide and self.depends_on_data(amount)


LONGEST = 50
"""Maximum number of characters of an operation that a comment repeats."""

NOUNS = {"Add": "sum", "Sub": "difference", "Mul": "product"}

SUM_COMMENT = "/* Could overflow as a signed sum: unsigned, it wraps around. */"
"""Comment on a local sum of signed integers whose type is unsigned."""


@dataclass(frozen=True)
class WrappingOperation:
    """A signed addition, subtraction or multiplication, printed with unsigned types."""

    kind: str
    c_type: str
    text: str


def overflow_comment(operations: Sequence[WrappingOperation]) -> str:
    """Return a comment that names the operations of a statement that could overflow."""
    types = " and ".join(sorted({operation.c_type for operation in operations}))
    if len(operations) == 1 and len(operations[0].text) <= LONGEST:
        subject = operations[0].text
    else:
        nouns = dict.fromkeys(NOUNS[operation.kind] for operation in operations)
        subject = f"The {' and the '.join(nouns)}"
    return f"/* {subject} could overflow {types}: unsigned types wrap around. */"
