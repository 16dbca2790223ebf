# SPDX-License-Identifier: Apache-2.0
"""The result of memory planning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from umakit.memory.pools import MemoryPool


@dataclass(frozen=True)
class PoolPlan:
    """A memory pool and its tensors.

    Attributes:
        offsets: byte offset by tensor name.
        size: bytes used, a multiple of the pool's alignment.
    """

    pool: MemoryPool
    offsets: dict[str, int]
    size: int


@dataclass(frozen=True)
class GenericLayer:
    """A layer that uses its generic kernel because of the scratch limit.

    Attributes:
        name: name of the layer.
        scratch_bytes: scratch of the CPU-specific kernel; None if unknown.
    """

    name: str
    scratch_bytes: int | None


@dataclass(frozen=True)
class ScratchUse:
    """Use of the arena that the scratch limit allows, for an export for a specific CPU.

    Attributes:
        limit_percent: percent above the live-set bound, as in
            `umakit.memory.scratch_limit.largest_arena`.
        generic_arena_bytes: arena of the generic export, for any CPU.
        limit_bytes: largest allowed arena.
        generic_layers: layers with generic kernels because of the limit.
        keeps_layout: whether the network keeps its layout because of the limit.
    """

    limit_percent: int
    generic_arena_bytes: int
    limit_bytes: int
    generic_layers: tuple[GenericLayer, ...] = ()
    keeps_layout: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        layers = [
            {"name": each.name, "scratch_bytes": each.scratch_bytes} for each in self.generic_layers
        ]
        return {
            "limit_percent": self.limit_percent,
            "generic_arena_bytes": self.generic_arena_bytes,
            "limit_bytes": self.limit_bytes,
            "generic_layers": layers,
            "keeps_layout": self.keeps_layout,
        }


@dataclass(frozen=True)
class MemoryPlan:
    """Pools and offsets of all tensors.

    Attributes:
        pools: the non-empty pools in order of preference.
        live_set_bound: largest total size in bytes of the tensors alive at one step, a lower bound
            for plans without in-place outputs.
        shared: input whose memory an in-place output reuses, by output.
        planner: name of the planner.
        scratch: use of the scratch limit; None for a generic export, which has no limit.
    """

    pools: tuple[PoolPlan, ...]
    live_set_bound: int
    shared: dict[str, str] = field(default_factory=dict)
    planner: str = ""
    scratch: ScratchUse | None = None

    @property
    def supplied(self) -> tuple[PoolPlan, ...]:
        """Return the pools that the caller of the library provides."""
        return tuple(pool for pool in self.pools if not pool.pool.by_offset)

    @property
    def arena_size(self) -> int:
        """Return the total size in bytes of the pools that the caller provides."""
        return sum(pool.size for pool in self.supplied)

    def pool_of(self, tensor: str) -> PoolPlan | None:
        """Return the pool of a tensor; None for inputs, outputs and constants."""
        return next((pool for pool in self.pools if tensor in pool.offsets), None)
