# SPDX-License-Identifier: Apache-2.0
"""The statements of a kernel for its ranges: loops, values, and stores with conditions.

The records do not depend on the order of statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from umakit import tvm_api
from umakit.codegen.element_turns import Definitions
from umakit.lower.driver_calls import DriverCall, Parameter

tirx = tvm_api.tirx

Loops = tuple[tvm_api.Stmt, ...]
"""Loops around a statement, the outermost first; `While` loops too."""


@dataclass(frozen=True)
class Condition:
    """A condition around a statement.

    Attributes:
        holds: True in the first case, False in the other.
    """

    expression: tvm_api.PrimExpr
    holds: bool

    def same_as(self, other: Condition) -> bool:
        """Whether both are the same case of the same `if`, or of its copies."""
        return self.holds == other.holds and bool(self.expression.same_as(other.expression))


Conditions = tuple[Condition, ...]
"""Conditions around a statement, the outermost first."""


@dataclass(frozen=True)
class Store:
    """A store to a buffer that only the kernel itself writes.

    Attributes:
        index: index of the element; None if there are several indices.
        loops: the loops around the store and inside the buffer's allocation.
        conditions: the conditions around the store.
    """

    value: tvm_api.PrimExpr
    index: tvm_api.PrimExpr | None
    loops: Loops
    conditions: Conditions


@dataclass
class OwnBuffer:
    """A buffer that only the kernel itself writes.

    Attributes:
        depth: number of loops around the allocation.
    """

    depth: int
    stores: list[Store] = field(default_factory=list)


class KernelStatements:
    """Records loops, values of variables and stores of a kernel.

    Args:
        nodes: the kernel's body.
        owned: parameters that only the body writes, and writes before reading.

    Attributes:
        definitions: loops and values of the variables.
        conditions: the conditions common to all bindings of a variable.
        buffers: buffers that only the body writes.
    """

    def __init__(
        self, nodes: Sequence[DriverCall | tvm_api.Stmt] = (), owned: Sequence[Any] = ()
    ) -> None:
        self.definitions = Definitions()
        self.conditions: dict[Any, Conditions] = {}
        self.buffers: dict[Any, OwnBuffer] = {buffer: OwnBuffer(0) for buffer in owned}
        self._viewed: dict[Any, Any] = {}
        statements = [node for node in nodes if not isinstance(node, DriverCall)]
        for view in tvm_api.collect(statements, tirx.DeclBuffer):
            self._viewed[view.buffer] = tvm_api.buffers_in(view.data)[0]
        for statement in statements:
            self._learn(statement, (), ())
        for node in nodes:
            for buffer in escaping(node):
                self.buffers.pop(self.home(buffer), None)

    def home(self, buffer: Any) -> Any:
        """Return the buffer behind a view, or the buffer itself."""
        while buffer in self._viewed:
            buffer = self._viewed[buffer]
        return buffer

    def _learn(self, node: tvm_api.Stmt, loops: Loops, conditions: Conditions) -> None:
        handler = getattr(self, f"_learn_{type(node).__name__}", None)
        if handler is not None:
            handler(node, loops, conditions)

    def _learn_SeqStmt(self, node: tvm_api.Stmt, loops: Loops, conditions: Conditions) -> None:
        for child in node.seq:
            self._learn(child, loops, conditions)

    def _learn_For(self, node: tvm_api.Stmt, loops: Loops, conditions: Conditions) -> None:
        self._learn_lets(node.min, node.extent)
        self.definitions.add_loop(node)
        self._learn(node.body, (*loops, node), conditions)

    def _learn_While(self, node: tvm_api.Stmt, loops: Loops, conditions: Conditions) -> None:
        self._learn_lets(node.condition)
        self._learn(node.body, (*loops, node), conditions)

    def _learn_IfThenElse(self, node: tvm_api.Stmt, loops: Loops, conditions: Conditions) -> None:
        self._learn_lets(node.condition)
        for case, holds in ((node.then_case, True), (node.else_case, False)):
            if case is not None:
                self._learn(case, loops, (*conditions, Condition(node.condition, holds)))

    def _learn_AttrStmt(self, node: tvm_api.Stmt, loops: Loops, conditions: Conditions) -> None:
        self._learn(node.body, loops, conditions)

    def _learn_Bind(self, node: tvm_api.Stmt, loops: Loops, conditions: Conditions) -> None:
        self._learn_lets(node.value)
        self.definitions.bind(node.var, node.value)
        known = self.conditions.get(node.var, conditions)
        # A copy of the statement may stand under other conditions.
        common = [c for c in known if any(c.same_as(other) for other in conditions)]
        self.conditions[node.var] = tuple(common)

    def _learn_Evaluate(self, node: tvm_api.Stmt, loops: Loops, conditions: Conditions) -> None:
        self._learn_lets(node.value)

    _learn_Return = _learn_Evaluate

    def _learn_AllocBuffer(self, node: tvm_api.Stmt, loops: Loops, conditions: Conditions) -> None:
        self.buffers[node.buffer] = OwnBuffer(len(loops))

    def _learn_BufferStore(self, node: tvm_api.Stmt, loops: Loops, conditions: Conditions) -> None:
        self._learn_lets(node.value, *node.indices)
        home = self.home(node.buffer)
        if home in self.buffers:
            buffer = self.buffers[home]
            index = node.indices[0] if len(node.indices) == 1 else None
            buffer.stores.append(Store(node.value, index, loops[buffer.depth :], conditions))

    def _learn_lets(self, *expressions: tvm_api.PrimExpr) -> None:
        for expression in expressions:
            for let in tvm_api.collect(expression, tirx.Let):
                self.definitions.bind(let.var, let.value)


def escaping(node: DriverCall | tvm_api.Stmt) -> list[Any]:
    """Return the buffers whose elements may be written other than by a store."""
    if isinstance(node, DriverCall):
        parameters = [o.variable for o in node.operands if isinstance(o, Parameter)]
        others = [o for o in node.operands if not isinstance(o, Parameter)]
        return [*parameters, *tvm_api.buffers_in(others)]
    views = [view.data for view in tvm_api.collect(node, tirx.DeclBuffer)]
    of_views = tvm_api.collect(views, tvm_api.Call)
    found = []
    for call in tvm_api.collect(node, tvm_api.Call):
        if not any(call.same_as(other) for other in of_views):
            arguments = [a for a in call.args if isinstance(a, tvm_api.Var)]
            found += [a for a in arguments if tirx.is_buffer_var(a)]
            found += tvm_api.buffers_in(call) if takes_address(call) else []
    return found


def takes_address(call: tvm_api.Call) -> bool:
    """Whether a call makes a pointer to a buffer or to one of its elements."""
    name = str(getattr(call.op, "name", ""))
    return name.endswith(("buffer_data", "address_of", "tvm_access_ptr"))


def scalars(statements: Sequence[Any]) -> set[Any]:
    """Return the local buffers of one element that are only accessed by element."""
    body = list(statements)
    viewed = [view.data for view in tvm_api.collect(body, tirx.DeclBuffer)]
    calls = [c for c in tvm_api.collect(body, tvm_api.Call) if takes_address(c)]
    excluded = {buffer for node in (*viewed, *calls) for buffer in tvm_api.buffers_in(node)}
    allocated = {statement.buffer for statement in tvm_api.collect(body, tirx.AllocBuffer)}
    return {b for b in allocated - excluded if tvm_api.buffer_shape(b) == (1,)}
