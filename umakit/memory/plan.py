# SPDX-License-Identifier: Apache-2.0
"""The result of memory planning."""

from __future__ import annotations

from dataclasses import dataclass, field

from umakit.memory.pools import MemoryPool


@dataclass(frozen=True)
class PoolPlan:
    """A memory pool and its tensors.

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
    """Pools and offsets of all tensors.

    Attributes:
        pools: the non-empty pools in order of preference.
        live_set_bound: largest total size in bytes of the tensors alive at one step; a lower bound
            of all plans in which no output reuses the memory of an input.
        shared: input whose memory an output reuses, by output.
        planner: name of the planner.
    """

    pools: tuple[PoolPlan, ...]
    live_set_bound: int
    shared: dict[str, str] = field(default_factory=dict)
    planner: str = ""

    @property
    def supplied(self) -> tuple[PoolPlan, ...]:
        """The pools that the caller of the library provides."""
        return tuple(pool for pool in self.pools if not pool.pool.by_offset)

    @property
    def arena_size(self) -> int:
        """The total size in bytes of the pools that the caller provides."""
        return sum(pool.size for pool in self.supplied)

    def pool_of(self, tensor: str) -> PoolPlan | None:
        """Return the pool of a tensor; None for inputs, outputs and constants."""
        return next((pool for pool in self.pools if tensor in pool.offsets), None)
