# SPDX-License-Identifier: Apache-2.0
"""The section `[energy]` of an `accel.toml`: picojoules of events, as far as known."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any

from pydantic import Field

from umakit.machine.config_faults import Section
from umakit.text.spelling import closest_or_all

Picojoules = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
MemoryName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=23)]

ACCUMULATOR = "accumulator"
"""Name of the memory of sums of umakit's systolic array."""


class MemoryEnergy(Section):
    """Picojoules of accesses to a memory. The energies of an access and of its bytes add up."""

    read: Picojoules | None = None
    read_byte: Picojoules | None = None
    write: Picojoules | None = None
    written_byte: Picojoules | None = None


class EnergySection(Section):
    """Picojoules of events. Events without a figure are not added up, and reported energies say so.

    Attributes:
        wasted_mac: energy of an unused multiply-accumulate slot of a fold.
        bus_read_byte, bus_written_byte: energy of a byte that the accelerator moves over the bus.
        idle_cycle: additional energy of a cycle in which no engine works.
    """

    mac: Picojoules | None = None
    wasted_mac: Picojoules | None = None
    bus_read_byte: Picojoules | None = None
    bus_written_byte: Picojoules | None = None
    register_access: Picojoules | None = None
    cycle: Picojoules | None = None
    idle_cycle: Picojoules | None = None
    memory: dict[MemoryName, MemoryEnergy] = Field(default={}, max_length=64)


def check_memories(energy: EnergySection, names: Collection[str]) -> None:
    """Refuse figures of memories that an accelerator does not have.

    Raises:
        ValueError: a memory is unknown; names the key, and the nearest memory or all memories.
    """
    for name in energy.memory:
        if name not in names:
            fix = closest_or_all(name, sorted(names), "memories") if names else "remove it"
            raise ValueError(f"energy.memory.{name}: there is no such memory; {fix}")


@dataclass(frozen=True, slots=True)
class MemoryCounts:
    """Accesses to a memory of an accelerator; None for unknown counts.

    Attributes:
        reads, writes: accesses, each of at most the memory's width.
        read_bytes, written_bytes: bytes of all reads and of all writes.
    """

    reads: int | None = None
    read_bytes: int | None = None
    writes: int | None = None
    written_bytes: int | None = None

    def plus(self, other: MemoryCounts) -> MemoryCounts:
        """Return the sums; None where a count is unknown."""
        pairs = ((getattr(self, each.name), getattr(other, each.name)) for each in fields(self))
        return MemoryCounts(*(_added(one, two) for one, two in pairs))


NO_ACCESSES = MemoryCounts(0, 0, 0, 0)


@dataclass(frozen=True)
class JobCounts:
    """Counts of a job of the array.

    Attributes:
        wasted_macs: multiply-accumulate slots of the folds that the job does not use.
        scratchpad, accumulator: accesses to these memories.
    """

    wasted_macs: int
    scratchpad: MemoryCounts
    accumulator: MemoryCounts


@dataclass(frozen=True)
class EventCounts:
    """Events of one or several layers on an accelerator; None for unknown counts.

    Attributes:
        wasted_macs: multiply-accumulate slots of folds that are not full.
        bus_read_bytes, bus_written_bytes: bytes that the accelerator reads and writes over the bus.
        idle_cycles: cycles in which no engine works.
        memories: accesses to the counted memories, by name; empty for no memories, None if the
            memories are unknown.
    """

    macs: int | None = None
    wasted_macs: int | None = None
    bus_read_bytes: int | None = None
    bus_written_bytes: int | None = None
    register_accesses: int | None = None
    cycles: int | None = None
    idle_cycles: int | None = None
    memories: Mapping[str, MemoryCounts] | None = None

    @property
    def plain(self) -> dict[str, int | None]:
        """All counts by name, without `memories`."""
        return {each.name: getattr(self, each.name) for each in fields(self)[:-1]}

    @classmethod
    def total(cls, counts: Iterable[EventCounts]) -> EventCounts:
        """Return the sums; a count is None, and a memory missing, where one of the counts is
        unknown."""
        found = list(counts)
        if not found:
            return cls()
        total = found[0]
        for each in found[1:]:
            sums = {name: _added(value, each.plain[name]) for name, value in total.plain.items()}
            total = cls(**sums, memories=_both(total.memories, each.memories))
        return total

    def as_json(self) -> dict[str, Any]:
        """Return all counts by name; keys are stable."""
        memories = self.memories
        if memories is not None:
            return {**self.plain, "memories": {k: asdict(each) for k, each in memories.items()}}
        return {**self.plain, "memories": None}


def _added(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _both(
    one: Mapping[str, MemoryCounts] | None, other: Mapping[str, MemoryCounts] | None
) -> dict[str, MemoryCounts] | None:
    """Return the sums of each memory; unknown where one side does not count the memory."""
    if one is None or other is None:
        return None
    unknown = MemoryCounts()
    names = dict.fromkeys([*one, *other])
    return {name: one.get(name, unknown).plus(other.get(name, unknown)) for name in names}
