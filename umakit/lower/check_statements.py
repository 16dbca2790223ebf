# SPDX-License-Identifier: Apache-2.0
"""Index checks as TIR statements, and the conditions under which a check may be hoisted.

`index_checks` finds the indices to check. The statements here end a kernel if an index is out of
range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from umakit import tvm_api
from umakit.lower.index_ranges import called
from umakit.tvm_api import Call, Node, TensorLoad, Var

tirx = tvm_api.tirx

INDEX_OUT_OF_RANGE = -16
"""Status that a kernel returns for an index out of range; statuses of drivers are positive."""


def is_index_check(statement: tvm_api.Stmt) -> bool:
    """Whether a statement returns the status for an index out of range."""
    return tvm_api.integer_value(statement.value) == INDEX_OUT_OF_RANGE


@dataclass(frozen=True, eq=False)
class Check:
    """A condition under which a kernel stops; checks are compared by `distinct`.

    Attributes:
        fails: bool expression; its reads are in range once the preceding checks have passed.
        loops: loops that repeat the check, outermost first.
    """

    fails: Any
    loops: tuple[Any, ...] = ()

    def depends_on(self, variable: Var) -> bool:
        """Whether the condition mentions a variable."""
        return any(used.same_as(variable) for used in tvm_api.collect(self.fails, Var))

    def reads(self, buffers: Sequence[Any]) -> bool:
        """Whether the condition reads any of the buffers."""
        loads = tvm_api.collect(self.fails, TensorLoad)
        return any(load.source.same_as(buffer) for load in loads for buffer in buffers)

    def statement(self) -> tvm_api.Stmt:
        """Return the check as a TIR statement."""
        stop = tirx.stmt.Return(tirx.IntImm("int32", INDEX_OUT_OF_RANGE))
        statement: tvm_api.Stmt = tirx.IfThenElse(self.fails, stop, None)
        for loop in reversed(self.loops):
            variable = tirx.Var(str(loop.loop_var.name), str(loop.loop_var.ty.dtype))
            statement = with_loop(loop, _renamed(statement, loop.loop_var, variable), variable)
        return statement


def only_if(condition: tuple[Any, bool], check: Check) -> Check:
    """Return a check that runs only if an expression is true, or only if it is false."""
    expression, holds = condition
    guard = expression if holds else tirx.Not(expression)
    return replace(check, fails=tirx.And(guard, check.fails))


def may_pass(check: Check, statements: Sequence[Any]) -> bool:
    """Whether a check may be moved before statements, because they change none of its operands."""
    stored = [store.buffer for s in statements for store in tvm_api.collect(s, tirx.BufferStore)]
    if check.reads([*stored, *(buffer for s in statements for buffer in given_away(s))]):
        return False
    bound = [bind.var for s in statements for bind in tvm_api.collect(s, tirx.Bind)]
    inner = [
        loop.loop_var
        for s in statements
        for loop in tvm_api.collect(s, tirx.For)
        if not any(loop.loop_var.same_as(own.loop_var) for own in check.loops)
    ]
    return not any(check.depends_on(variable) for variable in (*bound, *inner))


def distinct(checks: Sequence[Check]) -> list[Check]:
    """Return the checks without duplicates."""
    kept: list[Check] = []
    for check in checks:
        if not any(_same(check, other) for other in kept):
            kept.append(check)
    return kept


def _same(one: Check, other: Check) -> bool:
    equal = tvm_api.tvm_ffi.structural_equal
    return len(one.loops) == len(other.loops) and bool(
        equal(one.statement(), other.statement()) if one.loops else equal(one.fails, other.fails)
    )


def before(checks: Sequence[Check], statement: tvm_api.Stmt) -> tvm_api.Stmt:
    """Return a sequence of checks followed by a statement."""
    statements = [check.statement() for check in distinct(checks)]
    return tirx.SeqStmt([*statements, statement]) if statements else statement


def with_loop(loop: tvm_api.Stmt, body: tvm_api.Stmt, variable: Var | None = None) -> tvm_api.Stmt:
    """Return a copy of a loop with another body and optionally another variable."""
    return tirx.For(
        loop.loop_var if variable is None else variable,
        loop.min,
        loop.extent,
        loop.kind if variable is None else tirx.ForKind.SERIAL,
        body,
        loop.thread_binding,
        loop.annotations,
        loop.step,
    )


def _renamed(statement: tvm_api.Stmt, old: Var, new: Var) -> tvm_api.Stmt:
    return tvm_api.rewrite(statement, [(Var, lambda found: new if found.same_as(old) else found)])


def given_away(node: Node) -> list[Any]:
    """Return the buffers whose pointers functions get, which may write to them."""
    calls = tvm_api.collect(node, Call)
    names = (
        "call_driver", "call_extern", "call_pure_extern", "address_of", "tvm_access_ptr",
        "buffer_data",
    )  # fmt: skip
    return [b for call in calls if called(call) in names for b in tvm_api.buffers_in(call)]
