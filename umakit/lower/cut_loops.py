# SPDX-License-Identifier: Apache-2.0
"""Loop splitting at the turns where a condition changes, so that no part has the condition.

The last tile of a row may be smaller than the others; a condition would keep the sums of all tiles
out of registers. Rows of padded data have a border.
"""

from __future__ import annotations

from typing import Any

from umakit import tir, tvm_api

tirx = tvm_api.tirx

CUTS = "pragma_umakit_cuts"
"""Annotation of a loop: the values of its variable at which a part begins, but the first one's, as
text with commas."""


def cut_loops(function: tvm_api.PrimFunc) -> tvm_api.PrimFunc:
    """Return a prim func without blocks whose loops with the annotation `CUTS` are cut.

    Variables may be bound several times in the result. TVM simplifies expressions that are constant
    in a part.
    """

    def cut(statement: tvm_api.Stmt) -> tvm_api.Stmt:
        if str(statement.attr_key) != CUTS:
            return statement
        loop = statement.body
        begins = [int(text) for text in str(statement.value.value).split(",")]
        ends = [*begins, int(loop.extent.value)]
        parts = [_part(loop, first, end) for first, end in zip([0, *begins], ends, strict=True)]
        return tirx.SeqStmt(parts)

    return tir.with_body(function, tvm_api.rewrite(function.body, [(tirx.AttrStmt, cut)]))


def _part(loop: tvm_api.Stmt, first: int, end: int) -> tvm_api.Stmt:
    """Return the turns of a loop from `first` until before `end`."""
    dtype = str(loop.loop_var.ty.dtype)
    start = tirx.IntImm(dtype, first)
    if end - first == 1:
        return _with_value(loop.body, loop.loop_var, start)
    body = _with_value(loop.body, loop.loop_var, loop.loop_var + start) if first else loop.body
    return tirx.For(
        loop.loop_var, tirx.IntImm(dtype, 0), tirx.IntImm(dtype, end - first), loop.kind, body
    )


def _with_value(body: tvm_api.Stmt, variable: tvm_api.Var, value: tvm_api.PrimExpr) -> tvm_api.Stmt:
    def replaced(other: tvm_api.Var) -> tvm_api.PrimExpr:
        return value if other.same_as(variable) else other

    return tvm_api.rewrite(body, [(tvm_api.Var, replaced)])


def shorten_loops(function: tvm_api.PrimFunc) -> tvm_api.PrimFunc:
    """Return a prim func whose loops end where a condition on their variable ends all their work.

    The last part of a cut loop has fewer turns of an inner loop. Such a condition would keep
    compilers from vectorizing the inner loop.
    """

    def shorten(loop: tvm_api.Stmt) -> tvm_api.Stmt:
        condition = _only_condition(loop.body)
        is_plain = loop.kind == tirx.ForKind.SERIAL and tvm_api.integer_value(loop.min) == 0
        if condition is None or not is_plain:
            return loop
        comparison = condition.condition
        limit = tvm_api.integer_value(comparison.b)
        if limit is None or not comparison.a.same_as(loop.loop_var):
            return loop
        extent = min(limit, int(loop.extent.value))
        body = _without_condition(loop.body)
        end = tirx.IntImm(str(loop.loop_var.ty.dtype), extent)
        return tirx.For(loop.loop_var, loop.min, end, loop.kind, body)

    return tir.with_body(function, tvm_api.rewrite(function.body, [(tirx.For, shorten)]))


def _only_condition(body: tvm_api.Stmt) -> Any | None:
    """Return the comparison `a < b` around all statements of a loop nest; None without one."""
    while isinstance(body, tirx.For):
        body = body.body
    is_condition = isinstance(body, tirx.IfThenElse) and body.else_case is None
    return body if is_condition and isinstance(body.condition, tirx.LT) else None


def _without_condition(body: tvm_api.Stmt) -> tvm_api.Stmt:
    """Return a loop nest without the condition around all its statements."""
    if isinstance(body, tirx.IfThenElse):
        return body.then_case
    return tirx.For(body.loop_var, body.min, body.extent, body.kind, _without_condition(body.body))
