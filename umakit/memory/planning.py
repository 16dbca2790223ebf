# SPDX-License-Identifier: Apache-2.0
"""A memory plan of a program: a pool and an offset for each tensor of the arena."""

from __future__ import annotations

from collections.abc import Sequence

from umakit.errors import MemoryPlanError
from umakit.frontend.sizes import LARGEST_OBJECT
from umakit.memory.assignment import Filled, fill_pools
from umakit.memory.plan import MemoryPlan, PoolPlan
from umakit.memory.planners import DEFAULT_PLANNER, PLANNERS
from umakit.memory.pools import MemoryPool, memory_pools
from umakit.memory.sharing import memory_owner, merge_shared, shared_memory
from umakit.program.lifetimes import tensor_lifetimes, tensor_users
from umakit.program.live_sets import Lifetime, live_set_bound
from umakit.program.program import Program, Tensor


def plan_memory(
    program: Program,
    pools: Sequence[MemoryPool] = (),
    planner: str = DEFAULT_PLANNER,
) -> MemoryPlan:
    """Place the tensors of a program.

    Args:
        program: the program whose tensors are placed.
        pools: memories in order of preference; default: one pool of unlimited size that all
            targets can access.
        planner: a name of `umakit.memory.planners.PLANNERS`.

    Raises:
        MemoryPlanError: there is no such planner; no pool is accessible to all users of a tensor;
            a pool overflows (names the bytes and the tensors) or exceeds what C can address.
    """
    check_planner(planner)
    pools = tuple(pools) or memory_pools([])
    lifetimes = tensor_lifetimes(program)

    def serving(targets: frozenset[str]) -> list[MemoryPool]:
        return [pool for pool in pools if pool.serves(targets) and not pool.by_offset]

    shared = shared_memory(program, lifetimes, lambda targets: bool(serving(targets)))
    pieces = merge_shared(lifetimes, shared)
    candidates = {
        piece.name: _candidates(
            program,
            piece.name,
            targets,
            _scratchpad(program.tensors[piece.name], pools) or serving(targets),
        )
        for piece, targets in _users_of_pieces(program, pieces, shared)
    }
    filled = fill_pools(
        pieces, candidates, pools, PLANNERS[planner], lambda name: program.tensors[name].label
    )
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
    """Refuse a planner that does not exist.

    Raises:
        MemoryPlanError: there is no such planner; names the existing ones.
    """
    if planner not in PLANNERS:
        raise MemoryPlanError(
            f"there is no memory planner {planner!r}", fix=f"choose from {', '.join(PLANNERS)}"
        )


def _users_of_pieces(
    program: Program, pieces: Sequence[Lifetime], shared: dict[str, str]
) -> list[tuple[Lifetime, frozenset[str]]]:
    """Return the targets that access each piece of memory through any tensor that shares it."""
    users: dict[str, frozenset[str]] = {}
    for name, targets in tensor_users(program).items():
        owner = memory_owner(name, shared)
        users[owner] = users.get(owner, frozenset()) | targets
    return [(piece, users[piece.name]) for piece in pieces]


def _scratchpad(tensor: Tensor, pools: Sequence[MemoryPool]) -> list[MemoryPool]:
    """Return the scratchpad that a tensor is assigned to; nothing if the plan may choose."""
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


def _candidates(
    program: Program, name: str, targets: frozenset[str], pools: list[MemoryPool]
) -> list[MemoryPool]:
    if not pools:
        raise MemoryPlanError(
            f"no memory pool is within reach of {' and '.join(sorted(targets))}, which share it",
            where=f"tensor {program.tensors[name].label}",
            fix='declare one in accel.toml, with reachable_by = ["cpu", "accelerator"]',
        )
    return pools


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
