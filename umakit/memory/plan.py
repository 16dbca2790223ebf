# SPDX-License-Identifier: Apache-2.0
"""The result of memory planning, and the network with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from umakit.cpu.several import CpuChoice
from umakit.memory.pools import MemoryPool
from umakit.partition.partitioner import Partitioned
from umakit.partition.report import OffloadReport
from umakit.program.program import Program
from umakit.registration.backend import Backend


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
    """

    limit_percent: int
    generic_arena_bytes: int
    limit_bytes: int
    generic_layers: tuple[GenericLayer, ...] = ()
    keeps_layout: bool = False


@dataclass(frozen=True)
class MemoryPlan:
    """Pools and offsets of all tensors.

    Attributes:
        pools: the non-empty pools in order of preference.
        live_set_bound: largest total size in bytes of the tensors alive at one step, a lower bound
            for plans without in-place outputs.
        shared: input whose memory an in-place output reuses, by output.
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


@dataclass(frozen=True)
class PlannedProgram:
    """A network after the stages `lower`, `program` and `memory`, before C is written.

    Attributes:
        choice: the CPU, of several; None in a library for one CPU.
    """

    program: Program
    memory: MemoryPlan
    backends: Mapping[str, Backend]
    partitioned: Partitioned
    choice: CpuChoice | None = None

    @property
    def report(self) -> OffloadReport:
        return self.partitioned.report

    @property
    def relax_text(self) -> str:
        return str(self.partitioned.module.script(show_meta=False))

    @property
    def of_several(self) -> CpuChoice:
        assert self.choice is not None
        return self.choice


def with_common_pools(networks: Sequence[PlannedProgram]) -> list[PlannedProgram]:
    """Return networks with the same pools in all plans, some of them empty."""
    pools = {pool.pool.name: pool.pool for each in networks for pool in each.memory.supplied}
    found = []
    for each in networks:
        own = {pool.pool.name: pool for pool in each.memory.supplied}
        supplied = [own.get(name, PoolPlan(pool, {}, 0)) for name, pool in pools.items()]
        others = [pool for pool in each.memory.pools if pool.pool.by_offset]
        plan = replace(each.memory, pools=(*supplied, *others))
        found.append(replace(each, memory=plan))
    return found
