# SPDX-License-Identifier: Apache-2.0
"""The uses of a driver's buffers, from its registers and the map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from umakit.testing.programs.accesses import Access, Map, Unmap, Write
from umakit.testing.programs.ranges import Contents, Ranges


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
    """Return the uses of buffers, by the position of their mapping.

    Args:
        base: accesses of a layer.
        ranges: ranges of the map.
        starts: offsets of registers whose writes start work.
    """
    found: dict[int, Use] = {}
    for position, access in enumerate(base):
        if not isinstance(access, Write) or access.offset not in starts:
            continue
        buffers = dict(_mapped(base[:position]))
        (state,) = ranges.states(base[: position + 1], starts)[-1:]
        if ranges.descriptor is not None:
            address = state.get(ranges.names[ranges.descriptor], 0)
            place = _buffer_at(buffers, address)
            if place is not None:
                found[place] = Use(job=address - buffers[place].address)
        for name, contents in ranges.contents.items():
            address = state.get(name, 0)
            place = _buffer_at(buffers, address)
            if place is not None:
                phase = (address - buffers[place].address) % contents.size
                found[place] = _agreed(found.get(place), Use(contents, phase))
    return found


def _agreed(before: Use | None, now: Use) -> Use:
    if before is None or before == now:
        return now
    return Use(job=before.job, is_mixed=True)


def _mapped(accesses: Sequence[Access]) -> Iterator[tuple[int, Map]]:
    mapped: dict[int, tuple[int, Map]] = {}
    for position, access in enumerate(accesses):
        if isinstance(access, Map):
            mapped[access.address] = position, access
        elif isinstance(access, Unmap):
            mapped.pop(access.address, None)
    yield from mapped.values()


def _buffer_at(buffers: Mapping[int, Map], address: int) -> int | None:
    """Return the position of the buffer that contains an address; None without one."""
    for position, each in buffers.items():
        if each.address <= address < each.address + len(each.data):
            return position
    return None


def buffer_with(accesses: Sequence[Access], address: int) -> int | None:
    """Return the position of the last mapped buffer with a bus address; None without one."""
    for position in range(len(accesses) - 1, -1, -1):
        each = accesses[position]
        if isinstance(each, Map) and each.address <= address < each.address + len(each.data):
            return position
    return None


def pointers_to(
    accesses: Sequence[Access], position: int, starts: frozenset[int]
) -> tuple[int, ...]:
    """Return offsets of registers that point into a buffer while it is mapped.

    Args:
        accesses: accesses of a program.
        position: position of the buffer's mapping.
        starts: offsets of registers whose writes start work.
    """
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
