# SPDX-License-Identifier: Apache-2.0
"""Vectorization of innermost loops over neighbouring numbers.

A schedule asks for vectors by an annotation. Only with flat tensors do indices tell which elements
are neighbours; loops that cannot be vectorized stay unchanged.

- A loop that stores neighbours is computed in vectors; remaining numbers come last.
- A loop that sums neighbours, or takes their extreme, keeps vectors of partial results and
  combines them after the loop. An extreme is the same in any order, a sum is not.

Loop invariants are computed before the loop: a C compiler must not hoist functions that may set
`errno`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from umakit import tir, tvm_api
from umakit.cpu.vector_expressions import (
    SQUARES,
    Vectors,
    element_step,
    mentions,
    transposed_square,
    with_value,
)

tirx = tvm_api.tirx

VECTORS = "pragma_umakit_vectors"
"""Annotation of a loop: how many numbers a vector has, as text."""

COMBINED = (tirx.Add, tirx.Max, tirx.Min)
"""Combining operators of reductions."""

NEUTRAL = {tirx.Add: 0.0, tirx.Max: -math.inf, tirx.Min: math.inf}
"""The number that changes no result of a reduction. A sum that begins with 0 is never -0."""

UNROLLED = 8
"""Vectors of a local array, at most, whose loop is written out, so that it stays in registers."""

PARTIAL_RESULTS = 4
"""Vectors of partial results: enough to wait for none, with additions that take four cycles."""


def vectorize_leaves(function: tvm_api.PrimFunc) -> tvm_api.PrimFunc:
    """Return a flat prim func whose loops with the annotation `VECTORS` are computed in vectors.

    Variables may be bound several times in the result.
    """
    asked = tvm_api.collect(function.body, tirx.AttrStmt)
    if all(str(each.attr_key) not in (VECTORS, SQUARES) for each in asked):
        return function
    local = {
        each.buffer: tvm_api.buffer_shape(each.buffer)[0]
        for each in tvm_api.collect(function.body, tirx.AllocBuffer)
    }

    def replaced(statement: tvm_api.Stmt) -> tvm_api.Stmt:
        if str(statement.attr_key) == SQUARES:
            return transposed_square(statement.body, int(str(statement.value.value)))
        if str(statement.attr_key) != VECTORS:
            return statement
        return _leaf(statement.body, int(str(statement.value.value)), local)

    callbacks = [(tirx.AttrStmt, replaced), (tirx.For, _with_conditions_outside)]
    return tir.with_body(function, tvm_api.rewrite(function.body, callbacks))


def _leaf(loop: tvm_api.Stmt, lanes: int, local: Mapping[Any, int]) -> tvm_api.Stmt:
    """Return a loop in vectors, or unchanged; `local` has the number of elements of each local
    array."""
    if not isinstance(loop, tirx.For) or not isinstance(loop.body, tirx.BufferStore):
        return loop
    if tvm_api.integer_value(loop.min) != 0:
        return loop
    turns = tvm_api.integer_value(loop.extent)
    conditions, store = _under_conditions(loop.body)
    if any(mentions(each, loop.loop_var) for each in conditions):
        conditions, store = [], loop.body
    if turns is None or len(store.indices) != 1:
        return loop
    leaf = _Leaf(loop.loop_var, turns, store, lanes)
    step = element_step(store.indices[0], loop.loop_var)
    changed = leaf.unchanged
    if step == 1 and turns >= lanes:
        sizes = [local[each] for each in tvm_api.buffers_in(store) if each in local]
        changed = leaf.mapped(any(size < (UNROLLED + 1) * lanes for size in sizes))
    elif step == 0 and turns >= 2 * lanes:
        changed = leaf.reduced()
    for condition in reversed(conditions):
        changed = tirx.IfThenElse(condition, changed, None)
    return changed


def _under_conditions(store: tvm_api.Stmt) -> tuple[list[tvm_api.PrimExpr], tvm_api.Stmt]:
    """Return the conditions around a step of a reduction, and the step without them.

    Without the conditions the step changes nothing: padding neither adds to a sum nor is it an
    extreme.
    """
    value = store.value
    call = value.b if isinstance(value, COMBINED) else None
    if not isinstance(call, tvm_api.Call) or not str(call.op.name).endswith("if_then_else"):
        return [], store
    condition, inside, outside = call.args
    is_neutral = isinstance(outside, tirx.FloatImm) and outside.value == NEUTRAL[type(value)]
    if not is_neutral or not is_same_element(value.a, store):
        return [], store
    parts = [condition]
    while isinstance(parts[0], tirx.And):
        parts[:1] = [parts[0].a, parts[0].b]
    return parts, tirx.BufferStore(store.buffer, type(value)(value.a, inside), list(store.indices))


def _with_conditions_outside(loop: tvm_api.Stmt) -> tvm_api.Stmt:
    """Return a loop inside its loop-invariant conditions."""
    body, conditions = loop.body, []
    while isinstance(body, tirx.IfThenElse) and body.else_case is None:
        if mentions(body.condition, loop.loop_var):
            break
        conditions.append(body.condition)
        body = body.then_case
    if not conditions:
        return loop
    changed: tvm_api.Stmt = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body)
    for condition in reversed(conditions):
        changed = tirx.IfThenElse(condition, changed, None)
    return changed


def is_same_element(node: tvm_api.PrimExpr, store: tvm_api.Stmt) -> bool:
    """Whether an expression loads the element that a statement stores."""
    return (
        isinstance(node, tvm_api.TensorLoad)
        and node.source.same_as(store.buffer)
        and bool(tvm_api.tvm_ffi.structural_equal(list(node.indices), list(store.indices)))
    )


@dataclass(frozen=True)
class _Leaf:
    """A loop whose body is one store."""

    variable: tvm_api.Var
    turns: int
    store: tvm_api.Stmt
    lanes: int

    @property
    def _dtype(self) -> str:
        return tvm_api.dtype_of_expression(self.variable)

    def _integer(self, value: int) -> tvm_api.PrimExpr:
        return tirx.IntImm(self._dtype, value)

    def _loop(
        self,
        first: int,
        turns: int,
        body: Callable[[tvm_api.PrimExpr], tvm_api.Stmt],
        step: int = 1,
    ) -> list[tvm_api.Stmt]:
        """Return a loop over places of the original loop, from `first` in steps."""
        if turns <= 1:
            return [body(self._integer(first))] if turns else []
        variable = tirx.Var(str(self.variable.name), self._dtype)
        place = variable * self._integer(step) if step > 1 else variable
        place = place + self._integer(first) if first else place
        return [
            tirx.For(
                variable, self._integer(0), self._integer(turns), tirx.ForKind.SERIAL, body(place)
            )
        ]

    @property
    def unchanged(self) -> tvm_api.Stmt:
        """The loop without changes."""
        first, turns = self._integer(0), self._integer(self.turns)
        return tirx.For(self.variable, first, turns, tirx.ForKind.SERIAL, self.store)

    @property
    def _reads_before_it_writes(self) -> bool:
        """Whether no turn reads an element that another turn writes."""
        return all(
            is_same_element(load, self.store)
            for load in tvm_api.collect(self.store.value, tvm_api.TensorLoad)
            if load.source.same_as(self.store.buffer)
        )

    def _scalar(self, place: tvm_api.PrimExpr) -> tvm_api.Stmt:
        return with_value(self.store, self.variable, place)

    def mapped(self, in_registers: bool) -> tvm_api.Stmt:
        """Return the loop with stores of neighbours in vectors; unchanged if not possible."""
        vectors = Vectors(self.variable, self.lanes)
        value = vectors.of(self.store.value)
        if value is None or not self._reads_before_it_writes:
            return self.unchanged
        whole, rest = divmod(self.turns, self.lanes)
        index = vectors.ramp(self.store.indices[0])
        vector = tirx.BufferStore(self.store.buffer, value, [index])

        def stored(place: tvm_api.PrimExpr) -> tvm_api.Stmt:
            return with_value(vector, self.variable, place)

        if in_registers and whole <= UNROLLED:
            main = [stored(self._integer(n * self.lanes)) for n in range(whole)]
        else:
            main = self._loop(0, whole, stored, self.lanes)
        tail = self._loop(whole * self.lanes, rest, self._scalar)
        return tir.sequence([*vectors.bindings, *main, *tail])

    def reduced(self) -> tvm_api.Stmt:
        """Return the loop with one result, with vectors of partial results."""
        value, kind = self.store.value, type(self.store.value)
        if kind not in COMBINED or not is_same_element(value.a, self.store):
            return self.unchanged
        loads = tvm_api.collect(value.b, tvm_api.TensorLoad)
        if any(load.source.same_as(self.store.buffer) for load in loads):
            return self.unchanged
        vectors = Vectors(self.variable, self.lanes)
        vector = vectors.of(value.b)
        if vector is None or not mentions(value.b, self.variable):
            return self.unchanged
        return tir.sequence([*vectors.bindings, *self._partial(vector, kind)])

    def _partial(self, vector: tvm_api.PrimExpr, kind: Any) -> list[tvm_api.Stmt]:
        """Return the statements of a reduction with partial results in a local array."""
        whole = self.turns // self.lanes
        count = next(n for n in (PARTIAL_RESULTS, 2, 1) if whole >= 2 * n)
        name = "partial_sums" if kind is tirx.Add else "partial_extremes"
        array = tirx.decl_buffer((count * self.lanes,), "float32", name)
        ramps = [
            tirx.Ramp(self._integer(n * self.lanes), self._integer(1), self.lanes)
            for n in range(count)
        ]

        def at(place: tvm_api.PrimExpr) -> tvm_api.PrimExpr:
            return with_value(vector, self.variable, place)

        def partial(number: int) -> tvm_api.PrimExpr:
            return tirx.BufferLoad(array, [ramps[number]])

        def stored(number: int, value: tvm_api.PrimExpr) -> tvm_api.Stmt:
            return tirx.BufferStore(array, value, [ramps[number]])

        def together(place: tvm_api.PrimExpr) -> tvm_api.Stmt:
            places = [place + self._integer(n * self.lanes) for n in range(count)]
            return tir.sequence(
                [stored(n, kind(partial(n), at(each))) for n, each in enumerate(places)]
            )

        step = count * self.lanes
        rounds, rest = divmod(whole, count)
        first = [stored(n, at(self._integer(n * self.lanes))) for n in range(count)]
        main = self._loop(step, rounds - 1, together, step)
        others = [
            stored(n, kind(partial(n), at(self._integer(rounds * step + n * self.lanes))))
            for n in range(rest)
        ]
        halves = []
        while count > 1:
            count //= 2
            halves += [stored(n, kind(partial(n), partial(n + count))) for n in range(count)]
        lanes = [tirx.BufferLoad(array, [self._integer(n)]) for n in range(self.lanes)]
        result = kind(self.store.value.a, _pairwise(lanes, kind))
        end = tirx.BufferStore(self.store.buffer, result, list(self.store.indices))
        tail = self._loop(whole * self.lanes, self.turns % self.lanes, self._scalar)
        return [tirx.AllocBuffer(array), *first, *main, *others, *halves, end, *tail]


def _pairwise(values: Sequence[tvm_api.PrimExpr], kind: Any) -> tvm_api.PrimExpr:
    """Return the sum or the extreme of numbers, combined pairwise by halves."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return _pairwise(
        [kind(one, other) for one, other in zip(values[:half], values[half:], strict=True)], kind
    )
