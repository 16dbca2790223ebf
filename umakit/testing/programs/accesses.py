# SPDX-License-Identifier: Apache-2.0
"""The accesses of a program, and changes that can each be omitted.

`sim/programs/umakit_programs.h` defines the text form of accesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

ALL_BITS = 0xFFFFFFFF


@dataclass(frozen=True)
class Write:
    """A write of a register: its offset in bytes, and a value of 32 bits."""

    offset: int
    value: int


@dataclass(frozen=True)
class Read:
    """A read of a register: offset in bytes, and the model's answer in the recording."""

    offset: int
    value: int


@dataclass(frozen=True)
class Wait:
    """A wait for the interrupt, with a maximum number of cycles."""

    cycles: int


@dataclass(frozen=True)
class Map:
    """A mapped buffer; `direction` is 1 if the device reads it, 2 if it writes it, 3 for both."""

    address: int
    direction: int
    data: bytes


@dataclass(frozen=True)
class Unmap:
    """Unmaps the buffer at a bus address, once the device has finished with it."""

    address: int


@dataclass(frozen=True)
class Rest:
    """Both sides come to rest.

    Attributes:
        offset: offset in bytes of the register that the driver polls; None without polling.
        mask, value: bits of the register, and their value at rest.
    """

    offset: int | None = None
    mask: int = 0
    value: int = 0


Access = Write | Read | Wait | Map | Unmap | Rest


@dataclass(frozen=True)
class SetValue:
    """Replaces the value of the write at a position."""

    position: int
    value: int


@dataclass(frozen=True)
class SetContent:
    """Replaces the content of the buffer mapped at a position."""

    position: int
    data: bytes
    name: str


@dataclass(frozen=True)
class Insert:
    """Inserts accesses after a position."""

    position: int
    accesses: tuple[Access, ...]


@dataclass(frozen=True)
class Drop:
    """Omits the accesses at positions."""

    positions: tuple[int, ...]


@dataclass(frozen=True)
class Swap:
    """Exchanges the accesses at two positions, the earlier one first."""

    position: int
    other: int


@dataclass(frozen=True)
class Repeat:
    """Repeats the accesses from `first` to `last` after `last`."""

    first: int
    last: int


Change = SetValue | SetContent | Insert | Drop | Swap | Repeat


def changed(accesses: Sequence[Access], changes: Sequence[Change]) -> list[Access]:
    """Return accesses with changes; positions refer to `accesses`."""
    now: list[list[Access]] = [[each] for each in accesses]
    for change in changes:
        if isinstance(change, SetValue):
            found = accesses[change.position]
            assert isinstance(found, Write)
            now[change.position] = [replace(found, value=change.value)]
        elif isinstance(change, SetContent):
            buffer = accesses[change.position]
            assert isinstance(buffer, Map)
            now[change.position] = [replace(buffer, data=change.data)]
    for change in changes:
        if isinstance(change, Drop):
            for position in change.positions:
                now[position] = []
        elif isinstance(change, Swap):
            one, other = change.position, change.other
            now[one], now[other] = now[other], now[one]
    for change in changes:
        if isinstance(change, Repeat):
            again = [
                access
                for position in range(change.first, change.last + 1)
                if isinstance(accesses[position], Write) or position == change.last
                for access in now[position]
            ]
            now[change.last] = [*now[change.last], *again]
    for change in changes:
        if isinstance(change, Insert):
            now[change.position] = [*now[change.position], *change.accesses]
    return [access for each in now for access in each]
