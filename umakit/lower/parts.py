# SPDX-License-Identifier: Apache-2.0
"""Parts of a kernel that may run at the same time, and the choice of loops to cut."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.lower.index_ranges import Fact, Ranges
from umakit.lower.loop_values import MOST_TURNS, IndexSum, IndexSums, Views, has_hidden_accesses
from umakit.operators.kernels.loops import INDEPENDENT
from umakit.tvm_api import Buffer, Stmt, TensorLoad, Var

tirx = tvm_api.tirx

LEAST_WORK = 50_000
"""Minimum stores and function calls of a split kernel, an estimate of several times the cost to
wake and join a thread."""

MACS_OF_A_CALL = 16
"""Multiply-accumulates that take as long as a store, of kernels whose C functions hide them."""

LARGEST_SHARE = 0.75
"""Largest share of the work that the longest part may have: else parts gain too little."""

LINE = 64
"""Bytes of a line of caches: scratch of two parts lies in different ones."""


@dataclass(frozen=True)
class Parts:
    """Ranges of loops; a call of the kernel computes one range.

    Attributes:
        together: number of last turns that must belong to the last part.
        count: number of parts, at most `turns`.
    """

    variables: tuple[Var, ...]
    turns: int
    together: int
    count: int

    def is_cut(self, loop: Stmt) -> bool:
        """Whether parts compute ranges of a loop."""
        return any(loop.loop_var.same_as(each) for each in self.variables)

    def ranges(self) -> list[tuple[int, int]]:
        """Return the first turn of each part and the turn after its last."""
        units = self.turns - self.together + 1
        size, more = divmod(units, self.count)
        starts = [part * size + min(part, more) for part in range(self.count)]
        return list(zip(starts, [*starts[1:], self.turns], strict=True))


def scratch_step(elements: int, dtype: str) -> int:
    """Return the distance between scratch arrays of parts, in elements."""
    size = tvm_api.element_bytes(dtype)
    return -(-elements * size // LINE) * LINE // size


def choose_parts(body: Stmt, shared: Collection[Buffer], most: int, macs: int) -> Parts | None:
    """Return the parts of a kernel; None if the kernel cannot be cut, or if it is not worth it.

    Of the possible loops, the loops with the least work in the longest part are chosen.

    Args:
        body: the kernel's body, with allocations of working memory in place.
        macs: multiply-accumulates of the kernel; 0 if unknown.
    """
    whole = work_of(body)
    if max(whole, macs // MACS_OF_A_CALL) < LEAST_WORK:
        return None
    best, least = None, LARGEST_SHARE * whole
    for loops in LoopProofs(body, shared).find():
        longest = _longest(body, loops, most)
        if longest < least or (best is None and longest <= least):
            best, least = loops, longest
    if best is None:
        return None
    variables = tuple(loop.loop_var for loop in best.loops)
    return Parts(variables, best.turns, best.together, min(most, best.units))


def _longest(body: Stmt, loops: IndependentLoops, most: int) -> float:
    """Return the work of the longest part."""
    parts = Parts((), loops.turns, loops.together, min(most, loops.units))
    turns = max(end - first for first, end in parts.ranges())
    return work_of(body, loops.loops, turns)


def work_of(statement: Stmt, cut: Sequence[Stmt] = (), turns: int = 0) -> float:
    """Return the number of stores and calls that a statement executes.

    Args:
        statement: TIR. Loops with a computed number of turns count as loops of 4 turns.
        cut: loops of which only some turns are executed.
        turns: number of turns of the cut loops.
    """
    if isinstance(statement, tirx.SeqStmt):
        return sum(work_of(child, cut, turns) for child in statement.seq)
    if isinstance(statement, tirx.For):
        extent = tvm_api.integer_value(statement.extent)
        count = 4 if extent is None else extent
        if any(statement.same_as(each) for each in cut):
            count = turns
        return count * work_of(statement.body, cut, turns)
    if isinstance(statement, tirx.AttrStmt | tirx.While):
        return work_of(statement.body, cut, turns)
    if isinstance(statement, tirx.IfThenElse):
        cases = [statement.then_case, statement.else_case]
        return max(work_of(each, cut, turns) for each in cases if each is not None)
    return 1.0 if isinstance(statement, tirx.BufferStore | tirx.Evaluate) else 0.0


# Loops of a kernel that may run in ranges at the same time, with the same results.
#
# A turn of such a loop writes elements of the outputs that no other turn reads or writes. What the
# kernel does besides these loops is done once for each range, so it must not touch the outputs.
# Working memory is not shared between ranges, but turns of one range follow each other in it: it is
# allocated in the loop, or not written there, or each turn has elements of its own. All this is
# proven by intervals, or declared by the kernel's author with `umakit.operators.kernels.loops`.

Access = tuple[Any, list[Any], list[Fact]]
"""A buffer, the indices of an element, and the facts that conditions around the access imply."""


@dataclass(frozen=True)
class IndependentLoops:
    """Consecutive loops of a kernel whose turns may run at the same time.

    Attributes:
        together: number of last turns that must belong to one range, because they write the same
            elements; at least 1.
    """

    loops: tuple[Stmt, ...]
    turns: int
    together: int = 1

    @property
    def units(self) -> int:
        """The number of units that ranges consist of; the last turns together are one unit."""
        return self.turns - self.together + 1


class LoopProofs:
    """Finds loops of one kernel that may be cut into ranges.

    Args:
        body: the kernel's body, with allocations of working memory in place.
        shared: buffers that ranges share and the kernel writes: outputs, and inputs whose memory an
            output may take.
    """

    def __init__(self, body: Stmt, shared: Collection[Buffer]) -> None:
        self._body = body
        self._shared = list(shared)
        self._root = Views(body).root
        self._ranges = Ranges({})
        self._loops = tvm_api.collect(body, tirx.For)
        self._names_repeat = False
        self._note_variables()

    def _note_variables(self) -> None:
        """Record the values of variables; unrolling may have repeated a variable."""
        extents: dict[Any, Any] = {}
        for loop in self._loops:
            self._ranges.add_loop(loop)
            first = extents.setdefault(loop.loop_var, [loop.min, loop.extent])
            self._names_repeat |= not _are_equal(first, [loop.min, loop.extent])
        bound: dict[Any, Any] = {}
        for binding in tvm_api.collect(self._body, tirx.Bind):
            self._ranges.bind(binding.var, binding.value)
            first = bound.setdefault(binding.var, binding.value)
            self._names_repeat |= not _are_equal(first, binding.value)

    def find(self) -> list[IndependentLoops]:
        """Return the loops that may be cut, outer loops first."""
        found = []
        level = tvm_api.flatten_statements(self._body)
        while True:
            touching = [each for each in level if self._touches_shared(each)]
            loops = self._independent(touching)
            if loops is not None:
                found.append(loops)
            if len(touching) != 1 or not isinstance(touching[0], tirx.For | tirx.AttrStmt):
                return found
            level = tvm_api.flatten_statements(touching[0].body)

    def _touches_shared(self, statement: Stmt) -> bool:
        if isinstance(statement, tirx.DeclBuffer):
            return False
        used = [self._root(buffer) for buffer in tvm_api.buffers_in(statement)]
        return any(buffer.same_as(shared) for buffer in used for shared in self._shared)

    def _independent(self, loops: Sequence[Stmt]) -> IndependentLoops | None:
        """Return loops with all accesses of shared buffers and independent turns; else None."""
        if not loops or not all(isinstance(each, tirx.For) for each in loops):
            return None
        if any(self._is_repeated(loop) for loop in loops):
            return None
        counts = {_turns(loop) for loop in loops}
        turns = counts.pop()
        if counts or turns is None or turns > MOST_TURNS:
            return None
        declared = [_declared(loop) for loop in loops]
        if len(loops) == 1 and declared[0] is not None:
            return IndependentLoops(tuple(loops), turns, declared[0])
        if (
            self._names_repeat
            or any(map(has_hidden_accesses, loops))
            or self._other_memory_is_shared(loops, turns)
        ):
            return None
        for buffer in self._shared:
            if not self._apart(buffer, loops, turns):
                return None
        return IndependentLoops(tuple(loops), turns)

    def _is_repeated(self, loop: Stmt) -> bool:
        """Whether another loop has the same variable."""
        return sum(each.loop_var.same_as(loop.loop_var) for each in self._loops) > 1

    def _other_memory_is_shared(self, loops: Sequence[Stmt], turns: int) -> bool:
        """Whether a turn may see values of another turn in working memory."""
        inside = [s.buffer for each in loops for s in tvm_api.collect(each, tirx.AllocBuffer)]
        written = {
            self._root(store.buffer)
            for each in loops
            for store in tvm_api.collect(each, tirx.BufferStore)
        }
        outer = [
            buffer
            for buffer in written
            if not any(buffer.same_as(each) for each in (*inside, *self._shared))
        ]
        return not all(
            self._is_of_loops(buffer, loops) and self._apart(buffer, loops, turns)
            for buffer in outer
        )

    def _is_of_loops(self, buffer: Buffer, loops: Sequence[Stmt]) -> bool:
        everywhere = self._accesses(buffer, [self._body])
        return len(everywhere) == len(self._accesses(buffer, loops))

    def _accesses(self, buffer: Buffer, statements: Sequence[Stmt]) -> list[Access]:
        found: list[Access] = []
        for statement in statements:
            self._collect(statement, [], found)
        return [access for access in found if self._root(access[0]).same_as(buffer)]

    def _collect(self, statement: Stmt, facts: list[Fact], found: list[Access]) -> None:
        if isinstance(statement, tirx.SeqStmt):
            for child in statement.seq:
                self._collect(child, facts, found)
            return
        read: list[Any] = [statement]
        if isinstance(statement, tirx.For):
            read = [statement.min, statement.extent]
            self._collect(statement.body, facts, found)
        elif isinstance(statement, tirx.AttrStmt):
            read = [statement.value]
            self._collect(statement.body, facts, found)
        elif isinstance(statement, tirx.IfThenElse):
            read = [statement.condition]
            for case, holds in ((statement.then_case, True), (statement.else_case, False)):
                if case is not None:
                    implied = self._ranges.facts_of(statement.condition, holds)
                    self._collect(case, [*facts, *implied], found)
        elif isinstance(statement, tirx.BufferStore):
            found.append((statement.buffer, list(statement.indices), facts))
        for load in tvm_api.collect(read, TensorLoad):
            found.append((load.source, list(load.indices), facts))

    def _apart(self, buffer: Buffer, loops: Sequence[Stmt], turns: int) -> bool:
        """Whether each element of a buffer is accessed in only one turn."""
        sums: list[IndexSum] = []
        for loop in loops:
            taken = IndexSums(loop.loop_var, turns, self._ranges)
            for place, indices, facts in self._accesses(buffer, [loop]):
                same = tvm_api.buffer_dtype(place) == tvm_api.buffer_dtype(buffer)
                found = taken.of(indices[0], facts) if len(indices) == 1 and same else None
                if found is None:
                    return False
                sums.append(found)
        return turns == 1 or are_apart(sums)


def _are_equal(one: object, other: object) -> bool:
    return bool(tvm_api.tvm_ffi.structural_equal(one, other))


def are_apart(sums: Sequence[IndexSum]) -> bool:
    """Whether an index of a buffer determines the turn of the loop that accesses it.

    Terms with a coefficient above the whole contribution of the loop variable vanish modulo the
    greatest common divisor of these coefficients. The remaining terms lie in an interval for each
    turn, and these intervals must not meet.
    """
    if not sums:
        return True
    values = np.sort(sums[0].of_loop)
    if any(not np.array_equal(sums[0].of_loop, each.of_loop) for each in sums):
        return False
    span = int(values[-1] - values[0])
    terms = [term for each in sums for term in each.others]
    large = [abs(term.factor) for term in terms if abs(term.factor) > span]
    modulus = math.gcd(*large) if large else 0
    low, high = _rest(sums[0], span)
    for each in sums[1:]:
        least, most = _rest(each, span)
        shift = (least - low) // modulus * modulus if modulus else 0
        low, high = min(low, least - shift), max(high, most - shift)
    return bool(np.diff(values).min() > high - low) and (not modulus or modulus > span + high - low)


def _rest(index: IndexSum, span: int) -> tuple[int, int]:
    """Return the range of the small terms of an index."""
    low = high = index.constant
    for term in index.others:
        if abs(term.factor) <= span:
            low += term.limits[0]
            high += term.limits[1]
    return low, high


def _turns(loop: Stmt) -> int | None:
    """Return the number of turns of a plain loop from 0 in int32; None for other loops."""
    plain = loop.step is None or tvm_api.integer_value(loop.step) == 1
    first, dtype = tvm_api.integer_value(loop.min), str(loop.loop_var.ty.dtype)
    is_plain = plain and first == 0 and dtype == "int32" and loop.thread_binding is None
    return tvm_api.integer_value(loop.extent) if is_plain else None


def _declared(loop: Stmt) -> int | None:
    """Return the last turns that a loop declared independent keeps together; else None."""
    value = loop.annotations.get(INDEPENDENT)
    return None if value is None else tvm_api.integer_value(value)
