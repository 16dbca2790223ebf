# SPDX-License-Identifier: Apache-2.0
"""Programs: accesses of a recorded layer with changes that a seed decides."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from umakit.testing.programs.accesses import Access, Map, Read, Rest, Unmap, Wait, Write
from umakit.testing.programs.changes import (
    Change,
    Drop,
    Insert,
    Repeat,
    SetContent,
    SetValue,
    Swap,
    changed,
)
from umakit.testing.programs.facts import Facts
from umakit.testing.programs.recording import Recording
from umakit.testing.programs.values import FILLS, TOGETHER, drawn_value, moved_address

MOST_CHANGES = 6
"""Times that something is changed; neighbouring registers are changed together at once."""

BEHIND = (0, 0, 16, 256, 4096)
"""Bytes that buffers of a program are larger than the driver's."""

MODES = 0.3
"""Share of programs in which a mode is changed besides, so that it is tried with other changes."""

BOTH = 3
"""`UMAKIT_BIDIRECTIONAL` of `umakit/device.h`."""

WIDEST = 128
"""Bytes of the widest word of a bus."""

GROUP = 16
"""Bytes between registers that are changed together, in both directions."""


@dataclass(frozen=True)
class Program:
    """A program.

    Attributes:
        seed: it is drawn from.
        layer: number of the recorded layer.
        base: the layer's accesses, in buffers of this program.
        changes: what is changed.
        rests: whether each wait is followed by a rest.
        pauses: seed of pauses of the memory bus; 0 for none.
    """

    seed: str
    layer: int
    base: tuple[Access, ...]
    changes: tuple[Change, ...]
    rests: bool
    pauses: int

    def accesses(self) -> list[Access]:
        """Return what is done, with rests."""
        found: list[Access] = []
        for access in changed(self.base, self.changes):
            found.append(access)
            if self.rests and isinstance(access, Wait):
                found.append(Rest())
        return found

    def with_changes(self, changes: Sequence[Change]) -> Program:
        """Return the program with other changes."""
        return replace(self, changes=tuple(changes))


def drawn_program(recording: Recording, facts: Facts, seed: str) -> Program:
    """Return the program of a seed; equal ones give equal programs of equal recordings."""
    draw = random.Random(seed)
    layer = draw.randrange(len(recording.layers))
    behind = draw.choice(BEHIND)
    base = tuple(
        _roomy(draw, each, behind) if isinstance(each, Map) else each
        for each in recording.layers[layer]
    )
    drawing = _Drawing(draw, recording, facts, base)
    changes = drawing.changes()
    rests = draw.random() < 0.8 or not facts.may_be_busy
    pauses = draw.getrandbits(31) | 1 if draw.random() < 0.25 else 0
    return Program(seed, layer, base, tuple(changes), rests, pauses)


def _roomy(draw: random.Random, buffer: Map, behind: int) -> Map:
    """Return a buffer with bytes behind it, up to the end of a word of the bus.

    A design on a bus does not know that only bytes of a word are missing that it does not need, nor
    whether an access is refused because of its direction.
    """
    more = behind + -(len(buffer.data) + behind) % WIDEST
    return replace(buffer, direction=BOTH, data=buffer.data + draw.randbytes(more))


class _Drawing:
    """Draws changes of a layer's accesses."""

    def __init__(
        self, draw: random.Random, recording: Recording, facts: Facts, base: Sequence[Access]
    ) -> None:
        self._draw, self._recording, self._facts, self._base = draw, recording, facts, base
        starts = [
            position
            for position, each in enumerate(base)
            if isinstance(each, Write) and each.offset in facts.starts
        ]
        # Without a map, the write before each wait is what begins work.
        self._starts = starts or [
            max((p for p in range(end) if isinstance(base[p], Write)), default=-1)
            for end, each in enumerate(base)
            if isinstance(each, Wait | Rest)
        ]
        self._starts = [each for each in self._starts if each >= 0]
        first = next((p for p, each in enumerate(base) if isinstance(each, Map)), 0)
        self._writes = [p for p, each in enumerate(base) if isinstance(each, Write) and p > first]
        self._operands = [each for each in self._writes if each not in self._starts]
        self._maps = [p for p, each in enumerate(base) if isinstance(each, Map)]

    def changes(self) -> list[Change]:
        kinds = [self._value, self._group, self._fill, self._fills, self._borrowed]
        weights = [5, 5, 3, 4, 3]
        if self._starts and self._facts.may_be_busy:
            kinds += [self._busy_write, self._busy_read, self._no_wait, self._twice, self._start]
            weights += [2, 1, 1, 1, 1]
        kinds += [self._order, self._left_out]
        weights += [1, 1]
        found: list[Change] = []
        count = 1
        while count < MOST_CHANGES and self._draw.random() < 0.6:
            count += 1
        for kind in self._draw.choices(kinds, weights, k=count):
            found += kind()
        return [*found, *self._mode()] if self._draw.random() < MODES else found

    # ---- Values ----

    def _write_at(self, position: int) -> Write:
        found = self._base[position]
        assert isinstance(found, Write)
        return found

    def _buffer_of(self, position: int) -> Map | None:
        """Return the buffer in which the value of a write is a bus address."""
        value = self._write_at(position).value
        mapped: dict[int, Map] = {}
        for access in self._base[:position]:
            if isinstance(access, Map):
                mapped[access.address] = access
            elif isinstance(access, Unmap):
                mapped.pop(access.address, None)
        for each in mapped.values():
            if each.address <= value < each.address + len(each.data):
                return each
        return None

    def _value_at(self, position: int) -> int:
        write = self._write_at(position)
        buffer = self._buffer_of(position)
        if buffer is not None and self._draw.random() < 0.95:
            return moved_address(self._draw, write.value, buffer.address, len(buffer.data))
        register = self._facts.registers.get(write.offset)
        others = list(self._recording.values.get(write.offset, ()))
        if self._draw.random() < 0.3 and self._operands:
            near = self._draw.choice(self._operands)
            others = [self._write_at(near).value]
        return drawn_value(self._draw, register, write.value, others)

    def _value(self) -> list[Change]:
        if not self._operands:
            return []
        position = self._draw.choice(self._operands)
        return [SetValue(position, self._value_at(position))]

    def _group(self) -> list[Change]:
        """Small values in registers that lie near each other, for one command."""
        if not self._operands:
            return []
        anchor = self._draw.choice(self._operands)
        middle = self._write_at(anchor).offset
        first = max((each for each in self._starts if each < anchor), default=-1) + 1
        last = min((each for each in self._starts if each > anchor), default=len(self._base)) - 1
        found: list[Change] = []
        written = set()
        for position in (each for each in self._operands if first <= each <= last):
            offset = self._write_at(position).offset
            if abs(offset - middle) > GROUP:
                continue
            written.add(offset)
            if self._draw.random() < 0.6:
                found.append(SetValue(position, self._small(position)))
        unwritten = [
            offset
            for offset in self._facts.kept
            if abs(offset - middle) <= GROUP and offset not in written
        ]
        for offset in unwritten:
            if self._draw.random() < 0.7:
                value = self._draw.choice((1, 2, 3, 5, 8, self._draw.randrange(1, 80)))
                found.append(Insert(anchor, (Write(offset, value),)))
        return found

    def _mode(self) -> list[Change]:
        """Another one of the values that the map names for a register."""
        modes: dict[int, list[int]] = {}
        for position in self._operands:
            offset = self._write_at(position).offset
            register = self._facts.registers.get(offset)
            if register is not None and len(register.value) > 1:
                modes.setdefault(offset, []).append(position)
        if not modes:
            return []
        offset = self._draw.choice(list(modes))
        position = self._draw.choice(modes[offset])
        values = [each.value for each in self._facts.registers[offset].value]
        values = [each for each in values if each != self._write_at(position).value]
        return [SetValue(position, self._draw.choice(values))] if values else []

    def _borrowed(self) -> list[Change]:
        """Values of another command, so that one works where the other does, a few bytes away."""
        if len(self._starts) < 2:
            return []
        one, other = self._draw.sample(self._starts, 2)
        values = {
            self._write_at(each).offset: self._write_at(each).value
            for each in self._operands_of(other)
        }
        found: list[Change] = []
        for position in self._operands_of(one):
            value = values.get(self._write_at(position).offset)
            if value is None or self._buffer_of(position) or self._draw.random() < 0.6:
                continue
            value += self._draw.choice((0, 0, 1, 2, 3, 5, -1))
            found.append(SetValue(position, max(0, value) & 0xFFFFFFFF))
        return found

    def _operands_of(self, start: int) -> list[int]:
        """Return positions of writes between the start before one and this one."""
        first = max((each for each in self._starts if each < start), default=-1)
        return [each for each in self._operands if first < each < start]

    def _small(self, position: int) -> int:
        value = self._write_at(position).value
        if self._buffer_of(position) is not None:
            return self._value_at(position)
        if self._draw.random() < 0.5:
            return max(0, value + self._draw.choice((-2, -1, 0, 1, 2, 3))) & 0xFFFFFFFF
        return self._draw.choice((1, 1, 2, 2, 3, 4, self._draw.randrange(1, 80)))

    def _fill(self) -> list[Change]:
        if not self._maps:
            return []
        position = self._draw.choice(self._maps)
        return [self._filled(position, self._draw.choice(list(FILLS)))]

    def _fills(self) -> list[Change]:
        """Contents of most buffers, which together lead to the ends of what an engine computes."""
        chosen = [each for each in self._maps if self._draw.random() < 0.8]
        return [self._filled(each, self._draw.choice(TOGETHER)) for each in chosen]

    def _filled(self, position: int, name: str) -> SetContent:
        buffer = self._base[position]
        assert isinstance(buffer, Map)
        return SetContent(position, FILLS[name](self._draw, buffer.data), name)

    # ---- Order ----

    def _busy_write(self) -> list[Change]:
        """Writes directly behind a start: what a driver would write for the next one, and more."""
        start = self._draw.choice(self._starts)
        found: list[Access] = []
        for _ in range(self._draw.choice((1, 1, 1, 2, 3))):
            if self._facts.kept and self._draw.random() < 0.4:
                offset = self._draw.choice(list(self._facts.kept))
                others = self._recording.values.get(offset, (0,))
                register = self._facts.registers.get(offset)
                value = drawn_value(self._draw, register, others[-1], others)
            elif self._operands:
                position = self._draw.choice(self._operands)
                offset, value = self._write_at(position).offset, self._value_at(position)
            else:
                break
            found.append(Write(offset, value))
        return [Insert(start, tuple(found))] if found else []

    def _busy_read(self) -> list[Change]:
        start = self._draw.choice(self._starts)
        offsets = sorted(self._facts.kept) or sorted(self._recording.read)
        if not offsets:
            return []
        return [Insert(start, (Read(self._draw.choice(offsets), 0),))]

    def _no_wait(self) -> list[Change]:
        start = self._draw.choice(self._starts)
        end = min((each for each in self._starts if each > start), default=len(self._base))
        waits = [p for p in range(start, end) if isinstance(self._base[p], Wait | Rest)]
        return [Drop(tuple(waits))] if waits else []

    def _twice(self) -> list[Change]:
        """A start again, at once or when it has ended with the same values."""
        start = self._draw.choice(self._starts)
        if self._draw.random() < 0.5:
            return [Insert(start, (self._base[start],))]
        first = max((each for each in self._starts if each < start), default=-1) + 1
        end = min((each for each in self._starts if each > start), default=len(self._base))
        wait = next((p for p in range(start, end) if isinstance(self._base[p], Wait)), None)
        return [Repeat(first, wait)] if wait is not None else []

    def _start(self) -> list[Change]:
        """Another command than the driver gives."""
        position = self._draw.choice(self._starts)
        write = self._write_at(position)
        register = self._facts.registers.get(write.offset)
        fields = register.field if register else []
        bits = [1 << each.lowest_bit for each in fields] or [1, 2, 4]
        value = write.value ^ self._draw.choice(bits)
        return [SetValue(position, value)]

    def _order(self) -> list[Change]:
        # Another write in place of a start is one while an engine works.
        writes = self._writes if self._facts.may_be_busy else self._operands
        if len(writes) < 2:
            return []
        position = self._draw.randrange(len(writes) - 1)
        other = min(len(writes) - 1, position + self._draw.choice((1, 1, 2, 5)))
        return [Swap(writes[position], writes[other])]

    def _left_out(self) -> list[Change]:
        return [Drop((self._draw.choice(self._writes),))] if self._writes else []
