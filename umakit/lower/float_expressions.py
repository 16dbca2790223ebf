# SPDX-License-Identifier: Apache-2.0
"""TVM's simplification passes without rules that change floating-point results.

TVM's simplifier treats floats as real numbers: it rewrites `x - x` to 0, `x == x` to true,
`!(x < y)` to `y <= x` and `(x + c) - c` to `x`, which is wrong for infinities, NaN and rounding.
So such operations are replaced by opaque calls while its passes run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from umakit import tvm_api
from umakit.tir import prim_func_pass, with_body

tirx = tvm_api.tirx
KINDS = {
    kind.__name__: kind
    for kind in (
        tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.Max, tirx.Min,
        tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE,
    )
}  # fmt: skip
PREFIX = "umakit_hidden_"


def without_float_rules(simplification: tvm_api.Pass) -> list[Any]:
    """Return passes that hide float operations, run a pass of TVM, and restore them."""
    return [_pass("umakit.HideFloats", _hidden), simplification, _pass("umakit.ShowFloats", _shown)]


def _pass(name: str, change: Callable[[Any], Any]) -> tvm_api.Pass:
    return prim_func_pass(name, lambda function: with_body(function, change(function.body)))


def _hidden(body: tvm_api.Stmt) -> tvm_api.Stmt:
    def hide(node: Any) -> tvm_api.PrimExpr:
        if not str(node.a.ty.dtype).startswith("float"):
            return node
        name = f"{PREFIX}{type(node).__name__}"
        return tirx.call_pure_extern(str(node.ty.dtype), name, node.a, node.b)

    return tvm_api.rewrite(body, [(kind, hide) for kind in KINDS.values()])


def _shown(body: tvm_api.Stmt) -> tvm_api.Stmt:
    def show(call: tvm_api.Call) -> tvm_api.PrimExpr:
        if not str(getattr(call.op, "name", "")).endswith("call_pure_extern"):
            return call
        name = str(call.args[0].value)
        if not name.startswith(PREFIX):
            return call
        return KINDS[name.removeprefix(PREFIX)](*call.args[1:])

    return tvm_api.rewrite(body, [(tvm_api.Call, show)])
