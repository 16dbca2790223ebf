# SPDX-License-Identifier: Apache-2.0
"""Which memory pool each tensor goes to: the first that all its users reach and that has room."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from umakit.errors import MemoryPlanError
from umakit.memory.lifetimes import Lifetime
from umakit.memory.planners import Offsets, Planner, arena_size
from umakit.memory.pools import MemoryPool

NAMED_TENSORS = 4
"""How many of the tensors that overflow a pool an error lists."""

Label = Callable[[str], str]


@dataclass(frozen=True)
class Filled:
    """A pool with the offsets of what lies in it."""

    pool: MemoryPool
    pieces: tuple[Lifetime, ...]
    offsets: Offsets
    size: int

    @property
    def excess(self) -> int:
        """Bytes by which it overflows."""
        return 0 if self.pool.size is None else max(0, self.size - self.pool.size)


def fill_pools(
    pieces: Sequence[Lifetime],
    candidates: Mapping[str, Sequence[MemoryPool]],
    pools: Sequence[MemoryPool],
    planner: Planner,
    label: Label,
) -> list[Filled]:
    """Give every piece of memory a pool and an offset.

    All start in their first pool. While one overflows, the largest piece that is alive at its
    fullest step moves on to its next pool; at the end, pieces move back where there is room after
    all.

    Args:
        pieces: what is to be placed, sizes in bytes.
        candidates: pools by piece, in order of preference, at least one each.
        pools: all pools.
        planner: places the pieces of one pool.
        label: how an error calls a piece.

    Raises:
        MemoryPlanError: a pool overflows and nothing in it can go elsewhere.
    """
    choice = {piece.name: 0 for piece in pieces}

    def fill(pool: MemoryPool) -> Filled:
        inside = [
            replace(piece, size=pool.rounded(piece.size))
            for piece in pieces
            if candidates[piece.name][choice[piece.name]] == pool
        ]
        offsets = planner(inside)
        return Filled(pool, tuple(inside), offsets, arena_size(inside, offsets))

    filled = [fill(pool) for pool in pools]
    while full := next((item for item in filled if item.excess), None):
        movable = [
            piece
            for piece in fullest_set(full.pieces)
            if choice[piece.name] + 1 < len(candidates[piece.name])
        ]
        if not movable:
            raise _overflow(full, label)
        moved = max(movable, key=lambda piece: (piece.size, piece.name))
        choice[moved.name] += 1
        filled = [fill(pool) for pool in pools]
    return _move_back(pieces, choice, filled, pools, fill)


def _move_back(
    pieces: Sequence[Lifetime],
    choice: dict[str, int],
    filled: list[Filled],
    pools: Sequence[MemoryPool],
    fill: Callable[[MemoryPool], Filled],
) -> list[Filled]:
    """Return pieces to earlier pools, largest first, where they fit now."""
    for piece in sorted(pieces, key=lambda piece: (-piece.size, piece.name)):
        for earlier in range(choice[piece.name]):
            wanted, choice[piece.name] = choice[piece.name], earlier
            tried = [fill(pool) for pool in pools]
            if not any(item.excess for item in tried):
                filled = tried
                break
            choice[piece.name] = wanted
    return filled


def fullest_set(pieces: Sequence[Lifetime]) -> list[Lifetime]:
    """The pieces that are alive at the step at which most bytes are, largest first."""
    best: list[Lifetime] = []
    for piece in pieces:
        alive = [other for other in pieces if other.first <= piece.first <= other.last]
        if sum(other.size for other in alive) > sum(other.size for other in best):
            best = alive
    return sorted(best, key=lambda piece: (-piece.size, piece.first, piece.name))


def _overflow(full: Filled, label: Label) -> MemoryPlanError:
    alive = fullest_set(full.pieces)
    named = ", ".join(f"{label(item.name)} {item.size:,} B" for item in alive[:NAMED_TENSORS])
    more = f" and {len(alive) - NAMED_TENSORS} more" if len(alive) > NAMED_TENSORS else ""
    return MemoryPlanError(
        f"{full.pool.size:,} B, and the network needs {full.size:,} B of it, {full.excess:,} B too "
        f"much; alive together are {named}{more}",
        where=f"memory pool {full.pool.name}",
        fix="give it more room, or a second pool (--pool NAME=BYTES)",
    )
