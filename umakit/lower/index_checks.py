# SPDX-License-Identifier: Apache-2.0
"""Bounds checks of indices that depend on data: proven statically or checked at run time.

The pass finds every load and store of a kernel whose index is computed from loaded values, for each
dimension. If interval arithmetic proves that the index is in range, as for a table of 256 values
with an 8-bit index, nothing is added. Otherwise a check is inserted as early as the values are
available: outside of all loops that the index does not depend on, and inside copies of the loops
that the index depends on. An index out of range ends the kernel with `INDEX_OUT_OF_RANGE` before
the element is read or written.

The pass runs before tensors are flattened. In a flattened tensor an index beyond one dimension may
still be inside the memory and would go undetected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from umakit import tvm_api
from umakit.errors import LoweringError
from umakit.lower.check_statements import (
    Check,
    before,
    distinct,
    given_away,
    may_pass,
    only_if,
    with_loop,
)
from umakit.lower.index_ranges import Elements, Fact, Range, Ranges, called, dtype_range
from umakit.operators.kernels.loops import INSIDE
from umakit.tir import with_body
from umakit.tvm_api import Buffer, Call, Node, PrimExpr, PrimFunc, Stmt, TensorLoad, Var

tirx = tvm_api.tirx

INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))


@dataclass
class _Checked:
    """A statement, and the checks that have to run before the statement."""

    statement: Any
    pending: list[Check] = field(default_factory=list)


def check_indices(function: PrimFunc, elements: Sequence[Elements | None], where: str) -> PrimFunc:
    """Insert checks into a prim func; the function returns `INDEX_OUT_OF_RANGE` for a bad index.

    Args:
        function: prim func without blocks, before tensors are flattened.

    Returns:
        The function with checks; the unchanged function if all indices are known to be in range.
    """
    vouched = tvm_api.function_attribute(function, INSIDE) is not None
    if vouched or not has_loaded_positions(function.body):
        return function
    constants = {
        parameter: constant
        for parameter, constant in zip(function.params, elements, strict=False)
        if constant is not None
    }
    checker = _Checker(constants, where)
    checked = checker.body(function.body)
    return with_body(function, checked) if checker.count else function


def has_loaded_positions(body: Stmt) -> bool:
    """Whether an index in a prim func, with or without blocks, depends on loaded values."""
    if any(_is_loaded(bind.value) for bind in tvm_api.collect(body, tirx.Bind)):
        return True
    if any(_is_loaded(loop.extent) for loop in tvm_api.collect(body, tirx.For)):
        return True
    accesses = [
        *tvm_api.collect(body, TensorLoad),
        *tvm_api.collect(body, tirx.BufferStore),
    ]
    if any(_is_loaded(index) for access in accesses for index in access.indices):
        return True
    return any(_is_loaded(argument) for argument in _pointer_offsets(body))


def _is_loaded(expression: PrimExpr) -> bool:
    return bool(tvm_api.collect(expression, TensorLoad))


def _pointer_offsets(node: Node) -> list[Any]:
    calls = tvm_api.collect(node, Call)
    return [argument for c in calls if called(c) == "tvm_access_ptr" for argument in c.args[2:]]


class _Checker:
    """Rewrites the statements of one prim func."""

    def __init__(self, constants: Mapping[Any, Elements], where: str) -> None:
        self._ranges = Ranges(constants)
        self._constant = set(constants)
        self._where = where
        self._tainted: set[Any] = set()
        # By expression, and by expression and facts: parts are shared, and walked once.
        self._dependent: dict[Any, bool] = {}
        self._found: dict[tuple[Any, tuple[Fact, ...]], list[Check]] = {}
        self.count = 0

    def body(self, body: Stmt) -> Stmt:
        """Return the body with checks inserted."""
        self._learn(body)
        checked = self._visit(body, ())
        return before(checked.pending, checked.statement)

    # --- facts --------------------------------------------------------------------------------

    def _learn(self, body: Stmt) -> None:
        """Record loops, variables, and values stored to local buffers of the prim func."""
        pointed_at = given_away(body)
        for allocation in tvm_api.collect(body, tirx.AllocBuffer):
            if not any(allocation.buffer.same_as(buffer) for buffer in pointed_at):
                self._ranges.add_scratch(allocation.buffer)
        self._learn_below(body, ())

    def _learn_below(self, node: Stmt, facts: tuple[Fact, ...]) -> None:
        if isinstance(node, tirx.SeqStmt):
            for child in node.seq:
                self._learn_below(child, facts)
        elif isinstance(node, tirx.For):
            self._ranges.add_loop(node)
            if self._depends_on_data(node.extent) or self._depends_on_data(node.min):
                self._tainted.add(node.loop_var)
            self._learn_below(node.body, facts)
        elif isinstance(node, tirx.Bind):
            self._ranges.bind(node.var, node.value)
            if self._depends_on_data(node.value):
                self._tainted.add(node.var)
        elif isinstance(node, tirx.BufferStore):
            self._ranges.add_store(node.buffer, node.value, facts)
        elif isinstance(node, tirx.IfThenElse):
            yes, no = (self._ranges.facts_of(node.condition, holds) for holds in (True, False))
            self._learn_below(node.then_case, (*facts, *yes))
            if node.else_case is not None:
                self._learn_below(node.else_case, (*facts, *no))
        elif isinstance(node, (tirx.While, tirx.AttrStmt)):
            self._learn_below(node.body, facts)

    def _depends_on_data(self, expression: PrimExpr) -> bool:
        found = self._dependent.get(expression)
        if found is None:
            found = self._is_computed_from_data(expression)
            self._dependent[expression] = found
        return found

    def _is_computed_from_data(self, expression: PrimExpr) -> bool:
        if isinstance(expression, Var):
            return expression in self._tainted
        if isinstance(expression, TensorLoad):
            return True
        if isinstance(expression, Call):
            return any(map(self._depends_on_data, expression.args))
        operands = _operands(expression)
        if operands:
            return any(self._depends_on_data(operand) for operand, _ in operands)
        return _is_loaded(expression) or any(
            variable in self._tainted for variable in tvm_api.collect(expression, Var)
        )

    # --- statements ----------------------------------------------------------------------------

    def _visit(self, statement: Stmt, facts: tuple[Fact, ...]) -> _Checked:
        handler = getattr(self, f"_visit_{type(statement).__name__}", None)
        if handler is not None:
            return handler(statement, facts)
        return _Checked(statement, self._checks_of(statement, facts))

    def _visit_SeqStmt(self, statement: Stmt, facts: tuple[Fact, ...]) -> _Checked:
        kept: list[Any] = []
        pending: list[Check] = []
        for child in statement.seq:
            checked = self._visit(child, facts)
            stay = [check for check in checked.pending if not may_pass(check, kept)]
            # Checks keep their order: a later check may read at an index of an earlier check.
            first = checked.pending.index(stay[0]) if stay else len(checked.pending)
            pending += checked.pending[:first]
            kept += [check.statement() for check in distinct(checked.pending[first:])]
            kept.append(checked.statement)
        return _Checked(tirx.SeqStmt(kept) if len(kept) > 1 else kept[0], distinct(pending))

    def _visit_For(self, statement: Stmt, facts: tuple[Fact, ...]) -> _Checked:
        outside = [
            *self._checks_of(statement.min, facts),
            *self._checks_of(statement.extent, facts),
        ]
        checked = self._visit(statement.body, facts)
        extent = tvm_api.integer_value(statement.extent)
        is_plain = bool(extent) and tvm_api.integer_value(statement.min) is not None
        moved: list[Check] = []
        while checked.pending and is_plain and may_pass(checked.pending[0], [statement.body]):
            check = checked.pending.pop(0)
            repeated = check.depends_on(statement.loop_var)
            moved.append(replace(check, loops=(statement, *check.loops)) if repeated else check)
        body = before(checked.pending, checked.statement)
        return _Checked(with_loop(statement, body), distinct([*outside, *moved]))

    def _visit_While(self, statement: Stmt, facts: tuple[Fact, ...]) -> _Checked:
        if self._checks_of(statement.condition, facts):
            raise self._refusal("the condition of a while loop reads at a position")
        checked = self._visit(statement.body, facts)
        body = before(checked.pending, checked.statement)
        return _Checked(tirx.While(statement.condition, body))

    def _visit_AttrStmt(self, statement: Stmt, facts: tuple[Fact, ...]) -> _Checked:
        checked = self._visit(statement.body, facts)
        rebuilt = tirx.AttrStmt(
            statement.node, statement.attr_key, statement.value, checked.statement
        )
        return _Checked(rebuilt, checked.pending)

    def _visit_IfThenElse(self, statement: Stmt, facts: tuple[Fact, ...]) -> _Checked:
        cases = []
        for case, holds in ((statement.then_case, True), (statement.else_case, False)):
            if case is not None:
                about = self._ranges.facts_of(statement.condition, holds)
                checked = self._visit(case, (*facts, *about))
                case = before(checked.pending, checked.statement)
            cases.append(case)
        rebuilt = tirx.IfThenElse(statement.condition, *cases)
        return _Checked(rebuilt, self._checks_of(statement.condition, facts))

    # --- expressions ---------------------------------------------------------------------------

    def _checks_of(self, node: PrimExpr | Stmt, facts: tuple[Fact, ...]) -> list[Check]:
        """Return the checks of all accesses in an expression or in a simple statement."""
        if isinstance(node, (tirx.Bind, tirx.Evaluate, tirx.Return)):
            return self._checks_of(node.value, facts)
        if isinstance(node, Stmt) and not isinstance(node, tirx.BufferStore):
            return []
        if any(self._depends_on_data(offset) for offset in _pointer_offsets(node)):
            raise self._refusal("a pointer is at a position")
        if not isinstance(node, tirx.BufferStore):
            return distinct(self._checks_below(node, facts))
        found = [c for each in (*node.indices, node.value) for c in self._checks_below(each, facts)]
        return distinct([*found, *self._checks_of_access(node.buffer, node.indices, facts)])

    def _checks_below(self, node: PrimExpr, facts: tuple[Fact, ...]) -> list[Check]:
        """Return the checks of all loads in an expression, without duplicates."""
        if not self._depends_on_data(node):
            return []
        key = (node, facts)
        if key not in self._found:
            self._found[key] = list(dict.fromkeys(self._checks_of_operands(node, facts)))
        return self._found[key]

    def _checks_of_operands(self, node: PrimExpr, facts: tuple[Fact, ...]) -> Iterator[Check]:
        if isinstance(node, TensorLoad):
            for index in node.indices:
                yield from self._checks_below(index, facts)
            yield from self._checks_of_access(node.source, node.indices, facts)
            return
        for operand, condition in _operands(node):
            if condition is None:
                yield from self._checks_below(operand, facts)
            elif self._depends_on_data(operand):
                about = self._ranges.facts_of(*condition)
                inner = self._checks_below(operand, (*facts, *about))
                yield from (only_if(condition, check) for check in inner)

    def _checks_of_access(
        self, buffer: Buffer, indices: Sequence[Any], facts: tuple[Fact, ...]
    ) -> list[Check]:
        checks = []
        for axis, (index, extent) in enumerate(
            zip(indices, tvm_api.buffer_shape(buffer), strict=False)
        ):
            if not self._depends_on_data(index):
                continue
            if str(index.ty.dtype) not in INTEGERS:
                raise self._refusal("a vector is read or written at a position")
            low, high = self._ranges.of(index, facts)
            if low >= 0 and high < extent:
                continue
            if not facts:
                self._refuse_constant(index, (low, high), axis, extent)
            fails = self._out_of_range(self._in_full(index), extent, facts)
            if fails is not None:
                checks.append(Check(fails))
                self.count += 1
        return checks

    def _refuse_constant(self, index: PrimExpr, found: Range, axis: int, extent: int) -> None:
        """Refuse a constant index tensor with an element out of range."""
        if not isinstance(index, TensorLoad) or index.source not in self._constant:
            return
        if self._ranges.is_every_element(index):
            value = found[0] if found[0] < 0 else found[1]
            raise LoweringError(
                f"index {value} is out of range for dimension {axis}, which has the size {extent}",
                where=self._where,
                fix="mend the constant indices in the model",
            )

    def _out_of_range(
        self, index: PrimExpr, extent: int, facts: tuple[Fact, ...]
    ) -> PrimExpr | None:
        """Return the condition under which an index is out of range; None for never.

        A select expression, as for indices that count from the end, becomes one condition per case;
        each condition is a comparison with a constant.
        """
        choice = _choice(index)
        if choice is None:
            return self._outside(index, extent, facts)
        condition, *cases = choice
        conditions = []
        for case, holds in zip(cases, (True, False), strict=True):
            about = (*facts, *self._ranges.facts_of(condition, holds))
            outside = self._out_of_range(case, extent, about)
            if outside is not None:
                conditions.append(tirx.And(condition if holds else tirx.Not(condition), outside))
        return _any(conditions)

    def _outside(self, index: PrimExpr, extent: int, facts: tuple[Fact, ...]) -> PrimExpr | None:
        """Return the condition for an index that is not a select expression."""
        dtype = str(index.ty.dtype)
        low, high = self._ranges.of(index, facts)
        if low >= 0 and high < extent:
            return None
        casts = tvm_api.collect(index, tirx.Cast)
        conditions = [condition for cast in casts for condition in self._lost_by(cast, facts)]
        if low < 0:
            conditions.append(index < tirx.IntImm(dtype, 0))
        if high >= extent:
            conditions.append(index >= tirx.IntImm(dtype, extent))
        return _any(conditions)

    def _in_full(self, expression: PrimExpr) -> PrimExpr:
        """Substitute bound variables by their values, if the values depend on data.

        A check without these variables can run before the bindings.
        """

        def value(variable: Var) -> PrimExpr:
            bound = self._ranges.value_of(variable) if variable in self._tainted else None
            return variable if bound is None else self._in_full(bound)

        return tvm_api.rewrite(expression, [(Var, value)])

    def _lost_by(self, cast: PrimExpr, facts: tuple[Fact, ...]) -> list[Any]:
        """Return the conditions under which a narrowing cast hides a bad index."""
        source, target = str(cast.value.ty.dtype), str(cast.ty.dtype)
        least, largest = dtype_range(target)
        if not self._depends_on_data(cast.value) or target not in INTEGERS:
            return []
        if source.startswith("float"):
            above, below = (tirx.FloatImm(source, float(limit)) for limit in (least, largest + 1))
            return [tirx.Not(tirx.And(cast.value >= above, cast.value < below))]
        low, high = self._ranges.of(cast.value, facts)
        conditions = []
        if low < least:
            conditions.append(cast.value < tirx.IntImm(source, least))
        if high > largest:
            conditions.append(cast.value > tirx.IntImm(source, largest))
        return conditions

    def _refusal(self, what: str) -> LoweringError:
        return LoweringError(
            f"{what} that depends on data, in a way that cannot be checked",
            where=self._where,
            fix="write the lowering with scalar positions, or compile with --no-index-checks",
        )


def _any(conditions: Sequence[Any]) -> PrimExpr | None:
    """Return the disjunction of conditions; None if there are none."""
    return reduce(tirx.Or, conditions) if conditions else None


def _choice(expression: PrimExpr) -> tuple[Any, Any, Any] | None:
    """Return condition and both cases of a select expression; None for other expressions."""
    if type(expression).__name__ == "Select":
        return expression.condition, expression.true_value, expression.false_value
    if isinstance(expression, Call) and called(expression) == "if_then_else":
        condition, yes, no = expression.args
        return condition, yes, no
    return None


def _operands(node: PrimExpr) -> list[tuple[Any, tuple[Any, bool] | None]]:
    """Return the operands of an expression, each with its guard and the guard's required value."""
    choice = _choice(node)
    if choice is not None:
        condition, yes, no = choice
        return [(condition, None), (yes, (condition, True)), (no, (condition, False))]
    kind = type(node).__name__
    if kind in ("And", "Or"):
        return [(node.a, None), (node.b, (node.a, kind == "And"))]
    if kind == "Call":
        return [(each, None) for each in node.args if hasattr(getattr(each, "ty", None), "dtype")]
    if kind == "Let":
        return [(node.value, None), (node.body, None)]
    names = ("a", "b") if hasattr(node, "a") else ("value",)
    return [(getattr(node, name), None) for name in names if hasattr(node, name)]
