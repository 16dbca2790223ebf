# SPDX-License-Identifier: Apache-2.0
"""Indices as sums of a part with the loop variable and a part without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.lower.index_ranges import Fact, Range, Ranges, called

tirx = tvm_api.tirx

MOST_TURNS = 2**20
"""Maximum number of turns of a loop whose values are computed, so that compiling stays quick."""

Values = npt.NDArray[np.int64]

OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Min": np.minimum,
    "Max": np.maximum,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
}


@dataclass(frozen=True)
class Term:
    """A term of an index without the loop variable.

    Attributes:
        node: the multiplied expression; None for the lanes of a vector.
    """

    factor: int
    values: Range
    node: tvm_api.PrimExpr | None = None

    @property
    def limits(self) -> Range:
        """The range of the whole term."""
        ends = [self.factor * each for each in self.values]
        return min(ends), max(ends)


@dataclass
class IndexSum:
    """An index of a flat buffer as a sum.

    Attributes:
        of_loop: contribution of the loop variable, int64[turns].
    """

    of_loop: Values
    others: list[Term] = field(default_factory=list)
    constant: int = 0


class IndexSums:
    """Takes indices apart.

    Args:
        turns: number of values of the loop variable, from 0.
    """

    def __init__(self, variable: tvm_api.Var, turns: int, ranges: Ranges) -> None:
        self._variable = variable
        self._turns = turns
        self._ranges = ranges

    def of(self, index: tvm_api.PrimExpr, facts: Sequence[Fact] = ()) -> IndexSum | None:
        """Return an index as a sum; None if the loop variable is in a term with other variables."""
        found = IndexSum(np.zeros(self._turns, np.int64))
        if not self._add(found, index, 1):
            return None
        for subject, limits in facts:
            self._limit(found, subject, limits)
        return found

    def _limit(self, found: IndexSum, subject: tvm_api.PrimExpr, limits: Range) -> None:
        """Join the terms of a sum that one condition limits together."""
        limited = IndexSum(np.zeros(self._turns, np.int64))
        if not self._add(limited, subject, 1) or limited.of_loop.any() or not limited.others:
            return
        places = [_place(found.others, term) for term in limited.others]
        factors = {
            found.others[place].factor / term.factor
            for place, term in zip(places, limited.others, strict=True)
            if place is not None and term.factor
        }
        if None in places or len(set(places)) < len(places) or len(factors) != 1:
            return
        factor = factors.pop()
        if not factor.is_integer():
            return
        low = max(limits[0] - limited.constant, sum(term.limits[0] for term in limited.others))
        high = min(limits[1] - limited.constant, sum(term.limits[1] for term in limited.others))
        if low <= high:
            kept = [term for place, term in enumerate(found.others) if place not in places]
            found.others = [*kept, Term(int(factor), (low, high), subject)]

    def _add(self, found: IndexSum, node: tvm_api.PrimExpr, factor: int) -> bool:
        """Add a term times a factor; return whether that is possible."""
        kind, value = type(node).__name__, tvm_api.integer_value(node)
        if value is not None:
            found.constant += factor * value
            return True
        if kind in ("Add", "Sub"):
            sign = 1 if kind == "Add" else -1
            return self._add(found, node.a, factor) and self._add(found, node.b, sign * factor)
        if kind == "Mul":
            for one, other in ((node.a, node.b), (node.b, node.a)):
                constant = tvm_api.integer_value(other)
                if constant is not None:
                    return self._add(found, one, factor * constant)
        if kind == "Ramp":
            step, lanes = map(tvm_api.integer_value, (node.stride, node.lanes))
            if step is None or lanes is None:
                return False
            found.others.append(Term(factor * step, (0, lanes - 1)))
            return self._add(found, node.base, factor)
        same = self._same_value(node)
        if same is not None:
            return self._add(found, same, factor)
        return self._add_term(found, node, factor)

    def _add_term(self, found: IndexSum, node: tvm_api.PrimExpr, factor: int) -> bool:
        if not self._depends(node):
            found.others.append(Term(factor, self._ranges.of(node), node))
            return True
        values = self._values(node)
        if values is None:
            return False
        found.of_loop += factor * values
        return True

    def _same_value(self, node: tvm_api.PrimExpr) -> tvm_api.PrimExpr | None:
        """Return the value of a bound variable, or the operand of a cast that keeps its value."""
        if type(node).__name__ == "Cast" and self._ranges.of(node) == self._ranges.of(node.value):
            return node.value
        return self._bound(node)

    def _bound(self, node: tvm_api.PrimExpr) -> tvm_api.PrimExpr | None:
        return self._ranges.value_of(node) if isinstance(node, tvm_api.Var) else None

    def _depends(self, node: tvm_api.PrimExpr) -> bool:
        """Whether an expression mentions the loop variable, directly or by bound variables."""
        variables = tvm_api.collect(node, tvm_api.Var)
        values = [self._bound(each) for each in variables]
        return any(each.same_as(self._variable) for each in variables) or any(
            value is not None and self._depends(value) for value in values
        )

    def _values(self, node: tvm_api.PrimExpr) -> Values | None:
        """Return the values of a function of the loop variable alone, int64[turns]; else None."""
        value = tvm_api.integer_value(node)
        if value is not None:
            return np.full(self._turns, value, np.int64)
        same = self._same_value(node)
        if same is not None:
            return self._values(same)
        if isinstance(node, tvm_api.Var):
            is_own = node.same_as(self._variable)
            return np.arange(self._turns, dtype=np.int64) if is_own else None
        operation = OPERATIONS.get(type(node).__name__)
        if operation is None:
            return None
        left, right = self._values(node.a), self._values(node.b)
        if left is None or right is None:
            return None
        if type(node).__name__.startswith("Floor") and (right <= 0).any():
            return None
        result: Values = operation(left, right)
        return result


def _place(terms: Sequence[Term], wanted: Term) -> int | None:
    """Return the position of the only term with an expression; None if there is not exactly one."""
    found = [
        place
        for place, term in enumerate(terms)
        if term.node is not None
        and wanted.node is not None
        and tvm_api.tvm_ffi.structural_equal(term.node, wanted.node)
    ]
    return found[0] if len(found) == 1 else None


def has_hidden_accesses(statement: tvm_api.Stmt) -> bool:
    """Whether memory is accessed other than by loads and stores of named elements."""
    if tvm_api.collect(statement, tirx.While):
        return True
    hidden = ("call_driver", "call_extern", "address_of", "tvm_access_ptr", "buffer_data")
    calls = tvm_api.collect(statement, tvm_api.Call)
    return any(called(call).endswith(hidden) for call in calls)


class Views:
    """The views that a body declares of buffers."""

    def __init__(self, body: tvm_api.Stmt) -> None:
        views = {
            v.buffer: tvm_api.buffers_in(v.data) for v in tvm_api.collect(body, tirx.DeclBuffer)
        }
        self._sources = {view: found[0] for view, found in views.items() if len(found) == 1}

    def root(self, buffer: tvm_api.Buffer) -> tvm_api.Buffer:
        """Return the buffer below a view, or the buffer itself."""
        while buffer in self._sources:
            buffer = self._sources[buffer]
        return buffer
