# SPDX-License-Identifier: Apache-2.0
"""Removal of unused bindings, which TVM leaves behind after inlining their values."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from umakit import tvm_api
from umakit.tir import prim_func_pass, with_body

tirx = tvm_api.tirx


def drop_unused_bindings() -> tvm_api.Pass:
    """Return a TIR pass that drops unused bindings of values without side effects.

    TVM's own passes keep such bindings, and C compilers warn about unused variables.
    """
    return prim_func_pass("umakit.DropUnusedBindings", _without_unused)


def plain_indices_of_scalars() -> tvm_api.Pass:
    """Return a TIR pass that gives accesses to arrays of one element the index 0.

    C has variables for them, so that nothing would use an index that was bound before.
    """
    return prim_func_pass("umakit.PlainIndicesOfScalars", _with_plain_indices)


def _with_plain_indices(function: tvm_api.PrimFunc) -> tvm_api.PrimFunc:
    allocations = tvm_api.collect(function.body, tirx.AllocBuffer)
    scalars = {each.buffer for each in allocations if tvm_api.buffer_shape(each.buffer) == (1,)}
    found: list[Any] = []

    def loaded(load: Any) -> Any:
        if load.source in scalars and tvm_api.integer_value(load.indices[0]) is None:
            found.append(load)
            return load.source[0]
        return load

    def stored(store: Any) -> Any:
        if store.buffer in scalars and tvm_api.integer_value(store.indices[0]) is None:
            found.append(store)
            return tirx.BufferStore(store.buffer, store.value, [tirx.IntImm("int32", 0)])
        return store

    kinds = [(tvm_api.TensorLoad, loaded), (tirx.BufferStore, stored)]
    body = tvm_api.rewrite(function.body, kinds)
    return _without_unused(with_body(function, body)) if found else function


def _without_unused(function: tvm_api.PrimFunc) -> tvm_api.PrimFunc:
    body = function.body
    while True:
        uses = Counter(tvm_api.collect(body, tvm_api.Var))
        bindings = tvm_api.collect(body, tirx.Bind)
        definitions = Counter(binding.var for binding in bindings)
        unused = {variable for variable in definitions if uses[variable] <= definitions[variable]}
        if not unused:
            return with_body(function, body)
        body = tvm_api.rewrite(body, [(tirx.SeqStmt, partial(_kept, unused))])


def _kept(unused: set[Any], sequence: tvm_api.Stmt) -> tvm_api.Stmt:
    kept = [
        statement
        for statement in sequence.seq
        if not (isinstance(statement, tirx.Bind) and statement.var in unused)
    ]
    return kept[0] if len(kept) == 1 else tirx.SeqStmt(kept)
