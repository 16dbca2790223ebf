# SPDX-License-Identifier: Apache-2.0
"""Assignment of tensors to memory pools: the first pool that all users can access and that has
room."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from umakit.errors import MemoryPlanError
from umakit.memory.planners import Offsets, Planner, arena_size
from umakit.memory.pools import MemoryPool
from umakit.program.live_sets import Lifetime, live_set_bound

NAMED_TENSORS = 4
"""Maximum number of tensors that the error for an overflowing pool lists."""

MOST_TRIALS = 2000
"""Maximum number of assignments that are tried; few networks of a hundred pieces need as many."""

Label = Callable[[str], str]
Choice = dict[str, int]
"""Index of each piece's pool among its candidates."""


@dataclass(frozen=True)
class Filled:
    """A pool with the offsets of its pieces."""

    pool: MemoryPool
    pieces: tuple[Lifetime, ...]
    offsets: Offsets
    size: int

    @property
    def excess(self) -> int:
        """The number of bytes by which the pool overflows."""
        return 0 if self.pool.size is None else max(0, self.size - self.pool.size)


def fill_pools(
    pieces: Sequence[Lifetime],
    candidates: Mapping[str, Sequence[MemoryPool]],
    pools: Sequence[MemoryPool],
    planner: Planner,
    label: Label,
) -> list[Filled]:
    """Assign a pool and an offset to every piece of memory.

    Args:
        pieces: the pieces with their lifetimes and sizes in bytes.
        candidates: pools by piece, in order of preference, at least one each.
        pools: all pools.
        planner: function that places the pieces of one pool.
        label: function that names a piece in errors.

    Raises:
        MemoryPlanError: a pool overflows and none of its pieces can move to another pool.
    """
    return _Assignment(pieces, candidates, pools, planner, label).run()


class _Assignment:
    """A search for an assignment without overflow.

    All pieces start in their first pool. While a pool overflows, a piece that is alive at its
    fullest step moves to its next pool; at the end, pieces move back where there is room.

    A set of pieces that is too much for a pool at one step loses one of them in every solution, so
    trying each of them in turn finds a solution if there is one; the largest that fits into its
    next pool is tried first, and the search is cut off after `MOST_TRIALS` assignments.
    """

    def __init__(
        self,
        pieces: Sequence[Lifetime],
        candidates: Mapping[str, Sequence[MemoryPool]],
        pools: Sequence[MemoryPool],
        planner: Planner,
        label: Label,
    ) -> None:
        self._pieces = pieces
        self._candidates = candidates
        self._pools = pools
        self._planner = planner
        self._label = label
        self._plans: dict[tuple[str, tuple[str, ...]], Filled] = {}
        self._tried: set[tuple[int, ...]] = set()
        self._failure: Filled | None = None

    def run(self) -> list[Filled]:
        choice = {piece.name: 0 for piece in self._pieces}
        solved = self._search(choice)
        if solved is None:
            assert self._failure is not None
            raise _overflow(self._failure, self._label)
        self._move_back(solved)
        return [self._planned(pool, solved) for pool in self._pools]

    def _search(self, choice: Choice) -> Choice | None:
        key = tuple(choice.values())
        if key in self._tried or len(self._tried) >= MOST_TRIALS:
            return None
        self._tried.add(key)
        full = self._first_overflow(choice)
        if full is None:
            return choice
        moves = [
            piece
            for piece in peak_live_set(full.pieces)
            if choice[piece.name] + 1 < len(self._candidates[piece.name])
        ]
        moves.sort(key=lambda p: (not self._fits_next(p, choice), -p.size, -p.first, p.name))
        for piece in moves:
            solved = self._search({**choice, piece.name: choice[piece.name] + 1})
            if solved is not None:
                return solved
        self._failure = self._failure or full
        return None

    def _fits_next(self, piece: Lifetime, choice: Choice) -> bool:
        """Whether a piece's next pool has room for it in addition to its present pieces."""
        pool = self._candidates[piece.name][choice[piece.name] + 1]
        moved = {**choice, piece.name: choice[piece.name] + 1}
        return pool.size is None or live_set_bound(self._inside(pool, moved)) <= pool.size

    def _move_back(self, choice: Choice) -> None:
        """Move pieces back to earlier pools where they fit, largest first."""
        for piece in sorted(self._pieces, key=lambda piece: (-piece.size, piece.name)):
            wanted = choice[piece.name]
            for earlier in range(wanted):
                choice[piece.name] = earlier
                if self._first_overflow(choice) is None:
                    break
                choice[piece.name] = wanted

    def _first_overflow(self, choice: Choice) -> Filled | None:
        for pool in self._pools:
            inside = self._inside(pool, choice)
            bound = live_set_bound(inside)
            # What is too much at one step needs no plan to be seen.
            too_much = pool.size is not None and bound > pool.size
            filled = Filled(pool, inside, {}, bound) if too_much else self._planned(pool, choice)
            if filled.excess:
                return filled
        return None

    def _inside(self, pool: MemoryPool, choice: Choice) -> tuple[Lifetime, ...]:
        return tuple(
            replace(piece, size=pool.rounded(piece.size))
            for piece in self._pieces
            if self._candidates[piece.name][choice[piece.name]] == pool
        )

    def _planned(self, pool: MemoryPool, choice: Choice) -> Filled:
        inside = self._inside(pool, choice)
        key = (pool.name, tuple(piece.name for piece in inside))
        if key not in self._plans:
            offsets = self._planner(inside)
            self._plans[key] = Filled(pool, inside, offsets, arena_size(inside, offsets))
        return self._plans[key]


def peak_live_set(pieces: Sequence[Lifetime]) -> list[Lifetime]:
    """Return the pieces that are alive at the step with the most live bytes, largest first."""
    best: list[Lifetime] = []
    for piece in pieces:
        alive = [other for other in pieces if other.first <= piece.first <= other.last]
        if sum(other.size for other in alive) > sum(other.size for other in best):
            best = alive
    return sorted(best, key=lambda piece: (-piece.size, piece.first, piece.name))


def _overflow(full: Filled, label: Label) -> MemoryPlanError:
    alive = peak_live_set(full.pieces)
    named = ", ".join(f"{label(item.name)} {item.size:,} B" for item in alive[:NAMED_TENSORS])
    more = f" and {len(alive) - NAMED_TENSORS} more" if len(alive) > NAMED_TENSORS else ""
    return MemoryPlanError(
        f"has {full.pool.size:,} B, the network needs {full.size:,} B of it: {full.excess:,} B too "
        f"much; alive together are {named}{more}",
        where=f"{full.pool.place}: memory pool {full.pool.name}".removeprefix(": "),
        fix="give it more room, or a second pool (--pool NAME=BYTES)",
    )
