# SPDX-License-Identifier: Apache-2.0
"""Planners that compute offsets from lifetimes, named as in TVM's USMP.

Most planners place one piece of memory after the other at its lowest free offset and differ in the
order (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020, for the
greedy orders). `optimal` searches all orders that can matter.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from umakit.errors import MemoryPlanError
from umakit.program.live_sets import Lifetime, live_set_bound

DEFAULT_SCRATCH_LIMIT = 25
"""Percent above the live-set bound."""

LARGEST_SCRATCH_LIMIT = 1000

SMALL_SCRATCH = 2048
"""Bytes above the bound that any limit but 0 allows: without them, networks whose tensors are of a
few hundred bytes could not have one row of sums."""


def check_scratch_limit(percent: int) -> None:
    """Refuse a scratch limit out of range."""
    if not 0 <= percent <= LARGEST_SCRATCH_LIMIT:
        raise MemoryPlanError(
            f"a scratch limit of {percent} % is out of range",
            fix=f"choose 0 to {LARGEST_SCRATCH_LIMIT}",
        )


Offsets = dict[str, int]
Planner = Callable[[Sequence[Lifetime]], Offsets]

DEFAULT_PLANNER = "optimal"

HILL_CLIMB_ROUNDS = 500
SEARCH_NODES = 5000
"""Maximum number of nodes of the exact search: about a second for a network of 100 pieces."""

SEARCH_PIECES = 200
"""Maximum number of pieces for the exact search; with more it would end without a result."""


def place(order: Sequence[Lifetime]) -> Offsets:
    """Place each piece in turn at its lowest free offset."""
    offsets: Offsets = {}
    placed: list[tuple[int, int, int, int]] = []
    for item in order:
        # Hot loop: runs for each pair of pieces in each order.
        begin, finish = item.first, item.last
        taken = sorted(
            (start, end) for first, last, start, end in placed if first <= finish and begin <= last
        )
        offset = 0
        for start, end in taken:
            if offset + item.size <= start:
                break
            offset = max(offset, end)
        offsets[item.name] = offset
        placed.append((begin, finish, offset, offset + item.size))
    return offsets


def arena_size(lifetimes: Sequence[Lifetime], offsets: Offsets) -> int:
    """Return the number of bytes from offset 0 to the end of the last piece."""
    return max((offsets[item.name] + item.size for item in lifetimes), default=0)


def _by_size(lifetimes: Sequence[Lifetime]) -> list[Lifetime]:
    return sorted(lifetimes, key=lambda item: (-item.size, item.first, item.name))


def _by_time(lifetimes: Sequence[Lifetime]) -> list[Lifetime]:
    return sorted(lifetimes, key=lambda item: (item.first, -item.size, item.name))


def greedy_by_size(lifetimes: Sequence[Lifetime]) -> Offsets:
    return place(_by_size(lifetimes))


def greedy_by_conflicts(lifetimes: Sequence[Lifetime]) -> Offsets:
    """Place pieces in order of decreasing number of pieces that are alive at the same time."""
    starts, ends = (sorted(getattr(i, at) for i in lifetimes) for at in ("first", "last"))
    conflicts = {
        item.name: bisect_right(starts, item.last) - bisect_left(ends, item.first)
        for item in lifetimes
    }
    order = sorted(lifetimes, key=lambda item: (-conflicts[item.name], -item.size, item.name))
    return place(order)


def hill_climb(lifetimes: Sequence[Lifetime]) -> Offsets:
    """Improve the order by random swaps that do not enlarge the arena. The result is
    deterministic."""
    generator = random.Random(0)
    order = _by_size(lifetimes)
    best = place(order)
    best_size, bound = arena_size(order, best), live_set_bound(lifetimes)
    for _ in range(HILL_CLIMB_ROUNDS):
        if best_size <= bound or len(order) < 2:
            break
        one, other = generator.sample(range(len(order)), 2)
        order[one], order[other] = order[other], order[one]
        offsets = place(order)
        size = arena_size(order, offsets)
        if size <= best_size:
            best, best_size = offsets, size
        else:
            order[one], order[other] = order[other], order[one]
    return best


def from_both_ends(lifetimes: Sequence[Lifetime]) -> Offsets:
    """Place pieces in order of time, alternating between the bottom and the top of the arena.

    The arena has the size of the lower bound. A chain of layers then needs no more memory than its
    two largest neighbouring tensors. If neither end is free, a piece gets the lowest free offset.
    """
    capacity = live_set_bound(lifetimes)
    order = _by_time(lifetimes)
    offsets: Offsets = {}
    alive: list[Lifetime] = []
    for item in order:
        alive = [other for other in alive if other.last >= item.first]
        taken = [(offsets[other.name], offsets[other.name] + other.size) for other in alive]
        for offset in (0, capacity - item.size, *sorted(end for _, end in taken)):
            if all(offset + item.size <= start or end <= offset for start, end in taken):
                offsets[item.name] = offset
                break
        alive.append(item)
    return offsets


def optimal(lifetimes: Sequence[Lifetime]) -> Offsets:
    """Find the smallest arena by branch and bound, within a limit on the nodes of the search.

    The search stops when a plan meets the lower bound, which heuristics achieve for most networks.
    A limit on nodes instead of time makes the plan of a network reproducible.
    """
    candidates = [
        greedy_by_size(lifetimes),
        greedy_by_conflicts(lifetimes),
        place(_by_time(lifetimes)),
        from_both_ends(lifetimes),
    ]
    bound = live_set_bound(lifetimes)
    best = min(candidates, key=lambda offsets: arena_size(lifetimes, offsets))
    if arena_size(lifetimes, best) > bound:
        best = min(
            [best, hill_climb(lifetimes)], key=lambda offsets: arena_size(lifetimes, offsets)
        )
    return _Search(lifetimes, best).run()


class _Search:
    """Branch and bound over plans that place pieces in order of their offsets.

    Any plan can be compacted, without growing, until each piece lies at 0 or directly above a piece
    with an overlapping lifetime. So the search only needs to place pieces in order of their
    offsets, each directly above the pieces with overlapping lifetimes.
    """

    def __init__(self, lifetimes: Sequence[Lifetime], best: Offsets) -> None:
        self._pieces = _by_size(lifetimes)
        self._best = best
        self._best_size = arena_size(lifetimes, best)
        self._bound = live_set_bound(lifetimes)
        self._nodes_left = SEARCH_NODES if len(lifetimes) <= SEARCH_PIECES else 0
        self._steps = sorted({item.first for item in lifetimes})

    def run(self) -> Offsets:
        if self._best_size > self._bound:
            self._extend({}, 0, dict.fromkeys(self._steps, 0))
        return self._best

    def _extend(self, offsets: Offsets, lowest: int, heights: dict[int, int]) -> None:
        if self._best_size <= self._bound or self._nodes_left == 0:
            return
        self._nodes_left -= 1
        left = [item for item in self._pieces if item.name not in offsets]
        if not left:
            self._best = dict(offsets)
            self._best_size = max(heights.values(), default=0)
            return
        if self._hopeless(left, lowest, heights):
            return
        tried: set[tuple[int, int, int]] = set()
        for item in left:
            shape = (item.size, item.first, item.last)
            if shape in tried:  # equal pieces lead to equal plans
                continue
            tried.add(shape)
            alive = [step for step in self._steps if item.first <= step <= item.last]
            offset = max(lowest, *(heights[step] for step in alive))
            on_top = offset == max(heights[step] for step in alive)
            if not on_top or offset + item.size >= self._best_size:
                continue
            higher = {**heights, **dict.fromkeys(alive, offset + item.size)}
            self._extend({**offsets, item.name: offset}, offset, higher)

    def _hopeless(self, left: list[Lifetime], lowest: int, heights: dict[int, int]) -> bool:
        """Return whether some step prevents the remaining pieces from improving on the best
        plan."""
        return any(
            max(heights[step], lowest if waiting else 0) + waiting >= self._best_size
            for step in self._steps
            for waiting in [sum(i.size for i in left if i.first <= step <= i.last)]
            if waiting
        )


PLANNERS: dict[str, Planner] = {
    "optimal": optimal,
    "greedy_by_size": greedy_by_size,
    "greedy_by_conflicts": greedy_by_conflicts,
    "hill_climb": hill_climb,
}
