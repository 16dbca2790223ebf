# SPDX-License-Identifier: Apache-2.0
"""Interval arithmetic on integer expressions, to prove that an index needs no check.

Unlike TVM's analyzer, the arithmetic never assumes that computations on data do not overflow: a
result that may wrap around has the range of its dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.tvm_api import Buffer, Call, PrimExpr, Stmt, TensorLoad, Var

tirx = tvm_api.tirx

Range = tuple[int, int]
Fact = tuple[Any, Range]
"""An expression and the range that an enclosing condition implies for it."""

MOST_COLUMNS = 64
"""Maximum size of the last axis of a constant whose columns are tracked separately: an index tensor
has one column for each dimension that it indexes."""

UNBOUNDED = (-(2**64), 2**64)
NEGATED = {"LT": "GE", "LE": "GT", "GT": "LE", "GE": "LT", "EQ": "NE", "NE": "EQ"}
SWAPPED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "EQ": "EQ", "NE": "NE"}


def dtype_range(dtype: str) -> Range:
    """Return the range of an integer or bool dtype; for other dtypes a range wider than any."""
    if dtype == "bool":
        return 0, 1
    if not dtype.startswith(("int", "uint")):
        return UNBOUNDED
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


@dataclass(frozen=True)
class Elements:
    """The known ranges of the elements of a tensor of constant integers.

    Attributes:
        columns: smallest and largest element at each index of the last axis, if the axis is short.
    """

    every: Range
    columns: tuple[Range, ...] = ()

    @classmethod
    def of(cls, array: npt.NDArray[Any]) -> Elements:
        """Return the ranges of a non-empty array of integers."""
        found = int(array.min()), int(array.max())
        if not array.ndim or array.shape[-1] > MOST_COLUMNS:
            return cls(found)
        rows = array.reshape(-1, array.shape[-1])
        columns = zip(rows.min(axis=0).tolist(), rows.max(axis=0).tolist(), strict=True)
        return cls(found, tuple(columns))

    def together(self, other: Elements) -> Elements:
        """Return ranges that hold for two tensors of the same shape."""
        columns = zip(self.columns, other.columns, strict=True)
        return Elements(_hull(self.every, other.every), tuple(_hull(*each) for each in columns))

    def limits(self, place: int | None) -> Range:
        """Return the range of all elements, or of the elements at an index of the last axis."""
        return self.every if place is None or not self.columns else self.columns[place]


class Ranges:
    """Computes ranges of the expressions of one prim func."""

    def __init__(self, constants: Mapping[Any, Elements]) -> None:
        self._constants = dict(constants)
        self._loops: dict[Any, Any] = {}
        self._bound: dict[Any, Any] = {}
        self._stored: dict[Any, list[tuple[Any, tuple[Fact, ...]]]] = {}
        self._open: set[Any] = set()

    def add_loop(self, loop: Stmt) -> None:
        """Record the range of a loop's variable."""
        self._loops[loop.loop_var] = loop

    def bind(self, variable: Var, value: PrimExpr) -> None:
        self._bound[variable] = value

    def is_every_element(self, load: TensorLoad) -> bool:
        """Whether the loops around a load iterate each of its indices over a whole dimension."""
        variables: list[Any] = []
        for index, extent in zip(load.indices, tvm_api.buffer_shape(load.source), strict=True):
            loop = self._loops.get(index)
            if tvm_api.integer_value(index) is not None:
                continue
            if loop is None or any(index.same_as(other) for other in variables):
                return False
            if self.of(index) != (0, extent - 1):
                return False
            variables.append(index)
        return True

    def value_of(self, variable: Var) -> PrimExpr | None:
        """Return the bound value of a variable; None for a loop variable or a parameter."""
        return self._bound.get(variable)

    def add_scratch(self, buffer: Buffer) -> None:
        """Record a buffer that only the prim func itself writes."""
        self._stored.setdefault(buffer, [])

    def add_store(self, buffer: Buffer, value: PrimExpr, facts: Sequence[Fact]) -> None:
        """Record a value stored to a local buffer."""
        if buffer in self._stored:
            self._stored[buffer].append((value, tuple(facts)))

    def of(self, expression: PrimExpr, facts: Sequence[Fact] = ()) -> Range:
        """Return the range of an integer expression, given some facts."""
        low, high = self._structural(expression, facts)
        for subject, (least, largest) in facts:
            if tvm_api.tvm_ffi.structural_equal(subject, expression):
                low, high = max(low, least), min(high, largest)
        return low, high

    def facts_of(self, condition: PrimExpr, holds: bool = True) -> list[Fact]:
        """Return the ranges of operands that a condition implies if it is true, or false."""
        kind = type(condition).__name__
        if kind == "Not":
            return self.facts_of(condition.a, not holds)
        if kind == ("And" if holds else "Or"):
            return [*self.facts_of(condition.a, holds), *self.facts_of(condition.b, holds)]
        if kind == "Call" and called(condition) == "likely":
            return self.facts_of(condition.args[0], holds)
        if kind not in NEGATED or not str(condition.a.ty.dtype).startswith(("int", "uint")):
            return []
        relation = kind if holds else NEGATED[kind]
        return [
            *self._compared(condition.a, relation, condition.b),
            *self._compared(condition.b, SWAPPED[relation], condition.a),
        ]

    def _compared(self, left: PrimExpr, relation: str, right: PrimExpr) -> list[Fact]:
        low, high = self.of(right)
        least, largest = dtype_range(str(left.ty.dtype))
        limits = {
            "LT": (least, high - 1),
            "LE": (least, high),
            "GT": (low + 1, largest),
            "GE": (low, largest),
            "EQ": (low, high),
        }
        return [(left, limits[relation])] if relation in limits else []

    def _structural(self, node: PrimExpr, facts: Sequence[Fact]) -> Range:
        limits = dtype_range(str(node.ty.dtype))
        value = tvm_api.integer_value(node)
        if value is not None:
            return value, value
        handler: Callable[[Any, Range, Sequence[Fact]], Range] | None
        handler = getattr(self, f"_of_{type(node).__name__}", None)
        return limits if handler is None else handler(node, limits, facts)

    def _both(self, node: PrimExpr, facts: Sequence[Fact]) -> tuple[Range, Range]:
        return self.of(node.a, facts), self.of(node.b, facts)

    def _of_Var(self, node: Var, limits: Range, facts: Sequence[Fact]) -> Range:
        if node in self._bound:
            return self._of_bound(node, limits, facts)
        loop = self._loops.get(node)
        if loop is None:
            return limits
        first, count = self.of(loop.min), self.of(loop.extent)
        return within((first[0], first[1] + max(count[1], 1) - 1), limits)

    def _of_bound(self, variable: Var, limits: Range, facts: Sequence[Fact]) -> Range:
        if variable in self._open:
            return limits
        self._open.add(variable)
        found = self.of(self._bound[variable], facts)
        self._open.discard(variable)
        return found

    def _of_TensorLoad(self, node: TensorLoad, limits: Range, facts: Sequence[Fact]) -> Range:
        buffer = node.source
        if buffer in self._constants:
            last = tvm_api.integer_value(node.indices[-1]) if len(node.indices) else None
            elements: Elements = self._constants[buffer]
            return elements.limits(last)
        stored = self._stored.get(buffer)
        if not stored or buffer in self._open:
            return limits
        self._open.add(buffer)
        ranges = [self.of(value, about) for value, about in stored]
        self._open.discard(buffer)
        return min(low for low, _ in ranges), max(high for _, high in ranges)

    def _of_Cast(self, node: PrimExpr, limits: Range, facts: Sequence[Fact]) -> Range:
        return within(self.of(node.value, facts), limits)

    def _of_Let(self, node: PrimExpr, limits: Range, facts: Sequence[Fact]) -> Range:
        self.bind(node.var, node.value)
        return self.of(node.body, facts)

    def _of_Add(self, node: PrimExpr, limits: Range, facts: Sequence[Fact]) -> Range:
        (a, b), (c, d) = self._both(node, facts)
        return within((a + c, b + d), limits)

    def _of_Sub(self, node: PrimExpr, limits: Range, facts: Sequence[Fact]) -> Range:
        (a, b), (c, d) = self._both(node, facts)
        return within((a - d, b - c), limits)

    def _of_Mul(self, node: PrimExpr, limits: Range, facts: Sequence[Fact]) -> Range:
        (a, b), (c, d) = self._both(node, facts)
        products = (a * c, a * d, b * c, b * d)
        return within((min(products), max(products)), limits)

    def _of_Min(self, node: PrimExpr, limits: Range, facts: Sequence[Fact]) -> Range:
        (a, b), (c, d) = self._both(node, facts)
        return min(a, c), min(b, d)

    def _of_Max(self, node: PrimExpr, limits: Range, facts: Sequence[Fact]) -> Range:
        (a, b), (c, d) = self._both(node, facts)
        return max(a, c), max(b, d)

    def _of_FloorDiv(self, node: PrimExpr, limits: Range, facts: Sequence[Fact]) -> Range:
        (a, b), (c, d) = self._both(node, facts)
        return (a // c, b // c) if c == d and c > 0 else limits

    def _of_Div(self, node: PrimExpr, limits: Range, facts: Sequence[Fact]) -> Range:
        return self._of_FloorDiv(node, limits, facts) if self.of(node.a, facts)[0] >= 0 else limits

    def _of_FloorMod(self, node: PrimExpr, limits: Range, facts: Sequence[Fact]) -> Range:
        (a, b), (c, d) = self._both(node, facts)
        if c != d or c <= 0:
            return limits
        return (a, b) if a >= 0 and b < c else (0, c - 1)

    def _of_Mod(self, node: PrimExpr, limits: Range, facts: Sequence[Fact]) -> Range:
        return self._of_FloorMod(node, limits, facts) if self.of(node.a, facts)[0] >= 0 else limits

    def _of_RShift(self, node: PrimExpr, limits: Range, facts: Sequence[Fact]) -> Range:
        return self._shifted(node.a, node.b, limits, facts)

    def _of_BitwiseAnd(self, node: PrimExpr, limits: Range, facts: Sequence[Fact]) -> Range:
        return self._masked(node.a, node.b, limits, facts)

    def _of_Select(self, node: PrimExpr, limits: Range, facts: Sequence[Fact]) -> Range:
        return self._range_of_selection(node.condition, node.true_value, node.false_value, facts)

    def _of_Call(self, node: Call, limits: Range, facts: Sequence[Fact]) -> Range:
        name, arguments = called(node), list(node.args)
        if name == "if_then_else":
            condition, yes, no = arguments
            return self._range_of_selection(condition, yes, no, facts)
        if name == "shift_right":
            return self._shifted(arguments[0], arguments[1], limits, facts)
        if name == "bitwise_and":
            return self._masked(arguments[0], arguments[1], limits, facts)
        return self.of(arguments[0], facts) if name == "likely" else limits

    def _range_of_selection(
        self,
        condition: PrimExpr,
        yes: PrimExpr,
        no: PrimExpr,
        facts: Sequence[Fact],
    ) -> Range:
        possible = [
            self.of(case, (*facts, *about))
            for case, about in (
                (yes, self.facts_of(condition)),
                (no, self.facts_of(condition, False)),
            )
            if not self._impossible(about, facts)
        ]
        ranges = possible or [self.of(yes, facts), self.of(no, facts)]
        return min(low for low, _ in ranges), max(high for _, high in ranges)

    def _impossible(self, new: Sequence[Fact], facts: Sequence[Fact]) -> bool:
        for expression, (least, largest) in new:
            low, high = self.of(expression, facts)
            if high < least or largest < low:
                return True
        return False

    def _shifted(
        self, value: PrimExpr, by: PrimExpr, limits: Range, facts: Sequence[Fact]
    ) -> Range:
        (a, b), (c, d) = self.of(value, facts), self.of(by, facts)
        return (a >> c, b >> c) if c == d and 0 <= c < 64 else limits

    def _masked(
        self, value: PrimExpr, mask: PrimExpr, limits: Range, facts: Sequence[Fact]
    ) -> Range:
        ranges = self.of(value, facts), self.of(mask, facts)
        largest = [high for low, high in ranges if low >= 0]
        return (0, min(largest)) if largest else limits


def _hull(one: Range, other: Range) -> Range:
    return min(one[0], other[0]), max(one[1], other[1])


def called(node: object) -> str:
    """Return the name of a TIR call's operator, without its dialect; empty for other nodes."""
    return str(getattr(getattr(node, "op", None), "name", "")).rpartition(".")[2]


def within(found: Range, limits: Range) -> Range:
    """Return a range, or the whole range of the dtype if values may wrap around."""
    return found if limits[0] <= found[0] and found[1] <= limits[1] else limits
