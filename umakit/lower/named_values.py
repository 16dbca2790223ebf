# SPDX-License-Identifier: Apache-2.0
"""Bindings of the values that a backend's TIR pass gave names with `tir.named`.

A name is a call around the value, which TVM's simplifier does not look behind: a binding it would
dissolve. After simplification the calls become bindings, at the start of the innermost loop whose
variable a value depends on.
"""

from __future__ import annotations

from typing import Any

from umakit import tir, tvm_api

tirx = tvm_api.tirx


def bind_named_values() -> tvm_api.Pass:
    """Return a TIR pass that turns calls of `tir.named` into bindings."""
    return tir.prim_func_pass("umakit.BindNamedValues", _bound)


def _bound(function: tvm_api.PrimFunc) -> tvm_api.PrimFunc:
    if not _named(function.body):
        return function
    body = tvm_api.rewrite(function.body, [(tirx.For, _bound_in_loop)])
    return tir.with_body(function, _with_bindings(body, None))


def _bound_in_loop(loop: tvm_api.Stmt) -> tvm_api.Stmt:
    """Return a loop with bindings of what depends on its variable; inner loops have theirs."""
    body = _with_bindings(loop.body, {loop.loop_var})
    return tirx.For(
        loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding,
        loop.annotations, loop.step,
    )  # fmt: skip


def _with_bindings(body: tvm_api.Stmt, changing: set[Any] | None) -> tvm_api.Stmt:
    """Return a body that starts with bindings of named values.

    Args:
        body: statements.
        changing: variables; values that depend on none of them stay calls, for an outer loop to
            bind. None binds all values.
    """
    bindings: list[tvm_api.Stmt] = []
    seen = set() if changing is None else set(changing)
    while True:
        call = next((c for c in _named(body) if changing is None or _mentions(c, seen)), None)
        if call is None:
            return tir.sequence([*bindings, *tvm_api.flatten_statements(body)])
        name, value = tir.name_and_value(call)
        if tvm_api.integer_value(value) is not None or isinstance(value, tirx.Var):
            replacement = value
        else:
            replacement = tirx.Var(name, tvm_api.dtype_of_expression(value))
            bindings.append(tirx.Bind(replacement, value))
            seen.add(replacement)
        body = _replaced(body, call, replacement)


def _replaced(body: tvm_api.Stmt, call: tvm_api.Call, value: tvm_api.PrimExpr) -> tvm_api.Stmt:
    def replace(other: tvm_api.Call) -> tvm_api.PrimExpr:
        return value if tvm_api.tvm_ffi.structural_equal(other, call) else other

    return tvm_api.rewrite(body, [(tvm_api.Call, replace)])


def _named(body: tvm_api.Stmt) -> list[tvm_api.Call]:
    """Return the calls of `tir.named`, inner ones before those around them."""
    return [call for call in tvm_api.collect(body, tvm_api.Call) if tir.is_named(call)]


def _mentions(call: tvm_api.Call, variables: set[Any]) -> bool:
    return any(variable in variables for variable in tvm_api.collect(call, tvm_api.Var))
