# SPDX-License-Identifier: Apache-2.0
"""Programs: accesses of a recorded layer with seeded random changes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from umakit.testing.programs.accesses import (
    Access,
    Change,
    Drop,
    Insert,
    Map,
    Read,
    Repeat,
    Rest,
    SetValue,
    Swap,
    Wait,
    Write,
    changed,
)
from umakit.testing.programs.facts import Facts, Use
from umakit.testing.programs.recording import Recording
from umakit.testing.programs.value_changes import ValueDrawing, drawn_value

MOST_CHANGES = 6
"""Times that something is changed; neighbouring registers are changed together at once."""

BEHIND = (0, 0, 16, 256, 4096)
"""Bytes that buffers of a program are larger than the driver's."""

MODES = 0.3
"""Share of programs that also change a mode, to combine modes with other changes."""

BOTH = 3
"""`UMAKIT_BIDIRECTIONAL` of `umakit/device.h`."""

WIDEST = 128
"""Bytes of the widest word of a bus."""


@dataclass(frozen=True)
class Program:
    """A program.

    Attributes:
        rests: whether each wait is followed by a rest.
        pauses: seed of pauses of the memory bus; 0 for none.
        cycles: cycles of the model's clock for the layer; 0 if unknown.
    """

    seed: str
    layer: int
    base: tuple[Access, ...]
    changes: tuple[Change, ...]
    rests: bool
    pauses: int
    cycles: int = 0

    def accesses(self) -> list[Access]:
        """Return the accesses with rests."""
        found: list[Access] = []
        for access in changed(self.base, self.changes):
            found.append(access)
            if self.rests and isinstance(access, Wait):
                found.append(Rest())
        return found

    def with_changes(self, changes: Sequence[Change]) -> Program:
        return replace(self, changes=tuple(changes))


def drawn_program(recording: Recording, facts: Facts, seed: str) -> Program:
    """Return the program of a seed; equal seeds give equal programs of equal recordings."""
    draw = random.Random(seed)
    layer = draw.randrange(len(recording.layers))
    behind = draw.choice(BEHIND)
    base = tuple(
        _roomy(draw, each, behind) if isinstance(each, Map) else each
        for each in recording.layers[layer]
    )
    known = facts.layer(layer)
    base = tuple(_typed(draw, each, known.uses.get(position)) for position, each in enumerate(base))
    drawing = _Drawing(draw, recording, facts, base, known)
    changes = drawing.changes()
    rests = draw.random() < 0.8 or not facts.may_be_busy
    pauses = draw.getrandbits(31) | 1 if draw.random() < 0.25 else 0
    cycles = recording.cycles[layer] if recording.cycles else 0
    return Program(seed, layer, base, tuple(changes), rests, pauses, cycles)


def _roomy(draw: random.Random, buffer: Map, behind: int) -> Map:
    """Return a buffer with bytes after its end, up to the end of a word of the bus.

    A design on a bus cannot know that only unneeded bytes of a word are missing, nor that an access
    is refused because of its direction.
    """
    more = behind + -(len(buffer.data) + behind) % WIDEST
    return replace(buffer, direction=BOTH, data=buffer.data + draw.randbytes(more))


def _typed(draw: random.Random, access: Access, use: Use | None) -> Access:
    if use is None or use.contents is None or not isinstance(access, Map):
        return access
    return replace(access, data=use.contents.kept(draw, access.data, use.phase))


class _Drawing(ValueDrawing):
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
        if self._draw.random() < MODES:
            found += self._mode()
        return self._within_limits(found)

    # ---- Order ----

    def _busy_write(self) -> list[Change]:
        """Writes directly after a start: the driver's writes for the next start, and more."""
        start = self._draw.choice(self._starts)
        found: list[Access] = []
        for _ in range(self._draw.choice((1, 1, 1, 2, 3))):
            if self._kept and self._draw.random() < 0.4:
                offset = self._draw.choice(self._kept)
                others = self._recording.values.get(offset, (0,))
                register = self._facts.registers.get(offset)
                value = drawn_value(self._draw, register, others[-1], others)
                value = self._limited(start + 1, offset, value)
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
        _, end = self._starts_around(start)
        waits = [p for p in range(start, end) if isinstance(self._base[p], Wait | Rest)]
        return [Drop(tuple(waits))] if waits else []

    def _twice(self) -> list[Change]:
        """A repeated start, at once or with the same values after the end of work."""
        start = self._draw.choice(self._starts)
        if self._draw.random() < 0.5:
            return [Insert(start, (self._base[start],))]
        before, end = self._starts_around(start)
        wait = next((p for p in range(start, end) if isinstance(self._base[p], Wait)), None)
        return [Repeat(before + 1, wait)] if wait is not None else []

    def _start(self) -> list[Change]:
        position = self._draw.choice(self._starts)
        write = self._write_at(position)
        register = self._facts.registers.get(write.offset)
        fields = register.field if register else []
        bits = [1 << each.lowest_bit for each in fields] or [1, 2, 4]
        value = write.value ^ self._draw.choice(bits)
        return [SetValue(position, value)]

    def _order(self) -> list[Change]:
        # Another write in place of a start would happen while an engine works.
        writes = self._writes if self._facts.may_be_busy else self._operands
        if len(writes) < 2:
            return []
        position = self._draw.randrange(len(writes) - 1)
        other = min(len(writes) - 1, position + self._draw.choice((1, 1, 2, 5)))
        return [Swap(writes[position], writes[other])]

    def _left_out(self) -> list[Change]:
        return [Drop((self._draw.choice(self._writes),))] if self._writes else []
