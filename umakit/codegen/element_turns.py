# SPDX-License-Identifier: Apache-2.0
"""The number of times that the loops around a store can reach one element of a buffer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from umakit import tvm_api
from umakit.lower.index_ranges import Range

tirx = tvm_api.tirx


class Definitions:
    """Loops and values of a kernel's variables; a copied loop body has several per variable."""

    def __init__(self) -> None:
        self.loops: dict[Any, list[Any]] = {}
        self.values: dict[Any, list[Any]] = {}

    def add_loop(self, loop: tvm_api.Stmt) -> None:
        self.loops.setdefault(loop.loop_var, []).append(loop)

    def bind(self, variable: tvm_api.Var, value: tvm_api.PrimExpr) -> None:
        known = self.values.setdefault(variable, [])
        if not any(value.same_as(other) for other in known):
            known.append(value)

    def reads(self, expression: tvm_api.PrimExpr) -> tuple[set[Any], bool]:
        """Return the loop variables of an expression, and whether the expression reads buffers."""
        variables: set[Any] = set()
        reads_buffers = False
        seen: set[Any] = set()
        pending = [expression]
        while pending:
            node = pending.pop()
            reads_buffers |= bool(tvm_api.collect(node, tvm_api.TensorLoad))
            for variable in tvm_api.collect(node, tvm_api.Var):
                if variable in self.loops:
                    variables.add(variable)
                if variable not in seen:
                    seen.add(variable)
                    pending += self.values.get(variable, [])
        return variables, reads_buffers


def element_turns(
    loops: Sequence[tvm_api.Stmt],
    index: tvm_api.PrimExpr | None,
    definitions: Definitions,
    range_of: Callable[[tvm_api.PrimExpr], Range],
) -> int | None:
    """Return the number of times that a store can write one element; None for loops of unknown end.

    All loops together write as often as the product of their turns. A loop whose variable selects
    the element, such as the loops over y and x of `sum[y * 8 + x]`, reaches an element in one turn
    only.
    """
    turns = {}
    for loop in loops:
        if not isinstance(loop, tirx.For) or loop.loop_var in turns:
            return None
        turns[loop.loop_var] = max(0, range_of(loop.extent)[1])
    chosen = _choosing(turns, index, definitions) if index is not None else set()
    product = 1
    for variable, count in turns.items():
        product *= 1 if variable in chosen else count
    return 0 if 0 in turns.values() else product


def _choosing(turns: dict[Any, int], index: tvm_api.PrimExpr, definitions: Definitions) -> set[Any]:
    """Return loop variables whose values the index determines."""
    if definitions.reads(index)[1]:
        return set()
    factors: dict[Any, int] = {}
    others: set[Any] = set()
    _collect_factors(index, 1, definitions, factors, others)
    known = [(abs(factor), v) for v, factor in factors.items() if v in turns and v not in others]
    chosen, reach = set(), 0
    for factor, variable in sorted(known, key=lambda each: each[0]):
        if factor > reach:
            chosen.add(variable)
            reach += factor * max(0, turns[variable] - 1)
    return chosen


def _collect_factors(
    node: tvm_api.PrimExpr,
    factor: int,
    definitions: Definitions,
    factors: dict[Any, int],
    others: set[Any],
) -> None:
    """Split an index into multiples of loop variables, and parts with other uses of variables."""
    kind = type(node).__name__
    if tvm_api.integer_value(node) is not None:
        return
    if kind in ("Add", "Sub"):
        _collect_factors(node.a, factor, definitions, factors, others)
        _collect_factors(node.b, factor if kind == "Add" else -factor, definitions, factors, others)
        return
    if kind == "Mul":
        for constant, other in ((node.a, node.b), (node.b, node.a)):
            value = tvm_api.integer_value(constant)
            if value is not None:
                _collect_factors(other, factor * value, definitions, factors, others)
                return
    if isinstance(node, tvm_api.Var):
        values = definitions.values.get(node, [])
        if node in definitions.loops and not values:
            factors[node] = factors.get(node, 0) + factor
            return
        if len(values) == 1 and node not in definitions.loops:
            _collect_factors(values[0], factor, definitions, factors, others)
            return
    others |= definitions.reads(node)[0]
