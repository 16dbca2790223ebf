# SPDX-License-Identifier: Apache-2.0
"""Parts of a kernel that may run at the same time, and which loops are worth it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from umakit import tvm_api
from umakit.lower.independent_loops import IndependentLoops, LoopProofs

tirx = tvm_api.tirx

LEAST_WORK = 50_000
"""Fewest stores and calls of functions of a kernel that is cut: an estimate of what takes some
times as long as to wake a thread and to wait for it."""

MACS_OF_A_CALL = 16
"""Multiply-accumulates that take as long as a store, of kernels whose C functions hide them."""

LARGEST_SHARE = 0.75
"""Largest share of the work that the longest part may have: else parts gain too little."""

LINE = 64
"""Bytes of a line of caches: scratch of two parts lies in different ones."""


@dataclass(frozen=True)
class Parts:
    """The ranges of loops that a kernel computes one of in a call.

    Attributes:
        variables: the variables of the loops.
        turns: the number of turns of each of them.
        together: the last turns, which belong to the last part.
        count: the number of parts, at most that of turns.
    """

    variables: tuple[tvm_api.Var, ...]
    turns: int
    together: int
    count: int

    def is_cut(self, loop: tvm_api.Stmt) -> bool:
        """Whether parts compute ranges of a loop."""
        return any(loop.loop_var.same_as(each) for each in self.variables)

    def ranges(self) -> list[tuple[int, int]]:
        """Return first turn and the one behind the last one of each part."""
        units = self.turns - self.together + 1
        size, more = divmod(units, self.count)
        starts = [part * size + min(part, more) for part in range(self.count)]
        return list(zip(starts, [*starts[1:], self.turns], strict=True))


def scratch_step(elements: int, dtype: str) -> int:
    """Return the distance between scratch arrays of parts, in elements.

    Args:
        elements: of one array.
        dtype: dtype of the elements.
    """
    size = tvm_api.element_bytes(dtype)
    return -(-elements * size // LINE) * LINE // size


def choose_parts(
    body: tvm_api.Stmt, shared: Collection[tvm_api.Buffer], most: int, macs: int
) -> Parts | None:
    """Return how a kernel is cut into parts; None if it is not, or if that is not worth it.

    Of the loops that may be cut, those are chosen with which the longest part has the least work.

    Args:
        body: the kernel's body, with allocations of working memory where they are needed.
        shared: buffers that parts share and that the kernel writes.
        most: the maximum number of parts.
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


def _longest(body: tvm_api.Stmt, loops: IndependentLoops, most: int) -> float:
    """Return the work of the longest part."""
    parts = Parts((), loops.turns, loops.together, min(most, loops.units))
    turns = max(end - first for first, end in parts.ranges())
    return work_of(body, loops.loops, turns)


def work_of(statement: tvm_api.Stmt, cut: Sequence[tvm_api.Stmt] = (), turns: int = 0) -> float:
    """Return how many stores and calls a statement executes.

    Args:
        statement: TIR. Loops of a number of turns that is computed count as one of 4 turns.
        cut: loops of which only some turns are executed.
        turns: so many.
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
