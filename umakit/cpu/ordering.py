# SPDX-License-Identifier: Apache-2.0
"""CPU kernels along an axis: topk, sort and argsort, and running sums and products.

Equal elements keep their order, NaN is larger than every number (as in NumPy, ONNX Runtime and
PyTorch), and 0 and -0 are equal. A heap of the `k` best positions so far, with the worst position
at its root, is kept in the output for the positions, so that no working memory is needed; `n`
elements take O(n log k) steps (Floyd, "Algorithm 245: Treesort", Communications of the ACM 7,
1964).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from umakit import tvm_api
from umakit.operators.kernels.loops import buffer, kernel, loop, loops, sequence
from umakit.tvm_api import int32

relax, tirx = tvm_api.relax, tvm_api.tirx


def rules() -> dict[str, tvm_api.Legalization]:
    """Return the rules for `LegalizeOps` by operator."""
    return {
        "relax.topk": _topk,
        "relax.sort": _sort,
        "relax.argsort": _argsort,
        "relax.cumsum": _scan("cumsum", 0, lambda total, value: total + value),
        "relax.cumprod": _scan("cumprod", 1, lambda total, value: total * value),
    }


def _topk(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
    result, attributes = str(call.attrs.ret_type), call.attrs
    count = tvm_api.integer_value(attributes.k) or 0
    axis, largest, dtype = int(attributes.axis), bool(attributes.largest), str(attributes.dtype)
    both = _ordered(builder, call.args[0], axis, count, largest, dtype)
    if result == "both":
        return both
    return relax.TupleGetItem(builder.emit(both), 0 if result == "values" else 1)


def _sort(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
    return relax.TupleGetItem(builder.emit(_all_ordered(builder, call, "int32")), 0)


def _argsort(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
    both = _all_ordered(builder, call, str(call.attrs.dtype))
    return relax.TupleGetItem(builder.emit(both), 1)


def _all_ordered(builder: tvm_api.BlockBuilder, call: tvm_api.Call, dtype: str) -> tvm_api.Expr:
    axis, largest = int(call.attrs.axis), bool(call.attrs.descending)
    count = (tvm_api.static_shape(call.args[0]) or ())[axis]
    return _ordered(builder, call.args[0], axis, count, largest, dtype)


def _ordered(
    builder: tvm_api.BlockBuilder, data: tvm_api.Expr, axis: int, count: int, largest: bool,
    dtype: str,
) -> tvm_api.Expr:  # fmt: skip
    """Return a call of a kernel that computes the first `count` elements in order, or all for less
    than 1, and their positions."""
    shape = tvm_api.static_shape(data)
    if not shape:
        raise ValueError("an operand has no static shape, or no dimensions")
    axis %= len(shape)
    count = count if count > 0 else shape[axis]
    if count > shape[axis]:
        raise ValueError(f"the first {count} of {shape[axis]} elements")
    result = (*shape[:axis], count, *shape[axis + 1 :])
    element = tvm_api.dtype_of(data)
    given = buffer("data", shape, element)
    values, positions = buffer("values", result, element), buffer("positions", result, dtype)

    def row(*place: tvm_api.Expr) -> tvm_api.Stmt:
        return _Row(given, values, positions, place, axis, count, largest).statements()

    outer = [(f"i{n}", 1 if n == axis else extent) for n, extent in enumerate(shape)]
    function = kernel([given, values, positions], loops(outer, row), inside=True)
    variable = builder.add_func(function, "topk")
    types = [tvm_api.tensor_type(result, each) for each in (element, dtype)]
    return relax.call_tir(variable, relax.Tuple([data]), types)


@dataclass
class _Row:
    """Statements that order the elements at one place of all other axes.

    Attributes:
        values, positions: buffers of the results; `positions` holds the heap during the search.
        place: indices of the row; the index of `axis` is ignored.
    """

    data: Any
    values: Any
    positions: Any
    place: Sequence[Any]
    axis: int
    count: int
    largest: bool

    def __post_init__(self) -> None:
        self._node, self._child, self._end = (
            tirx.decl_buffer([1], "int32", name, scope="local") for name in ("node", "child", "end")
        )

    def statements(self) -> tvm_api.Stmt:
        """Return the statements that order the row."""
        count = self.count
        fill = loop("position", count, lambda position: self._put(position, position))
        results = loop("result", count, self._value)
        if count == 1:
            best = loop(
                "rest", self._size - 1, lambda rest: self._insert_if_better(rest + int32(1))
            )
            return sequence(fill, *([best] if self._size > 1 else []), results)
        heap, rest, last = count // 2, self._size - count, count - 1

        def step(number: tvm_api.PrimExpr) -> tvm_api.Stmt:
            """Return one step: build the heap, insert better positions, or extract in order."""
            start = self._set((self._node, int32(heap - 1) - number), (self._end, int32(count)))
            insert = sequence(
                self._set((self._node, int32(count))),
                self._insert_if_better(
                    number + int32(count - heap), self._set((self._node, int32(0)))
                ),
            )
            take = self._take(int32(heap + rest + last) - number)
            chosen = take
            if rest:
                chosen = tirx.IfThenElse(number < int32(heap + rest), insert, take)
            return sequence(
                tirx.IfThenElse(number < int32(heap), start, chosen),
                loop("level", count.bit_length() - 1, lambda _: self._sink()),
            )

        scratch = [tirx.AllocBuffer(local) for local in (self._node, self._child, self._end)]
        return sequence(*scratch, fill, loop("step", heap + rest + last, step), results)

    # --- order ------------------------------------------------------------------------------------

    def _before(self, x: tvm_api.PrimExpr, y: tvm_api.PrimExpr) -> tvm_api.PrimExpr:
        """Return the condition that element x comes strictly before element y."""
        dtype, comparison = tvm_api.dtype_of(x), x > y if self.largest else x < y
        if dtype.startswith("uint"):
            # TVM's analysis of conditions subtracts 1 from 0 of unsigned numbers.
            one = int32(1)
            return tirx.Select(comparison, one, int32(0)) == one
        if not dtype.startswith("float"):
            return comparison
        first, second = (x, y) if self.largest else (y, x)
        is_nan = tirx.And(tirx.isnan(first), tirx.Not(tirx.isnan(second)))
        return tirx.Or(comparison, is_nan)

    def _if_before(
        self,
        nodes: Sequence[Any],
        then: Callable[[Any, Any], Any],
        otherwise: tvm_api.Stmt | None = None,
    ) -> tvm_api.Stmt:
        """Return a branch on the order of the elements at two heap nodes; `then` gets their
        positions."""
        positions = [tirx.Var(name, "int32") for name in ("first", "second")]
        values = [tirx.Var(name, tvm_api.buffer_dtype(self.data)) for name in ("x", "y")]
        (first, second), (x, y) = positions, values
        # Equal elements come in the order of their positions.
        tie = tirx.And(tirx.Not(self._before(y, x)), first < second)
        return sequence(
            *(tirx.Bind(p, self._get(node)) for p, node in zip(positions, nodes, strict=True)),
            *(tirx.Bind(v, self._element(p)) for v, p in zip(values, positions, strict=True)),
            tirx.IfThenElse(tirx.Or(self._before(x, y), tie), then(first, second), otherwise),
        )

    # --- heap -------------------------------------------------------------------------------------

    def _sink(self) -> tvm_api.Stmt:
        """Move the position at a node down by one level if a child comes after the position."""
        node, child, end = (local[0] for local in (self._node, self._child, self._end))
        one = int32(1)
        to_the_right = self._set((self._child, child + one))
        right = self._if_before((child, child + one), lambda *_: to_the_right)

        def swap(upper: tvm_api.PrimExpr, lower: tvm_api.PrimExpr) -> tvm_api.Stmt:
            puts = self._put(node, lower), self._put(child, upper)
            return sequence(*puts, self._set((self._node, child)))

        below = sequence(
            tirx.IfThenElse(child + one < end, right, None),
            self._if_before((node, child), swap, self._set((self._node, end))),
        )
        return sequence(
            self._set((self._child, node + node + one)),
            tirx.IfThenElse(child < end, below, None),
        )

    def _insert_if_better(self, position: tvm_api.PrimExpr, *then: tvm_api.Stmt) -> tvm_api.Stmt:
        """Replace the root, the worst of the best positions, by a position that comes before the
        root."""
        root = int32(0)
        x, y = (tirx.Var(name, tvm_api.buffer_dtype(self.data)) for name in ("x", "y"))
        return sequence(
            tirx.Bind(x, self._element(position)),
            tirx.Bind(y, self._element(self._get(root))),
            tirx.IfThenElse(self._before(x, y), sequence(self._put(root, position), *then), None),
        )

    def _take(self, last: tvm_api.PrimExpr) -> tvm_api.Stmt:
        """Move the root, the last in order, behind the heap, and shrink the heap by one."""
        root, moved = int32(0), tirx.Var("moved", "int32")
        return sequence(
            tirx.Bind(moved, self._get(root)),
            self._put(root, self._get(last)),
            self._put(last, moved),
            self._set((self._node, root), (self._end, last)),
        )

    # --- access -----------------------------------------------------------------------------------

    @property
    def _size(self) -> int:
        return int(tvm_api.buffer_shape(self.data)[self.axis])

    def _set(self, *values: tuple[tvm_api.Buffer, tvm_api.Expr]) -> tvm_api.Stmt:
        return sequence(*(tirx.BufferStore(each, value, [int32(0)]) for each, value in values))

    def _at(self, position: tvm_api.PrimExpr) -> tuple[Any, ...]:
        return (*self.place[: self.axis], position, *self.place[self.axis + 1 :])

    def _element(self, position: tvm_api.PrimExpr) -> tvm_api.PrimExpr:
        return self.data[self._at(position)]

    def _get(self, node: tvm_api.PrimExpr) -> tvm_api.PrimExpr:
        return int32(self.positions[self._at(node)])

    def _put(self, node: tvm_api.PrimExpr, position: tvm_api.PrimExpr) -> tvm_api.Stmt:
        value = position.astype(tvm_api.buffer_dtype(self.positions))
        return tirx.BufferStore(self.positions, value, list(self._at(node)))

    def _value(self, number: tvm_api.PrimExpr) -> tvm_api.Stmt:
        place = list(self._at(number))
        return tirx.BufferStore(self.values, self._element(self._get(number)), place)


# CPU kernels of running sums and products along an axis: cumsum and cumprod.
# Scans of float32 are accumulated in float64 and each result is rounded once, as in PyTorch: a
# sum of many elements stays within half a unit in the last place. Integers wrap around.


def _scan(name: str, start: int, combine: Callable[[Any, Any], Any]) -> tvm_api.Legalization:
    def rule(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
        data, axis = call.args[0], call.attrs.axis
        shape, result = tvm_api.static_shape(data), tvm_api.static_type_shape(call.ty)
        if shape is None or result is None:
            raise ValueError("an operand has no static shape")
        if axis is None:
            shape = result
            data = builder.emit(relax.op.reshape(data, list(shape)))
        number = int(axis or 0) % len(shape) if shape else 0
        dtype = tvm_api.dtype_of(call)
        total_dtype = "float64" if dtype == "float32" else dtype
        # The sum of -0.0 alone is -0.0; the empty sum is 0.
        keeps_sign = start == 0 and "float" in dtype and not call.attrs.exclusive
        begin = -0.0 if keeps_sign else start
        given = buffer("data", shape, tvm_api.dtype_of(data))
        output = buffer("output", shape, dtype)
        zero = int32(0)

        def row(*place: tvm_api.Expr) -> tvm_api.Stmt:
            total = tirx.decl_buffer([1], total_dtype, "total", scope="local")

            def step(position: tvm_api.Expr) -> tvm_api.Stmt:
                at = (*place[:number], position, *place[number + 1 :])
                value = tirx.Var("value", total_dtype)
                add = tirx.BufferStore(total, combine(total[0], value), [zero])
                store = tirx.BufferStore(output, total[0].astype(dtype), list(at))
                steps = (store, add) if call.attrs.exclusive else (add, store)
                return sequence(tirx.Bind(value, given[at].astype(total_dtype)), *steps)

            first = tirx.BufferStore(total, tirx.const(begin, total_dtype), [zero])
            steps = loop("position", shape[number] if shape else 1, step)
            return sequence(tirx.AllocBuffer(total), first, steps)

        outer = [(f"i{n}", 1 if n == number else extent) for n, extent in enumerate(shape)]
        variable = builder.add_func(kernel([given, output], loops(outer, row)), name)
        return relax.call_tir(variable, relax.Tuple([data]), call.ty)

    return rule
