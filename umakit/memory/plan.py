# SPDX-License-Identifier: Apache-2.0
"""What planning memory yields."""

from __future__ import annotations

from dataclasses import dataclass, field

from umakit.memory.pools import MemoryPool


@dataclass(frozen=True)
class PoolPlan:
    """One memory pool and what lies in it.

    Attributes:
        pool: the memory.
        offsets: byte offset by tensor name.
        size: bytes used, a multiple of the pool's alignment.
    """

    pool: MemoryPool
    offsets: dict[str, int]
    size: int


@dataclass(frozen=True)
class MemoryPlan:
    """Where tensors live.

    Attributes:
        pools: in order of preference; those that hold something.
        live_set_bound: the largest sum of sizes alive at one step; no plan that keeps whole
            tensors apart can be smaller in total, one with takeovers can.
        shared: input whose memory an output takes over, by output.
        planner: whose work it is.
    """

    pools: tuple[PoolPlan, ...]
    live_set_bound: int
    shared: dict[str, str] = field(default_factory=dict)
    planner: str = ""

    @property
    def supplied(self) -> tuple[PoolPlan, ...]:
        """The pools that the library asks its caller for."""
        return tuple(pool for pool in self.pools if not pool.pool.by_offset)

    @property
    def arena_size(self) -> int:
        """Bytes of the pools that the caller supplies."""
        return sum(pool.size for pool in self.supplied)

    def pool_of(self, tensor: str) -> PoolPlan | None:
        """The pool that holds a tensor; None for one that the caller or the ROM holds."""
        return next((pool for pool in self.pools if tensor in pool.offsets), None)
