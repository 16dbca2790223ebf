# SPDX-License-Identifier: Apache-2.0
"""Legalization of floating-point operators for which TVM's rules lose NaN or infinities.

`rules` makes generated C agree with NumPy: it uses inline helpers (`umakit.codegen.helpers`).
`in_comparisons` gives code that TVM compiles, for constant folding and as the reference, the same
semantics, with maxima, minima, conversions and divisions as comparisons.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.floats.rules import Rule, float_rules
from umakit.tvm_api import Expr, IRModule, PrimExpr, tirx

__all__ = ["constant_rules", "float_rules", "in_comparisons"]

FLOATS = ("float32", "float64")
ELEMENTWISE = (
    "nn.relu clip maximum minimum nn.selu nn.prelu astype quantize floor_divide mod floor_mod "
    "left_shift right_shift"
).split()
"""Operators that keep TVM's rules although these contain such nodes."""


def constant_rules() -> dict[str, Rule]:
    """Return rules by operator for constant folding, which compiles each operator separately."""
    rules = float_rules()
    rules |= {f"relax.{name}": tvm_api.legalization(f"relax.{name}") for name in ELEMENTWISE}
    return {name: _rewritten(rule) for name, rule in rules.items()}


def _rewritten(rule: Rule) -> Rule:
    def apply(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> Expr | None:
        result = rule(builder, call)
        if isinstance(result, tvm_api.Call) and tvm_api.operator_name(result) == "call_tir":
            variable = result.args[0]
            builder.update_func(variable, _function(builder.get()[variable]))
        return result

    return apply


def in_comparisons(module: IRModule) -> IRModule:
    """Return a module whose prim funcs are defined for NaN, infinities and divisors of 0.

    Args:
        module: an IRModule after legalization.
    """
    changed = IRModule(dict(module.functions.items()), module.attrs)
    for variable, function in tvm_api.prim_functions(module):
        changed.update_func(variable, _function(function))
    return changed


def _function(function: tvm_api.PrimFunc) -> tvm_api.PrimFunc:
    callbacks: list[tuple[Any, Callable[[Any], Expr]]] = [
        (tirx.Max, lambda node: _extreme(node, tirx.GT)),
        (tirx.Min, lambda node: _extreme(node, tirx.LT)),
        (tirx.Cast, _conversion),
        *((kind, _division) for kind in (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)),
        *((kind, partial(_shift, kind)) for kind in (tirx.LShift, tirx.RShift)),
    ]
    body = tvm_api.rewrite(function.body, callbacks)
    return tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)


def _dtype(node: Expr) -> str:
    return str(node.ty.dtype)


def _extreme(node: tirx.Max | tirx.Min, comparison: type[tirx.GT] | type[tirx.LT]) -> Expr:
    if _dtype(node) not in FLOATS:
        return node
    a, b = node.a, node.b
    if isinstance(b, tirx.FloatImm):
        a, b = b, a
    better: PrimExpr = comparison(a, b)
    if not isinstance(a, tirx.FloatImm) or a.value != a.value:
        better = tirx.Or(better, tirx.isnan(a))
    return tirx.Select(better, a, b)


def _conversion(node: tirx.Cast) -> Expr:
    source, target = _dtype(node.value), _dtype(node)
    reads = tvm_api.collect(node.value, tvm_api.TensorLoad)
    if source not in FLOATS or target in (*FLOATS, "bool", "float16") or not reads:
        return node
    limits, x = np.iinfo(target), node.value
    low, high = int(limits.min), int(limits.max)
    least, most = tirx.IntImm(target, low), _integer(target, high)
    result = tirx.Select(x > tirx.const(float(low), source), node, least)
    result = tirx.Select(x >= tirx.const(float(high + 1), source), most, result)
    return tirx.Select(tirx.isnan(x), tirx.IntImm(target, 0), result)


def _integer(dtype: str, value: int) -> Expr:
    """Return an integer constant. TVM's constructor is limited to 63 bits."""
    return tirx.const(value, dtype) if value < 2**63 else tirx.Cast(dtype, tirx.const(-1, "int64"))


def _division(node: tirx.Div | tirx.Mod | tirx.FloorDiv | tirx.FloorMod) -> Expr:
    dtype = _dtype(node)
    reads = tvm_api.collect(node.b, tvm_api.TensorLoad)
    if not dtype.startswith(("int", "uint")) or not reads:
        return node
    zero, one = tirx.IntImm(dtype, 0), tirx.IntImm(dtype, 1)
    a, b = node.a, node.b
    quotient = isinstance(node, (tirx.Div, tirx.FloorDiv))
    special: PrimExpr = tirx.EQ(b, zero)
    if dtype.startswith("int"):
        minus_one = tirx.IntImm(dtype, -1)
        special = tirx.Or(special, tirx.EQ(b, minus_one))
        otherwise: PrimExpr = tirx.Select(tirx.EQ(b, zero), zero, zero - a if quotient else zero)
    else:
        otherwise = zero
    return tirx.Select(special, otherwise, type(node)(a, tirx.Select(special, one, b)))


def _shift(kind: type[tirx.LShift] | type[tirx.RShift], node: tirx.LShift | tirx.RShift) -> Expr:
    dtype, amount = _dtype(node), node.b
    if not tvm_api.collect(amount, tvm_api.TensorLoad):
        return node
    width = np.iinfo(dtype).bits
    inside = tirx.And(amount >= tirx.IntImm(dtype, 0), amount < tirx.IntImm(dtype, width))
    moved = kind(node.a, tirx.Select(inside, amount, tirx.IntImm(dtype, width - 1)))
    if kind is tirx.RShift and dtype.startswith("int"):
        return moved
    return tirx.Select(inside, moved, tirx.IntImm(dtype, 0))
