# SPDX-License-Identifier: Apache-2.0
"""Analysis of the inputs of a kernel that may share memory with its output.

An output may take an input's place if each output element is written exactly once, and if only the
writing statement, or values bound right before the statement, read the input, at the written
element. Element-wise kernels satisfy this, and so does the residual added after a convolution.
"""

from __future__ import annotations

import math
from typing import Any

from umakit import tvm_api
from umakit.lower.loop_values import Views
from umakit.tvm_api import Buffer, Call, PrimExpr, Stmt, TensorLoad

tirx = tvm_api.tirx
Store = tuple[Any, tuple[int | None, ...], list[Any]]
"""A store, the extents of the loops around it, and the values that it depends on."""


def in_place_inputs(body: Stmt, inputs: list[Any], output: Buffer) -> tuple[int, ...]:
    """Return the indices of the inputs that may share the output's memory."""
    if _has_hidden_accesses(body):
        return ()
    stores = _Stores(body)
    written = stores.to(output)
    if not _is_one_store(written) or stores.loads_of(output):
        return ()
    if any(extent is None for _, extents, _ in written for extent in extents):
        return ()
    # Every element is written: as many visits as elements means one visit for each element.
    visits = sum(
        math.prod(extent or 0 for extent in extents) * _lanes(store)
        for store, extents, _ in written
    )
    if visits != math.prod(tvm_api.buffer_shape(output)):
        return ()
    return tuple(
        position
        for position, buffer in enumerate(inputs)
        if _may_overwrite(stores, written, buffer, output)
    )


def _is_one_store(written: list[Store]) -> bool:
    """Whether all stores belong to one assignment: vectors, and the numbers that fill no vector."""
    return len(written) == 1 or any(_lanes(store) > 1 for store, _, _ in written)


def _lanes(store: Stmt) -> int:
    lanes = [tvm_api.integer_value(index.lanes) for index in store.indices if is_ramp(index)]
    return math.prod(each or 0 for each in lanes)


def is_ramp(index: PrimExpr) -> bool:
    """Whether an index selects neighbouring elements, a vector."""
    return isinstance(index, tirx.Ramp) and tvm_api.integer_value(index.stride) == 1


def _has_hidden_accesses(body: Stmt) -> bool:
    """Whether memory is accessed other than by loads and stores, for example through pointers."""
    hidden = ("call_driver", "call_extern", "address_of", "tvm_access_ptr")
    calls = tvm_api.collect(body, Call)
    return bool(tvm_api.collect(body, tirx.While)) or any(
        str(getattr(call.op, "name", "")).endswith(hidden) for call in calls
    )


def _may_overwrite(
    stores: _Stores,
    written: list[Store],
    buffer: Buffer,
    output: Buffer,
) -> bool:
    if tvm_api.buffer_bytes(buffer) != tvm_api.buffer_bytes(output):
        return False
    if tvm_api.buffer_dtype(buffer) != tvm_api.buffer_dtype(output):
        return False
    inside = [
        (load, store)
        for store, _, values in written
        for value in values
        for load in tvm_api.collect(value, TensorLoad)
        if stores.root(load.source).same_as(buffer)
    ]
    everywhere = stores.loads_of(buffer)
    same_element = all(
        tvm_api.tvm_ffi.structural_equal(list(load.indices), list(store.indices))
        for load, store in inside
    )
    return bool(inside) and len(inside) == len(everywhere) and same_element


class _Stores:
    """Stores and loads of a kernel, with views resolved to the underlying buffers."""

    def __init__(self, body: Stmt) -> None:
        self.root = Views(body).root
        self._loads = tvm_api.collect(body, TensorLoad)
        self._stores: list[Store] = []
        self._walk(body, (), [])

    def to(self, buffer: Buffer) -> list[Store]:
        """Return the stores to a buffer."""
        return [entry for entry in self._stores if self.root(entry[0].buffer).same_as(buffer)]

    def loads_of(self, buffer: Buffer) -> list[Any]:
        """Return the loads from a buffer."""
        return [load for load in self._loads if self.root(load.source).same_as(buffer)]

    def _walk(self, statement: Stmt, extents: tuple[int | None, ...], bound: list[Any]) -> None:
        """Record the stores below a statement."""
        if isinstance(statement, tirx.SeqStmt):
            for child in statement.seq:
                self._walk(child, extents, bound)
        elif isinstance(statement, tirx.For):
            self._walk(statement.body, (*extents, tvm_api.integer_value(statement.extent)), [])
        elif isinstance(statement, tirx.Bind):
            bound.append(statement.value)
        elif isinstance(statement, tirx.BufferStore):
            self._stores.append((statement, extents, [statement.value, *bound]))
        elif isinstance(statement, tirx.AttrStmt):
            self._walk(statement.body, extents, bound)
        elif isinstance(statement, tirx.IfThenElse):
            # A conditional store does not happen at each visit.
            self._walk(statement.then_case, (*extents, None), [])
            if statement.else_case is not None:
                self._walk(statement.else_case, (*extents, None), [])
