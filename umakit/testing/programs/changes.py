# SPDX-License-Identifier: Apache-2.0
"""Changes of a layer's accesses; each change can be omitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from umakit.testing.programs.accesses import Access, Map, Write


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
