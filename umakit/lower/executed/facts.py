# SPDX-License-Identifier: Apache-2.0
"""Facts for the count of a kernel: values of variables, unrolled loops, and arrays in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from umakit import tvm_api
from umakit.lower.index_ranges import called
from umakit.operators.kernels.dot_forms import header_of_form
from umakit.tvm_api import Call, TensorLoad, Var

tirx = tvm_api.tirx

MOST_TURNS, MOST_UNROLLED = 16, 200
"""Turns of an innermost loop and instructions of all of them up to which compilers unroll it
whole: `max-completely-peel-times` and `max-completely-peeled-insns` of gcc at -O3."""

CALL_SIZE = 20
"""About how many instructions an inlined call is."""

REGISTER_ELEMENTS = 64
"""Elements of a local array up to which its elements are registers, if indices are constant."""


class KernelFacts:
    """Facts about all statements of a kernel.

    Attributes:
        listed: loop variables whose values conditions, extents and arguments depend on.
        unrolled: extents of completely unrolled loops, by loop variable.
    """

    def __init__(self, statements: Sequence[Any]) -> None:
        body = list(statements)
        self.bound: dict[Any, Any] = {b.var: b.value for b in tvm_api.collect(body, tirx.Bind)}
        self.bound |= {let.var: let.value for let in tvm_api.collect(body, tirx.Let)}
        self._viewed = {
            view.buffer: tvm_api.buffers_in(view.data)[0]
            for view in tvm_api.collect(body, tirx.DeclBuffer)
        }
        self._roots: dict[Any, frozenset[Any]] = {}
        self._loops = {loop.loop_var for loop in tvm_api.collect(body, tirx.For)}
        self.listed = self._listed(body)
        self.unrolled: dict[Any, int] = {}
        for statement in body:
            self._unroll(statement)
        self.registers = self._registers(body)

    def home(self, buffer: Any) -> Any:
        """Return the buffer behind a view, or the buffer itself."""
        while buffer in self._viewed:
            buffer = self._viewed[buffer]
        return buffer

    def loops_of(self, node: Any) -> frozenset[Any]:
        """Return the loop variables that an expression depends on, without its loads."""
        found: set[Any] = set()
        for variable in tvm_api.collect(node, Var):
            if variable in self._loops:
                found.add(variable)
            elif variable in self.bound:
                if variable not in self._roots:
                    self._roots[variable] = self.loops_of(self.bound[variable])
                found |= self._roots[variable]
        return frozenset(found)

    def written_in(self, statement: Any) -> frozenset[Any]:
        """Return the buffers that a statement writes, by stores or by calls of C functions."""
        found = {self.home(s.buffer) for s in tvm_api.collect(statement, tirx.BufferStore)}
        for call in tvm_api.collect(statement, Call):
            if called(call) == "call_extern":
                found |= {self.home(buffer) for buffer in tvm_api.buffers_in(call)}
        return frozenset(found)

    def stores_to(self, statement: Any, buffer: Any) -> list[Any]:
        """Return the stores of a statement to a buffer."""
        stores = tvm_api.collect(statement, tirx.BufferStore)
        return [store for store in stores if self.home(store.buffer) == buffer]

    def is_parallel(self, loop: Any, early_turns: int) -> bool:
        """Whether compilers may vectorize a loop.

        The loop computes in float32, is innermost, has no conditions and calls, and stores to
        consecutive elements. gcc 12 vectorizes such loops for Helium, but no loops of 8-bit
        integers.

        Args:
            early_turns: most turns of loops that are unrolled before vectorization.
        """
        extent = tvm_api.integer_value(loop.extent)
        if extent is not None and extent <= early_turns:
            return False
        inner = (tirx.For, tirx.IfThenElse, tirx.While, Call, tirx.Ramp)
        if any(tvm_api.collect(loop.body, kind) for kind in inner):
            return False
        stores = tvm_api.collect(loop.body, tirx.BufferStore)
        if any(tvm_api.buffer_dtype(store.buffer) != "float32" for store in stores):
            return False
        loads = tvm_api.collect(loop.body, TensorLoad)
        steps = {self._step(list(each.indices), loop.loop_var) for each in loads}
        return (
            bool(stores)
            and steps <= {0, 1}
            and all(self._step(list(each.indices), loop.loop_var) == 1 for each in stores)
        )

    def _step(self, indices: Sequence[Any], variable: Any) -> int | None:
        """Return the distance of the elements of two turns; None if it is not constant."""
        return self._factor(indices[0], variable) if len(indices) == 1 else None

    def _factor(self, node: Any, variable: Any) -> int | None:
        """Return the factor of a variable in a linear expression; None for other expressions."""
        if isinstance(node, Var):
            if node in self.bound:
                return self._factor(self.bound[node], variable)
            return int(bool(node.same_as(variable)))
        if variable not in self.loops_of(node):
            return 0
        kind = type(node).__name__
        if kind == "Cast":
            return self._factor(node.value, variable)
        if kind in ("Add", "Sub"):
            left, right = self._factor(node.a, variable), self._factor(node.b, variable)
            sign = 1 if kind == "Add" else -1
            return None if left is None or right is None else left + sign * right
        if kind == "Mul":
            for factor, other in ((node.a, node.b), (node.b, node.a)):
                number, own = tvm_api.integer_value(factor), self._factor(other, variable)
                if number is not None and own is not None:
                    return number * own
        return None

    def _listed(self, body: Sequence[Any]) -> frozenset[Any]:
        found: set[Any] = set()
        for loop in tvm_api.collect(body, tirx.For):
            found |= self.loops_of(loop.extent) | self.loops_of(loop.min)
        for branch in tvm_api.collect(body, tirx.IfThenElse):
            found |= self.loops_of(branch.condition)
        for call in tvm_api.collect(body, Call):
            if called(call) == "if_then_else":
                found |= self.loops_of(call.args[0])
            if called(call) == "call_extern" and header_of_form(str(call.args[0].value)):
                numbers = [a for a in call.args[1:] if not isinstance(a, Call)]
                found |= self.loops_of(numbers)
        return frozenset(found)

    def _unroll(self, statement: Any) -> int:
        """Return the approximate instructions of a statement, and note the loops to unroll.

        A statement with a loop that is not unrolled has more instructions than are ever unrolled.
        """
        if isinstance(statement, tirx.SeqStmt):
            return sum(self._unroll(child) for child in statement.seq)
        if isinstance(statement, tirx.AttrStmt):
            return self._unroll(statement.body)
        if isinstance(statement, tirx.IfThenElse):
            other = statement.else_case
            return 2 + self._unroll(statement.then_case) + (self._unroll(other) if other else 0)
        if isinstance(statement, tirx.For):
            size = self._unroll(statement.body)
            extent = tvm_api.integer_value(statement.extent)
            fits = extent is not None and extent <= MOST_TURNS and extent * size <= MOST_UNROLLED
            if not fits or extent is None:
                return MOST_UNROLLED + 1
            self.unrolled[statement.loop_var] = extent
            return extent * size
        return _instructions(statement)

    def _registers(self, body: Sequence[Any]) -> frozenset[Any]:
        arrays = {
            each.buffer
            for each in tvm_api.collect(body, tirx.AllocBuffer)
            if tvm_api.buffer_shape(each.buffer)[0] <= REGISTER_ELEMENTS
        }
        accesses = [(load.source, load.indices) for load in tvm_api.collect(body, TensorLoad)]
        accesses += [(s.buffer, s.indices) for s in tvm_api.collect(body, tirx.BufferStore)]
        for buffer, indices in accesses:
            if self.loops_of(list(indices)) - set(self.unrolled):
                arrays.discard(self.home(buffer))
        for call in tvm_api.collect(body, Call):
            if called(call) in ("address_of", "tvm_access_ptr", "buffer_data"):
                arrays -= {self.home(buffer) for buffer in tvm_api.buffers_in(call)}
        return frozenset(arrays)


def _instructions(statement: Any) -> int:
    """Return the approximate number of instructions of a statement without loops.

    Indices count nothing, since they are constant in an unrolled loop.
    """
    loads = tvm_api.collect(statement, TensorLoad)
    stores = tvm_api.collect(statement, tirx.BufferStore)
    indices = [list(each.indices) for each in (*loads, *stores)]
    return len(loads) + len(stores) + _operations(statement) - sum(map(_operations, indices))


def _operations(node: Any) -> int:
    calls = [each for each in tvm_api.collect(node, Call) if "call" in called(each)]
    kinds = (tirx.Add, tirx.Sub, tirx.Mul)
    return CALL_SIZE * len(calls) + sum(len(tvm_api.collect(node, kind)) for kind in kinds)
