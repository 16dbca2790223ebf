# SPDX-License-Identifier: Apache-2.0
"""Counts of events of a layer. Imports neither TVM nor the pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class MemoryCounts:
    """Accesses to a memory of an accelerator; None for what is not known.

    Attributes:
        reads, writes: accesses, each of at most the memory's width.
        read_bytes, written_bytes: bytes of these.
    """

    reads: int | None = None
    read_bytes: int | None = None
    writes: int | None = None
    written_bytes: int | None = None

    def plus(self, other: MemoryCounts) -> MemoryCounts:
        """Return the sums; None where one is not known."""
        pairs = ((getattr(self, each.name), getattr(other, each.name)) for each in fields(self))
        return MemoryCounts(*(_added(one, two) for one, two in pairs))


NO_ACCESSES = MemoryCounts(0, 0, 0, 0)


@dataclass(frozen=True)
class EventCounts:
    """Events of a layer on an accelerator, or of several; None for what is not known.

    Attributes:
        macs: multiply-accumulates of the layer, computed from its shapes.
        wasted_macs: multiply-accumulates that the array had room for besides, in folds that are
            not full.
        bus_read_bytes, bus_written_bytes: bytes that the accelerator read and wrote over the bus.
        register_accesses: accesses of the driver to registers.
        cycles: cycles of the accelerator's clock.
        idle_cycles: those of them in which no engine works.
        memories: accesses to the accelerator's memories that are counted, by name; empty if it
            has none, None if it is not known which it has.
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
        """The counts without those of memories, by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)[:-1]}

    @classmethod
    def total(cls, counts: Iterable[EventCounts]) -> EventCounts:
        """Return the sums; None, or without a memory, where one of the counts is not known."""
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
    """Return the sums of each memory; unknown where one side does not count it."""
    if one is None or other is None:
        return None
    unknown = MemoryCounts()
    names = dict.fromkeys([*one, *other])
    return {name: one.get(name, unknown).plus(other.get(name, unknown)) for name in names}
