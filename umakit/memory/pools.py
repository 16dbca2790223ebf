# SPDX-License-Identifier: Apache-2.0
"""Memory pools: the memories for intermediate and scratch tensors.

TVM's Unified Static Memory Planner (RFC 0009) calls such memories workspace pools. A backend
declares its pools in `accel.toml`; options of a compilation add pools of the board, or override
sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from umakit.errors import MemoryPlanError
from umakit.machine.config_faults import line_of_value
from umakit.partition.report import CPU
from umakit.registration.backend import Backend
from umakit.text.names import is_macro, is_reserved

ALIGNMENT = 16
"""Default alignment in bytes; enough for every C type and for common vector units."""

DEFAULT_POOL = "workspace"

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_UNITS = {"": 1, "B": 1, "K": 1024, "M": 1024 * 1024}
_SYNTAX = re.compile(
    r"(?P<name>\w+)(=(?P<size>\d{1,15})(?P<unit>[BKM]?))?"
    r"(,align=(?P<alignment>\d{1,15}))?"
)


@dataclass(frozen=True)
class MemoryPool:
    """A memory for tensors.

    Attributes:
        name: a C identifier.
        size: bytes; None for unlimited.
        alignment: alignment in bytes of the pool and of every tensor, a power of two.
        reachable_by: targets (`cpu` or a backend's name) whose kernels can access the pool; None
            for all.
        by_offset: whether the pool is a scratchpad without CPU access. Drivers get byte offsets
            from its start instead of pointers. It holds the buffers that a TIR pass allocates
            (`umakit.tir.scratchpad_buffer`), and the caller of the library does not provide it.
        place: file and line of the size in an `accel.toml`; empty for other sources.
    """

    name: str
    size: int | None = None
    alignment: int = ALIGNMENT
    reachable_by: frozenset[str] | None = None
    by_offset: bool = False
    place: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or (
            (is_reserved(self.name) or is_macro(self.name)) and self.name != DEFAULT_POOL
        ):
            raise MemoryPlanError(
                f"a memory pool cannot be called {self.name!r}",
                fix="use lower-case letters, digits and underscores, and no word of C",
            )
        if self.alignment < 1 or self.alignment & (self.alignment - 1):
            raise MemoryPlanError(
                f"memory pool {self.name}: alignment {self.alignment} is not a power of two"
            )
        if self.size is not None and self.size < 1:
            raise MemoryPlanError(f"memory pool {self.name}: a size of {self.size} B")

    def serves(self, targets: Iterable[str]) -> bool:
        """Return whether kernels of all given targets can access the pool."""
        return self.reachable_by is None or self.reachable_by.issuperset(targets)

    def rounded(self, size: int) -> int:
        """Return a tensor size in bytes, rounded up to the pool's alignment."""
        return -(-size // self.alignment) * self.alignment


def parse_pool(text: str) -> MemoryPool:
    """Parse `NAME[=SIZE[K|M]][,align=BYTES]`; raise MemoryPlanError for another form."""
    match = _SYNTAX.fullmatch(text.strip())
    if match is None:
        raise MemoryPlanError(
            f"memory pool {text!r} cannot be read",
            fix="write NAME, NAME=BYTES or NAME=BYTES,align=BYTES, such as sram=96K,align=32",
        )
    size = int(match["size"]) * _UNITS[match["unit"]] if match["size"] else None
    return MemoryPool(match["name"], size, int(match["alignment"] or ALIGNMENT))


def memory_pools(
    backends: Sequence[Backend], requested: Sequence[MemoryPool] = ()
) -> tuple[MemoryPool, ...]:
    """Return the pools of a build, in order of preference.

    Args:
        backends: backends whose `accel.toml` may declare pools. Pools with equal names are one
            memory, except scratchpads, which belong to one backend (see `scratchpad_names`).
        requested: pools of the board. A request overrides the size of a declared pool, the stricter
            alignment wins, and the backend's `reachable_by` stays.
    """
    pools: dict[str, MemoryPool] = {}
    others = scratchpad_names(backends)
    for backend in backends:
        for declared in _declared_pools(backend):
            name = others.get((backend.target_name, declared.name), declared.name)
            pool = replace(declared, name=name)
            pools[pool.name] = _united(pools.get(pool.name, pool), pool)
    _check_requested(requested, others)
    for name in pools.keys() | {pool.name for pool in requested}:
        if f"{name}_size" in pools.keys() | {pool.name for pool in requested}:
            raise MemoryPlanError(
                f"memory pools cannot be called {name!r} and {name + '_size'!r} together",
                fix="choose another name: the C interface tells the size of a pool so",
            )
    names = [pool.name for pool in requested]
    for pool in requested:
        if names.count(pool.name) > 1:
            raise MemoryPlanError(f"memory pool {pool.name} is given twice")
        earlier = pools.get(pool.name, pool)
        pools[pool.name] = replace(
            pool,
            size=pool.size or (earlier.size if earlier.by_offset else None),
            alignment=max(pool.alignment, earlier.alignment),
            reachable_by=earlier.reachable_by,
            by_offset=earlier.by_offset,
        )
    if not any(pool.serves([CPU]) for pool in pools.values()):
        if DEFAULT_POOL in pools:
            raise MemoryPlanError(
                f"memory pool {DEFAULT_POOL} is out of the CPU's reach",
                fix="give it another name, or declare a pool that the CPU reaches",
            )
        pools[DEFAULT_POOL] = MemoryPool(DEFAULT_POOL)
    return tuple(_aligned(pool, backends) for pool in pools.values())


def _aligned(pool: MemoryPool, backends: Sequence[Backend]) -> MemoryPool:
    """Return a pool with an alignment that all accelerators with access support."""
    needed = [
        backend.configuration.dma.alignment
        for backend in backends
        if not pool.by_offset and pool.serves([backend.target_name])
    ]
    return replace(pool, alignment=max([pool.alignment, *needed]))


def scratchpad_names(backends: Sequence[Backend]) -> dict[tuple[str, str], str]:
    """Return `TARGET_NAME` for scratchpads whose name several backends declare, by both."""
    declared = [
        (backend.target_name, pool.name)
        for backend in backends
        for pool in _declared_pools(backend)
        if pool.by_offset
    ]
    names = [name for _, name in declared]
    return {
        (target, name): f"{target}_{name}" for target, name in declared if names.count(name) > 1
    }


def requested_pools(
    requested: Iterable[MemoryPool], backends: Sequence[Backend], used: Sequence[Backend]
) -> list[MemoryPool]:
    """Return the pools of the board for used backends, under their names in the build.

    `TARGET_NAME` is an accelerator's scratchpad whose name another accelerator shares, used or not.
    """
    owners = {other: place for place, other in scratchpad_names(backends).items()}
    targets, others = {each.target_name for each in used}, scratchpad_names(used)
    found = []
    for pool in requested:
        place = owners.get(pool.name)
        if place is None:
            found.append(pool)
        elif place[0] in targets:
            found.append(replace(pool, name=others.get(place, place[1])))
    return found


def _check_requested(
    requested: Iterable[MemoryPool], others: Mapping[tuple[str, str], str]
) -> None:
    """Refuse a request with a scratchpad name that several backends declare."""
    for pool in requested:
        names = [other for (_, name), other in others.items() if name == pool.name]
        if names:
            raise MemoryPlanError(
                f"memory pool {pool.name} is the name of scratchpads of several accelerators",
                fix=f"write {' or '.join(names)}",
            )


def _declared_pools(backend: Backend) -> list[MemoryPool]:
    """Return the pools in a backend's `accel.toml`."""
    targets = {"cpu": CPU, "accelerator": backend.target_name}
    return [
        MemoryPool(
            section.name,
            section.size,
            section.alignment,
            frozenset(targets[who] for who in section.reachable_by),
            section.address == "offset",
            line_of_value(backend.folder / "accel.toml", "memory", "size", number=number),
        )
        for number, section in enumerate(backend.configuration.memory)
    ]


def _united(one: MemoryPool, other: MemoryPool) -> MemoryPool:
    """Merge the declarations of one memory by two backends. Refuse scratchpads."""
    if one is not other and (one.by_offset or other.by_offset):
        raise MemoryPlanError(
            f"memory pool {one.name} is a scratchpad of one backend and a memory of another one",
            fix="give it another name in the accel.toml of one of them",
        )
    if (one.size, one.alignment) != (other.size, other.alignment):
        raise MemoryPlanError(
            f"memory pool {one.name} is declared by two backends with different sizes or alignments"
        )
    return replace(
        one, reachable_by=(one.reachable_by or frozenset()) | (other.reachable_by or frozenset())
    )
