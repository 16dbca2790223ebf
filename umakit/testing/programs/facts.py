# SPDX-License-Identifier: Apache-2.0
"""Facts about a backend's registers, for programs made of its driver's accesses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from umakit.machine.registers.register_map import Register, RegisterMap
from umakit.registration.backend import Backend
from umakit.testing.programs.accesses import ALL_BITS, Access, Map, Unmap, Write
from umakit.testing.programs.ranges import Contents, Ranges, ranges_of
from umakit.testing.programs.recording import Recording
from umakit.testing.registers.register_check import (
    configured_values,
    doorbells_of,
    idle_register,
    map_of,
    volatile_of,
)


@dataclass(frozen=True)
class Use:
    """The use of a buffer.

    Attributes:
        contents: type of the elements, if all registers that point into the buffer agree; else
            None.
        phase: byte at which an element begins.
        job: byte at which the words of a job begin; None without a job.
        is_mixed: whether registers that point into the buffer disagree on its elements.
    """

    contents: Contents | None = None
    phase: int = 0
    job: int | None = None
    is_mixed: bool = False


def uses_of(base: Sequence[Access], ranges: Ranges, starts: frozenset[int]) -> dict[int, Use]:
    """Return the uses of buffers, by the position of their mapping."""
    found: dict[int, Use] = {}
    for position, access in enumerate(base):
        if not isinstance(access, Write) or access.offset not in starts:
            continue
        buffers = mapped_in(base[:position])
        (state,) = ranges.states(base[: position + 1], starts)[-1:]
        if ranges.descriptor is not None:
            address = state.get(ranges.names[ranges.descriptor], 0)
            place = buffer_at(buffers, address)
            if place is not None:
                found[place] = Use(job=address - buffers[place].address)
        for name, contents in ranges.contents.items():
            address = state.get(name, 0)
            place = buffer_at(buffers, address)
            if place is not None:
                phase = (address - buffers[place].address) % contents.size
                found[place] = _agreed(found.get(place), Use(contents, phase))
    return found


def _agreed(before: Use | None, now: Use) -> Use:
    if before is None or before == now:
        return now
    return Use(job=before.job, is_mixed=True)


def mapped_in(accesses: Sequence[Access]) -> dict[int, Map]:
    """Return the buffers that are mapped after some accesses, by the position of the mapping."""
    mapped: dict[int, tuple[int, Map]] = {}
    for position, access in enumerate(accesses):
        if isinstance(access, Map):
            mapped[access.address] = position, access
        elif isinstance(access, Unmap):
            mapped.pop(access.address, None)
    return dict(mapped.values())


def buffer_at(buffers: Mapping[int, Map], address: int) -> int | None:
    """Return the position of the first buffer with a bus address; None without one."""
    found = (n for n, b in buffers.items() if b.address <= address < b.address + len(b.data))
    return next(found, None)


def buffer_with(accesses: Sequence[Access], address: int) -> int | None:
    """Return the position of the last buffer that was mapped with a bus address."""
    every = {n: each for n, each in enumerate(accesses) if isinstance(each, Map)}
    return buffer_at(dict(reversed(every.items())), address)


def pointers_to(
    accesses: Sequence[Access], position: int, starts: frozenset[int]
) -> tuple[int, ...]:
    """Return offsets of registers that point into a buffer while it is mapped."""
    buffer = accesses[position]
    assert isinstance(buffer, Map)
    found: dict[int, None] = {}
    for each in accesses[position + 1 :]:
        if isinstance(each, Unmap) and each.address == buffer.address:
            break
        if not isinstance(each, Write) or each.offset in starts:
            continue
        if buffer.address <= each.value < buffer.address + len(buffer.data):
            found.setdefault(each.offset)
    return tuple(found)


@dataclass(frozen=True)
class LayerFacts:
    """Facts about a recorded layer.

    Attributes:
        uses: uses of buffers, by the position of their mapping.
        states: register values at each start, by name.
        faults: names and violated limits of registers not yet written, at each start.
    """

    uses: Mapping[int, Use]
    states: tuple[Mapping[str, int], ...]
    faults: tuple[frozenset[str], ...]


@dataclass(frozen=True)
class Facts:
    """Facts about registers; offsets are in bytes.

    Attributes:
        registers: registers of the map by offset; empty without a map.
        starts: offsets of registers whose writes start work; empty if unknown.
        idle: offset of a register that can be read without effect; None if there is none.
        error: offset and mask of the bits that are not 0 after an error; None if unknown.
        kept: bits that only a write changes, by offset.
        shown: bits that are compared whenever a device is at rest, by offset.
        uncompared: offsets of registers that change by themselves.
        busy: offset and mask of the bits that are not 0 during work; None if unknown.
        counts_work: whether the model's counter of busy cycles grows during work.
        may_be_busy: whether the map defines accesses while an engine works.
        ranges: ranges of the numbers that drivers send.
        layers: facts of each recorded layer.
    """

    registers: Mapping[int, Register]
    starts: frozenset[int]
    idle: int | None
    error: tuple[int, int] | None
    kept: Mapping[int, int]
    shown: Mapping[int, int]
    uncompared: frozenset[int]
    may_be_busy: bool = False
    ranges: Ranges = field(default_factory=Ranges)
    layers: tuple[LayerFacts, ...] = ()
    busy: tuple[int, int] | None = None
    counts_work: bool = False

    def layer(self, number: int) -> LayerFacts:
        return self.layers[number] if number < len(self.layers) else LayerFacts({}, (), ())

    def faults(self, accesses: Sequence[Access]) -> tuple[frozenset[str], ...]:
        """Return the names and limits that a program violates, at each of its starts."""
        return tuple(
            frozenset(
                f"{what.partition(' ')[0]} {limit}"
                for what, limit in self.ranges.faults(state, only_written=False)
            )
            for state in self.ranges.states(accesses, self.starts)
        )

    def name(self, offset: int) -> str:
        """Return the name of a register with its offset."""
        register = self.registers.get(offset)
        return f"{register.name} (0x{offset:03X})" if register else f"register 0x{offset:03X}"


def facts_of(backend: Backend, recording: Recording) -> Facts:
    """Return the facts from the register map and the recording."""
    found = map_of(backend)
    uncompared = frozenset(volatile_of(backend))
    if found is None:
        first = next((each for layer in recording.layers for each in layer), None)
        idle = getattr(first, "offset", None) if getattr(first, "value", None) else None
        return Facts(
            {}, frozenset(), idle, None, {}, {}, uncompared, counts_work=recording.counts_work
        )
    registers = {each.offset: each for each in found[0].registers}
    idle = idle_register(backend)
    error = _bits(found[0], found[0].error)
    busy = _bits(found[0], found[0].job.busy if found[0].job is not None else "")
    kept = {
        each.offset: each.writable_mask
        for each in registers.values()
        if each.access == "rw" and each.write == "store" and each.offset not in uncompared
    }
    shown = {
        each.offset: ALL_BITS
        for each in registers.values()
        if each.access != "wo"
        and each.offset in recording.read
        and each.offset not in uncompared
        and each.offset not in kept
        and not (each.configured or each.offset == idle)
    }
    starts = frozenset(doorbells_of(backend))
    configured = configured_values(found[0], backend.configuration, found[1])
    facts = Facts(
        registers, starts, idle, error, kept, shown, uncompared,
        found[0].access.busy == "kept", ranges_of(found[0], configured, recording.values),
        busy=busy, counts_work=recording.counts_work,
    )  # fmt: skip
    return replace(facts, layers=tuple(layer_facts(each, facts) for each in recording.layers))


def _bits(registers: RegisterMap, name: str) -> tuple[int, int] | None:
    """Return offset and mask of `REGISTER` or `REGISTER.FIELD`; None without a name."""
    if not name:
        return None
    register, field = registers.place(name)
    return register.offset, field.mask if field else ALL_BITS


def layer_facts(accesses: Sequence[Access], facts: Facts) -> LayerFacts:
    """Return the facts about a layer's accesses, for programs within the limits."""
    ranges = facts.ranges
    if ranges.is_error:
        return LayerFacts({}, (), ())
    states = ranges.states(accesses, facts.starts)
    return LayerFacts(
        uses_of(accesses, ranges, facts.starts), tuple(states), facts.faults(accesses)
    )


def contradiction(recording: Recording, facts: Facts, where: str) -> str:
    """Return a driver's violation of its map as a sentence; empty without one.

    If the map declares such commands an error, the device reports the violation itself.
    """
    for accesses in () if facts.ranges.is_error else recording.layers:
        for state in facts.ranges.states(accesses, facts.starts):
            for what, limit in facts.ranges.faults(state, only_written=True):
                return f"{what} when the driver starts work, and {where} says {limit}"
    return ""
