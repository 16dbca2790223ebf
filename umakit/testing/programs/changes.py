# SPDX-License-Identifier: Apache-2.0
"""Changes of a layer's accesses, each of which can be left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from umakit.testing.programs.accesses import Access, Map, Read, Write

Name = Callable[[int], str]
"""Returns the name of the register at an offset."""


@dataclass(frozen=True)
class SetValue:
    """The write at a position of the recording gets another value."""

    position: int
    value: int


@dataclass(frozen=True)
class SetContent:
    """The buffer that is mapped at a position gets another content."""

    position: int
    data: bytes
    name: str


@dataclass(frozen=True)
class Insert:
    """Accesses that are made behind the one at a position."""

    position: int
    accesses: tuple[Access, ...]


@dataclass(frozen=True)
class Drop:
    """Accesses that are left out, at these positions."""

    positions: tuple[int, ...]


@dataclass(frozen=True)
class Swap:
    """The accesses at a position and at a later one change places."""

    position: int
    other: int


@dataclass(frozen=True)
class Repeat:
    """Accesses at positions from `first` on, up to `last`, are made again behind `last`."""

    first: int
    last: int


Change = SetValue | SetContent | Insert | Drop | Swap | Repeat


def changed(accesses: Sequence[Access], changes: Sequence[Change]) -> list[Access]:
    """Return accesses with changes; positions are those of `accesses`."""
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


def text_of(change: Change, accesses: Sequence[Access], name: Name) -> str:
    """Return a change in words, of accesses whose registers `name` names."""
    if isinstance(change, SetValue):
        found = accesses[change.position]
        assert isinstance(found, Write)
        return f"{name(found.offset)} is 0x{change.value:x} instead of 0x{found.value:x}"
    if isinstance(change, SetContent):
        buffer = accesses[change.position]
        assert isinstance(buffer, Map)
        return f"the buffer at 0x{buffer.address:08x} has {change.name}"
    if isinstance(change, Insert):
        behind = _place(accesses[change.position], name)
        made = ", ".join(
            f"a write of 0x{each.value:x} to {name(each.offset)}"
            if isinstance(each, Write)
            else _place(each, name)
            for each in change.accesses
        )
        return f"behind {behind}: {made}"
    if isinstance(change, Drop):
        left_out = dict.fromkeys(_place(accesses[each], name) for each in change.positions)
        return f"without {', '.join(left_out)}"
    if isinstance(change, Swap):
        one, other = (_place(accesses[each], name) for each in (change.position, change.other))
        return f"{other} comes before {one}"
    return f"the command of {_place(accesses[change.last], name)} is given twice"


def _place(access: Access, name: Name) -> str:
    if isinstance(access, Write):
        return f"the write of 0x{access.value:x} to {name(access.offset)}"
    if isinstance(access, Read):
        return f"a read of {name(access.offset)}"
    return {"Wait": "the wait", "Map": "a map", "Unmap": "an unmap"}.get(
        type(access).__name__, "a rest"
    )
