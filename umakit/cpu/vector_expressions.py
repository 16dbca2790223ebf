# SPDX-License-Identifier: Apache-2.0
"""Conversion of expressions of one loop turn to vectors of several turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from umakit import tvm_api
from umakit.text.names import VECTOR_FUNCTIONS

tirx = tvm_api.tirx

OPERATIONS = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min)
"""Operations of two numbers that vectors have, too."""


def mentions(expression: Any, variable: tvm_api.Var) -> bool:
    """Whether an expression or a statement depends on a variable."""
    return any(variable.same_as(each) for each in tvm_api.collect(expression, tvm_api.Var))


def with_value(node: Any, variable: tvm_api.Var, value: tvm_api.PrimExpr) -> Any:
    """Return an expression or a statement with a value instead of a variable."""

    def replaced(other: tvm_api.Var) -> tvm_api.PrimExpr:
        return value if other.same_as(variable) else other

    return tvm_api.rewrite(node, [(tvm_api.Var, replaced)])


def element_step(index: tvm_api.PrimExpr, variable: tvm_api.Var) -> int | None:
    """Return the growth of an index per step of a variable; None if it is not constant."""
    if not mentions(index, variable):
        return 0
    dtype = tvm_api.dtype_of_expression(variable)
    following = with_value(index, variable, variable + tirx.IntImm(dtype, 1))
    return tvm_api.integer_value(tvm_api.simplified(following - index))


def flat_index(buffer: tvm_api.Buffer, indices: Sequence[tvm_api.PrimExpr]) -> tvm_api.PrimExpr:
    """Return the offset of an element in memory, in elements."""
    index: tvm_api.PrimExpr = tirx.IntImm("int64", 0)
    for size, each in zip(tvm_api.buffer_shape(buffer), indices, strict=True):
        index = index * tirx.IntImm("int64", size) + each
    return index


class Vectors:
    """Converts expressions of a loop to vectors.

    Args:
        variable: loop variable; in vectors, the value of the first turn.
        lanes: turns per vector.

    Attributes:
        bindings: statements before the loop that bind loop invariants with function calls.
            Compilers hoist other invariants themselves.
    """

    def __init__(self, variable: tvm_api.Var, lanes: int) -> None:
        self._variable = variable
        self._lanes = lanes
        self.bindings: list[tvm_api.Stmt] = []

    def ramp(self, index: tvm_api.PrimExpr) -> tvm_api.PrimExpr:
        """Return the indices of a vector from the index of the first turn."""
        one = tirx.IntImm(tvm_api.dtype_of_expression(index), 1)
        return tirx.Ramp(index, one, self._lanes)

    def of(self, node: tvm_api.PrimExpr, is_certain: bool = True) -> tvm_api.PrimExpr | None:
        """Return the vector of a float32 expression; None if there is none.

        Args:
            is_certain: whether all turns compute the expression; other expressions must stay in
                place.
        """
        if tvm_api.dtype_of_expression(node) != "float32":
            return None
        if not mentions(node, self._variable):
            return tirx.Broadcast(self._outside(node) if is_certain else node, self._lanes)
        if isinstance(node, tvm_api.TensorLoad):
            (index,) = node.indices
            is_next = element_step(index, self._variable) == 1
            return tirx.BufferLoad(node.source, [self.ramp(index)]) if is_next else None
        if isinstance(node, OPERATIONS):
            a, b = self.of(node.a, is_certain), self.of(node.b, is_certain)
            return None if a is None or b is None else type(node)(a, b)
        if isinstance(node, tvm_api.Call):
            return self._call(node, is_certain)
        return None

    def _call(self, node: tvm_api.Call, is_certain: bool) -> tvm_api.PrimExpr | None:
        name = str(getattr(node.op, "name", "")).rpartition(".")[2]
        type_ = f"float32x{self._lanes}"
        if name == "if_then_else" and not mentions(node.args[0], self._variable):
            values = [self.of(each, is_certain=False) for each in node.args[1:]]
            if any(each is None for each in values):
                return None
            return tirx.call_intrin(type_, node.op, node.args[0], *values)
        if name == "sigmoid":
            zero, one = (tirx.FloatImm("float32", number) for number in (0.0, 1.0))
            exponential = tvm_api.intrinsic_call("float32", "tirx.exp", [zero - node.args[0]])
            return self.of(tirx.Div(one, one + exponential), is_certain)
        if name not in VECTOR_FUNCTIONS:
            return None
        (value,) = (self.of(each, is_certain) for each in node.args)
        return None if value is None else tvm_api.intrinsic_call(type_, f"tirx.{name}", [value])

    def _outside(self, node: tvm_api.PrimExpr) -> tvm_api.PrimExpr:
        """Return the variable, bound before the loop, with an expression's value, or the
        expression."""
        if not tvm_api.collect(node, tvm_api.Call):
            return node
        for binding in self.bindings:
            if tvm_api.tvm_ffi.structural_equal(binding.value, node):
                return binding.var
        variable = tirx.Var("invariant", "float32")
        self.bindings.append(tirx.Bind(variable, node))
        return variable


# Transposition of squares of a tensor in vector registers: rows are interleaved with the rows half
# a square further, log2(rows) times; each time, the numbers of a column come twice as close. The
# method is the perfect shuffle of H. Stone, "Parallel Processing with the Perfect Shuffle", 1971.

SQUARES = "pragma_umakit_squares"
"""Annotation of a loop over the rows of a square, whose number is its value as text."""


def transposed_square(rows: tvm_api.Stmt, size: int) -> tvm_api.Stmt:
    """Return statements that copy a transposed square in vectors.

    Args:
        rows: the loop over stored rows; returned unchanged if it does anything else.
    """
    columns = getattr(rows, "body", None)
    store = getattr(columns, "body", None)
    if not isinstance(columns, tirx.For) or not isinstance(store, tirx.BufferStore):
        return rows
    load = store.value
    turns = [tvm_api.integer_value(loop.extent) for loop in (rows, columns)]
    if turns != [size, size] or not isinstance(load, tvm_api.TensorLoad) or size & (size - 1):
        return rows
    (target,), (source,) = list(store.indices), list(load.indices)
    row, column = rows.loop_var, columns.loop_var
    steps = [element_step(target, column), element_step(source, row)]
    if steps != [1, 1] or load.source.same_as(store.buffer):
        return rows

    def at(index: tvm_api.PrimExpr, of_row: int, of_column: int) -> tvm_api.PrimExpr:
        values = ((row, of_row), (column, of_column))
        for variable, value in values:
            dtype = tvm_api.dtype_of_expression(variable)
            index = with_value(index, variable, tirx.IntImm(dtype, value))
        return Vectors(row, size).ramp(index)

    values = [tirx.BufferLoad(load.source, [at(source, 0, n)]) for n in range(size)]
    statements: list[tvm_api.Stmt] = []
    distance = size
    while distance > 1:
        distance //= 2
        more, values = _kept(values, size)
        statements += more
        values = _interleaved(values, size)
    stores = [
        tirx.BufferStore(store.buffer, value, [at(target, n, 0)]) for n, value in enumerate(values)
    ]
    return tirx.SeqStmt([*statements, *stores])


def _interleaved(values: list[tvm_api.PrimExpr], size: int) -> list[tvm_api.PrimExpr]:
    """Return the interleaved vectors of pairs of vectors that are half a square apart."""
    half = size // 2
    orders = [
        [tirx.IntImm("int32", begin + n // 2 + size * (n % 2)) for n in range(size)]
        for begin in (0, half)
    ]
    return [
        tirx.Shuffle([values[n], values[n + half]], order) for n in range(half) for order in orders
    ]


def _kept(
    values: list[tvm_api.PrimExpr], size: int
) -> tuple[list[tvm_api.Stmt], list[tvm_api.PrimExpr]]:
    """Return statements that keep vectors in a local array, and the vectors there."""
    array = tirx.decl_buffer((size * size,), "float32", "square")
    one = tirx.IntImm("int32", 1)
    ramps = [tirx.Ramp(tirx.IntImm("int32", n * size), one, size) for n in range(size)]
    stores = [
        tirx.BufferStore(array, value, [ramp]) for value, ramp in zip(values, ramps, strict=True)
    ]
    return [tirx.AllocBuffer(array), *stores], [tirx.BufferLoad(array, [ramp]) for ramp in ramps]
