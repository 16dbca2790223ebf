# SPDX-License-Identifier: Apache-2.0
"""Placement of the arena's tensors: a pool and an offset for each tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from umakit.errors import MemoryPlanError
from umakit.frontend.checks import LARGEST_OBJECT
from umakit.memory.plan import MemoryPlan, PoolPlan
from umakit.memory.planners import DEFAULT_PLANNER, PLANNERS, Offsets, Planner, arena_size
from umakit.memory.pools import MemoryPool, memory_pools
from umakit.program.live_sets import Lifetime, live_set_bound
from umakit.program.program import (
    KernelCall,
    Program,
    Tensor,
    running_tensors,
    tensor_lifetimes,
    tensor_users,
)


def plan_memory(
    program: Program, pools: Sequence[MemoryPool] = (), planner: str = DEFAULT_PLANNER
) -> MemoryPlan:
    """Place the tensors of a program; the default is one pool of unlimited size for all targets."""
    check_planner(planner)
    pools = tuple(pools) or memory_pools([])
    lifetimes = tensor_lifetimes(program)

    def serving(targets: frozenset[str]) -> list[MemoryPool]:
        return [pool for pool in pools if pool.serves(targets) and not pool.by_offset]

    shared = shared_memory(program, lifetimes, lambda targets: bool(serving(targets)))
    pieces = merge_shared(lifetimes, shared)
    users: dict[str, frozenset[str]] = {}
    for name, targets in tensor_users(program).items():
        owner = memory_owner(name, shared)
        users[owner] = users.get(owner, frozenset()) | targets
    candidates = {}
    for piece in pieces:
        tensor, targets = program.tensors[piece.name], users[piece.name]
        candidates[piece.name] = _scratchpad(tensor, pools) or serving(targets)
        if not candidates[piece.name]:
            raise MemoryPlanError(
                f"no memory pool is within reach of {' and '.join(sorted(targets))}, which share "
                "it",
                where=f"tensor {tensor.label}",
                fix='declare one in accel.toml, with reachable_by = ["cpu", "accelerator"]',
            )
    labels = {name: tensor.label for name, tensor in program.tensors.items()}
    filled = _Assignment(pieces, candidates, pools, PLANNERS[planner], labels).run()
    plans = [_pool_plan(item, lifetimes, shared) for item in filled]
    for plan in plans:
        if plan.size > LARGEST_OBJECT:
            raise MemoryPlanError(
                f"the network needs {plan.size:,} B of it, more than a C object can have",
                where=f"memory pool {plan.pool.name}",
                fix="choose smaller dimensions",
            )
    bound = live_set_bound([item for item in lifetimes if not program.tensors[item.name].pool])
    return MemoryPlan(_wanted(plans), bound, shared, planner)


def check_planner(planner: str) -> None:
    if planner not in PLANNERS:
        raise MemoryPlanError(
            f"there is no memory planner {planner!r}", fix=f"choose from {', '.join(PLANNERS)}"
        )


def _scratchpad(tensor: Tensor, pools: Sequence[MemoryPool]) -> list[MemoryPool]:
    """Return the scratchpad that a tensor is assigned to; empty if the planner may choose."""
    if not tensor.pool:
        return []
    found = [pool for pool in pools if pool.name == tensor.pool and pool.by_offset]
    if not found:
        raise MemoryPlanError(
            f"wants to lie in scratchpad {tensor.pool!r}, which no backend declares",
            where=f"tensor {tensor.label}",
            fix='declare it in accel.toml as a [[memory]] with address = "offset"',
        )
    return found


def _pool_plan(filled: Filled, lifetimes: list[Lifetime], shared: dict[str, str]) -> PoolPlan:
    offsets = {
        item.name: filled.offsets[memory_owner(item.name, shared)]
        for item in lifetimes
        if memory_owner(item.name, shared) in filled.offsets
    }
    return PoolPlan(filled.pool, offsets, filled.size)


def _wanted(plans: list[PoolPlan]) -> tuple[PoolPlan, ...]:
    """Return the non-empty pools, and at least one pool for the library's interface."""
    supplied = [plan for plan in plans if not plan.pool.by_offset]
    last = None if any(plan.size for plan in supplied) else supplied[-1]
    return tuple(plan for plan in plans if plan.size or plan is last)


# Assignment of tensors to memory pools: the first pool that all users can access and that has
# room.

NAMED_TENSORS = 4
"""Maximum number of tensors that the error for an overflowing pool lists."""

MOST_TRIALS = 2000
"""Maximum number of assignments that are tried; few networks of a hundred pieces need as many."""

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
        return 0 if self.pool.size is None else max(0, self.size - self.pool.size)


@dataclass
class _Assignment:
    """Search for an assignment without overflow.

    All pieces start in their first pool. While a pool overflows, a piece that is alive at the
    fullest step moves to its next pool. At the end, pieces move back to pools with enough room.

    If the pieces alive at one step overflow a pool, every solution moves one of these pieces. So
    trying each piece in turn finds a solution if one exists. The search starts with the largest
    piece that fits into its next pool, and stops after `MOST_TRIALS` assignments.
    """

    pieces: Sequence[Lifetime]
    candidates: Mapping[str, Sequence[MemoryPool]]
    pools: Sequence[MemoryPool]
    planner: Planner
    labels: Mapping[str, str]
    _plans: dict[tuple[str, tuple[str, ...]], Filled] = field(default_factory=dict)
    _tried: set[tuple[int, ...]] = field(default_factory=set)
    _failure: Filled | None = None

    def run(self) -> list[Filled]:
        choice = {piece.name: 0 for piece in self.pieces}
        solved = self._search(choice)
        if solved is None:
            assert self._failure is not None
            raise _overflow(self._failure, self.labels)
        self._move_back(solved)
        return [self._planned(pool, solved) for pool in self.pools]

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
            if choice[piece.name] + 1 < len(self.candidates[piece.name])
        ]
        moves.sort(key=lambda p: (not self._fits_next(p, choice), -p.size, -p.first, p.name))
        for piece in moves:
            solved = self._search({**choice, piece.name: choice[piece.name] + 1})
            if solved is not None:
                return solved
        self._failure = self._failure or full
        return None

    def _fits_next(self, piece: Lifetime, choice: Choice) -> bool:
        """Return whether a piece's next pool has room for the piece."""
        pool = self.candidates[piece.name][choice[piece.name] + 1]
        moved = {**choice, piece.name: choice[piece.name] + 1}
        return pool.size is None or live_set_bound(self._inside(pool, moved)) <= pool.size

    def _move_back(self, choice: Choice) -> None:
        """Move pieces back to earlier pools with enough room, largest first."""
        for piece in sorted(self.pieces, key=lambda piece: (-piece.size, piece.name)):
            wanted = choice[piece.name]
            for earlier in range(wanted):
                choice[piece.name] = earlier
                if self._first_overflow(choice) is None:
                    break
                choice[piece.name] = wanted

    def _first_overflow(self, choice: Choice) -> Filled | None:
        for pool in self.pools:
            inside = self._inside(pool, choice)
            bound = live_set_bound(inside)
            # An overflow at one step is detected without a plan.
            too_much = pool.size is not None and bound > pool.size
            filled = Filled(pool, inside, {}, bound) if too_much else self._planned(pool, choice)
            if filled.excess:
                return filled
        return None

    def _inside(self, pool: MemoryPool, choice: Choice) -> tuple[Lifetime, ...]:
        return tuple(
            replace(piece, size=pool.rounded(piece.size))
            for piece in self.pieces
            if self.candidates[piece.name][choice[piece.name]] == pool
        )

    def _planned(self, pool: MemoryPool, choice: Choice) -> Filled:
        inside = self._inside(pool, choice)
        key = (pool.name, tuple(piece.name for piece in inside))
        if key not in self._plans:
            offsets = self.planner(inside)
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


def _overflow(full: Filled, labels: Mapping[str, str]) -> MemoryPlanError:
    alive = peak_live_set(full.pieces)
    named = ", ".join(f"{labels[item.name]} {item.size:,} B" for item in alive[:NAMED_TENSORS])
    more = f" and {len(alive) - NAMED_TENSORS} more" if len(alive) > NAMED_TENSORS else ""
    return MemoryPlanError(
        f"has {full.pool.size:,} B, the network needs {full.size:,} B of it: {full.excess:,} B too "
        f"much; alive together are {named}{more}",
        where=f"{full.pool.place}: memory pool {full.pool.name}".removeprefix(": "),
        fix="give it more room, or a second pool (--pool NAME=BYTES)",
    )


def in_own_scratchpads(program: Program, names: Mapping[tuple[str, str], str]) -> Program:
    """Rename scratchpads of tensors to their names in the build, by target and backend's name."""
    tensors = dict(program.tensors)
    for call in program.calls if names else ():
        for name in call.scratch:
            pool = names.get((call.target, tensors[name].pool))
            if pool is not None:
                tensors[name] = replace(tensors[name], pool=pool)
    return replace(program, tensors=tensors)


def scratchpads_hold(program: Program, pools: Sequence[MemoryPool], planner: str) -> bool:
    """Return whether a planner finds offsets for all scratchpad tensors."""
    lifetimes = tensor_lifetimes(program)
    for pool in pools:
        inside = [
            replace(item, size=pool.rounded(item.size))
            for item in lifetimes
            if program.tensors[item.name].pool == pool.name
        ]
        if pool.size is None or not pool.by_offset:
            continue
        if live_set_bound(inside) > pool.size:
            return False
        if arena_size(inside, PLANNERS[planner](inside)) > pool.size:
            return False
    return True


def shared_memory(
    program: Program, lifetimes: list[Lifetime], reachable: Callable[[frozenset[str]], bool]
) -> dict[str, str]:
    """Return the input whose memory an in-place output reuses, by output."""
    by_name = {item.name: item for item in lifetimes}
    users = tensor_users(program)
    shared: dict[str, str] = {}
    for step, call in enumerate(program.calls):
        kernel = program.kernels.get(call.kernel)
        if kernel is None or len(call.outputs) != 1 or call.outputs[0] not in by_name:
            continue
        output = by_name[call.outputs[0]]
        for position in kernel.in_place:
            source = by_name.get(call.inputs[position])
            if (
                source is None
                or source.last != step
                or source.name in running_tensors(program, step)
                or source.size != output.size
                or call.inputs.count(source.name) != 1
            ):
                continue
            owner = memory_owner(source.name, shared)
            together = users[owner] | users[output.name]
            if reachable(together):
                shared[output.name] = source.name
                users[owner] = together
                break
    return shared


def merge_shared(lifetimes: list[Lifetime], shared: dict[str, str]) -> list[Lifetime]:
    """Merge the lifetimes of tensors that share memory, under the name of the first tensor."""
    merged: dict[str, Lifetime] = {}
    for item in lifetimes:
        owner = memory_owner(item.name, shared)
        earlier = merged.get(owner, item)
        first, last = min(earlier.first, item.first), max(earlier.last, item.last)
        merged[owner] = Lifetime(owner, item.size, first, last)
    return list(merged.values())


def memory_owner(name: str, shared: dict[str, str]) -> str:
    """Return the tensor that a tensor shares memory with, directly or indirectly."""
    while name in shared:
        name = shared[name]
    return name


def taken_over(call: KernelCall, shared: dict[str, str]) -> int | None:
    """Return the index of the input that the call's output overwrites; None without such an
    input."""
    source = shared.get(call.outputs[0]) if len(call.outputs) == 1 else None
    return call.inputs.index(source) if source in call.inputs else None
