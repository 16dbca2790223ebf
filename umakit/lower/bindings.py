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
