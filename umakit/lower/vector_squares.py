# SPDX-License-Identifier: Apache-2.0
"""Transposition of squares of a tensor in vector registers.

Rows are interleaved with the rows half a square further, log2(rows) times; each time, the numbers
of a column come twice as close. The method is the perfect shuffle of H. Stone, "Parallel Processing
with the Perfect Shuffle", 1971.
"""

from __future__ import annotations

from umakit import tvm_api
from umakit.lower.vector_expressions import Vectors, element_step, with_value

tirx = tvm_api.tirx

SQUARES = "pragma_umakit_squares"
"""Annotation of a loop over the rows of a square, whose number is its value as text."""


def transposed_square(rows: tvm_api.Stmt, size: int) -> tvm_api.Stmt:
    """Return statements that copy a transposed square in vectors.

    Args:
        rows: the loop over stored rows; returned unchanged if it does anything else.
        size: number of rows and of numbers in a vector.
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
