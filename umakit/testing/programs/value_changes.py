# SPDX-License-Identifier: Apache-2.0
"""Changes of values and of contents of buffers, within the driver's ranges."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

from umakit.machine.registers.register_map import Register
from umakit.testing.programs.accesses import (
    ALL_BITS,
    Access,
    Change,
    Insert,
    Map,
    Rest,
    SetContent,
    SetValue,
    Wait,
    Write,
    changed,
)
from umakit.testing.programs.facts import Facts, LayerFacts, buffer_at, mapped_in
from umakit.testing.programs.recording import Recording

NEAR = (1, -1, 1, -1, 2, -2, 3, 4, -4, 7, 8, -8)
"""Offsets of neighbours of a value."""

FEW = 6
"""Least number that small values stay below."""

NEAR_LIMIT = (0x7FFFFFFF, 0x7FFFFFFE, 0x80000000, 0x80000001, 0x40000000, 0xC0000000, 0x7FFFFF00)
"""Words near the limits of 32 bits."""

Fill = Callable[[random.Random, bytes], bytes]


def drawn_value(
    draw: random.Random, register: Register | None, value: int, others: Sequence[int]
) -> int:
    """Return another value for a register; `others` are values written elsewhere or nearby."""
    if register is not None and register.field and draw.random() < 0.7:
        field = draw.choice(register.field)
        old = (value & field.mask) >> field.lowest_bit
        new = _number(draw, field.width, old, others) << field.lowest_bit
        return (value & ~field.mask) | (new & field.mask)
    if register is not None and register.value and draw.random() < 0.7:
        return draw.choice(register.value).value
    if draw.random() < 0.03:
        return draw.getrandbits(32)
    width = 32
    if register is not None and register.writable_mask and draw.random() < 0.9:
        width = register.writable_mask.bit_length()
    return _number(draw, width, value, others)


def _number(draw: random.Random, width: int, value: int, others: Sequence[int]) -> int:
    kind = draw.random()
    if kind < 0.35:
        value += draw.choice(NEAR)
    elif kind < 0.55:
        value = draw.randrange(FEW)
    elif kind < 0.7 and others:
        value = draw.choice(others)
    elif kind < 0.8:
        value = draw.choice((0, (1 << width) - 1, 1 << (width - 1), (1 << (width - 1)) - 1))
    elif kind < 0.9:
        value = 1 << draw.randrange(width)
    elif kind < 0.95:
        value = -draw.randrange(1, 130)
    else:
        value = draw.randrange(1 << min(width, 8))
    return value & ((1 << width) - 1)


def moved_address(draw: random.Random, value: int, begin: int, size: int) -> int:
    """Return another bus address near one in a buffer of `size` bytes at `begin`."""
    kind = draw.random()
    if kind < 0.6:
        return (value + draw.choice((1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 64))) & ALL_BITS
    if kind < 0.85:
        return begin + draw.randrange(size)
    if kind < 0.95:
        return begin + size - draw.randrange(1, min(size, 9) + 1)
    return draw.choice((begin + size, begin - 1, 0, ALL_BITS, ALL_BITS - 7)) & ALL_BITS


def _bytes_of(*values: int) -> Fill:
    def fill(draw: random.Random, data: bytes) -> bytes:
        return bytes(draw.choice(values) & 0xFF for _ in data)

    return fill


def _words_of(word: Callable[[random.Random], int]) -> Fill:
    def fill(draw: random.Random, data: bytes) -> bytes:
        words = [word(draw) for _ in range(-(-len(data) // 4))]
        return struct.pack(f"<{len(words)}I", *words)[: len(data)]

    return fill


def _some(draw: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        found[draw.randrange(len(found))] = draw.choice((0, 1, 127, 128, 255, draw.randrange(256)))
    return bytes(found)


FILLS: dict[str, Fill] = {
    "random bytes": lambda draw, data: draw.randbytes(len(data)),
    "bytes 0": _bytes_of(0),
    "bytes 127": _bytes_of(127),
    "bytes -128": _bytes_of(-128),
    "bytes 127 and -128": _bytes_of(127, -128),
    "bytes 0 and 1": _bytes_of(0, 1),
    "bytes from 0 to 31": _bytes_of(*range(32)),
    "bytes from -12 to 4": _bytes_of(*range(-12, 5)),
    "words near 2^31": _words_of(lambda draw: draw.choice(NEAR_LIMIT)),
    "words with one bit": _words_of(lambda draw: 1 << draw.randrange(32)),
    "some bytes changed": _some,
}
"""Contents of buffers by name."""

TOGETHER = ("bytes 0", "bytes from 0 to 31", "words with one bit", "words near 2^31")
"""Contents that several buffers get at once: sums and products at the ends of an engine's range
need more than one extreme operand."""


AT_AN_END = 0.08
"""Share of numbers at an end of their limits."""

GROUP = 16
"""Bytes between registers that are changed together, in both directions."""


class ValueDrawing:
    """Draws changes of the values and buffers of a layer's accesses."""

    def __init__(
        self,
        draw: random.Random,
        recording: Recording,
        facts: Facts,
        base: Sequence[Access],
        known: LayerFacts,
    ) -> None:
        self._draw, self._recording, self._facts, self._base = draw, recording, facts, base
        self._known, self._is_limited = known, not facts.ranges.is_error
        starts = [
            position
            for position, each in enumerate(base)
            if isinstance(each, Write) and each.offset in facts.starts
        ]
        # Without a map, the write before each wait is assumed to start work.
        self._starts = starts or [
            max((p for p in range(end) if isinstance(base[p], Write)), default=-1)
            for end, each in enumerate(base)
            if isinstance(each, Wait | Rest)
        ]
        self._starts = [each for each in self._starts if each >= 0]
        first = next((p for p, each in enumerate(base) if isinstance(each, Map)), 0)
        self._writes = [p for p, each in enumerate(base) if isinstance(each, Write) and p > first]
        self._operands = [each for each in self._writes if each not in self._starts]
        self._kept = [each for each in facts.kept if not (self._is_limited and self._points(each))]
        self._maps = [p for p, each in enumerate(base) if isinstance(each, Map)]

    def _points(self, offset: int) -> bool:
        ranges = self._facts.ranges
        written = [each for each in self._operands if self._write_at(each).offset == offset]
        return ranges.names.get(offset) in ranges.contents or any(
            self._buffer_of(each) is not None for each in written
        )

    # ---- Limits ----

    def _within_limits(self, changes: Sequence[Change]) -> list[Change]:
        """Return changes without those that violate limits which the driver keeps at a start."""
        if not (self._is_limited and self._facts.ranges.has_limits and self._facts.starts):
            return list(changes)
        kept: list[Change] = []
        for change in changes:
            faults = self._facts.faults(changed(self._base, [*kept, change]))
            before = self._known.faults
            if all(
                each <= before[min(number, len(before) - 1)] if before else not each
                for number, each in enumerate(faults)
            ):
                kept.append(change)
        return kept

    def _limited(self, position: int, offset: int, value: int) -> int:
        """Return a value for a register within its limits; sometimes at an end of them."""
        ranges = self._facts.ranges
        if self._draw.random() < AT_AN_END:
            value = ranges.at_an_end(self._draw, offset, value)
        if not self._is_limited:
            return value
        number = sum(each < position for each in self._starts)
        states = self._known.states
        state = states[min(number, len(states) - 1)] if states else {}
        return ranges.within(self._draw, offset, value, state)

    # ---- Values ----

    def _write_at(self, position: int) -> Write:
        found = self._base[position]
        assert isinstance(found, Write)
        return found

    def _starts_around(self, position: int) -> tuple[int, int]:
        """Return the starts before and behind a position, or the ends of the accesses."""
        before = max((each for each in self._starts if each < position), default=-1)
        behind = min((each for each in self._starts if each > position), default=len(self._base))
        return before, behind

    def _buffer_of(self, position: int) -> Map | None:
        buffers = mapped_in(self._base[:position])
        found = buffer_at(buffers, self._write_at(position).value)
        return None if found is None else buffers[found]

    def _value_at(self, position: int) -> int:
        write = self._write_at(position)
        buffer = self._buffer_of(position)
        if buffer is not None and (self._is_limited or self._draw.random() < 0.95):
            return self._moved(write, buffer)
        register = self._facts.registers.get(write.offset)
        others = list(self._recording.values.get(write.offset, ()))
        if self._draw.random() < 0.3 and self._operands:
            near = self._draw.choice(self._operands)
            others = [self._write_at(near).value]
        value = drawn_value(self._draw, register, write.value, others)
        return self._limited(position, write.offset, value)

    def _moved(self, write: Write, buffer: Map) -> int:
        """Return another address in a buffer: of an element, if the map limits numbers."""
        size = len(buffer.data)
        value = moved_address(self._draw, write.value, buffer.address, size)
        if not self._is_limited:
            return value
        ranges = self._facts.ranges
        contents = ranges.contents.get(ranges.names.get(write.offset, ""))
        step = contents.size if contents else 1
        position = self._base.index(buffer)
        use = self._known.uses.get(position)
        if use is not None and (use.is_mixed or use.job is not None):
            return write.value
        moved = (value - write.value) // step * step + write.value
        return moved if 0 <= moved - buffer.address < size else write.value

    def _value(self) -> list[Change]:
        if not self._operands:
            return []
        position = self._draw.choice(self._operands)
        return [SetValue(position, self._value_at(position))]

    def _group(self) -> list[Change]:
        """Small values in neighbouring registers, for one command."""
        if not self._operands:
            return []
        anchor = self._draw.choice(self._operands)
        middle = self._write_at(anchor).offset
        before, behind = self._starts_around(anchor)
        found: list[Change] = []
        written = set()
        for position in (each for each in self._operands if before < each < behind):
            offset = self._write_at(position).offset
            if abs(offset - middle) > GROUP:
                continue
            written.add(offset)
            if self._draw.random() < 0.6:
                found.append(SetValue(position, self._small(position)))
        unwritten = [
            offset
            for offset in self._kept
            if abs(offset - middle) <= GROUP and offset not in written
        ]
        for offset in unwritten:
            if self._draw.random() < 0.7:
                value = self._draw.choice((1, 2, 3, 5, 8, self._draw.randrange(1, 80)))
                value = self._limited(anchor, offset, value)
                found.append(Insert(anchor, (Write(offset, value),)))
        return found

    def _mode(self) -> list[Change]:
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
        """Values of another command, so that both work on the same places, a few bytes apart."""
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
            value = self._limited(position, self._write_at(position).offset, max(0, value))
            found.append(SetValue(position, value & 0xFFFFFFFF))
        return found

    def _operands_of(self, start: int) -> list[int]:
        before, _ = self._starts_around(start)
        return [each for each in self._operands if before < each < start]

    def _small(self, position: int) -> int:
        write = self._write_at(position)
        if self._buffer_of(position) is not None:
            return self._value_at(position)
        if self._draw.random() < 0.5:
            value = max(0, write.value + self._draw.choice((-2, -1, 0, 1, 2, 3))) & 0xFFFFFFFF
        else:
            value = self._draw.choice((1, 1, 2, 2, 3, 4, self._draw.randrange(1, 80)))
        return self._limited(position, write.offset, value)

    def _fill(self) -> list[Change]:
        if not self._maps:
            return []
        position = self._draw.choice(self._maps)
        return self._filled(position, self._draw.choice(list(FILLS)))

    def _fills(self) -> list[Change]:
        """Contents of most buffers, which together reach the ends of an engine's range."""
        chosen = [each for each in self._maps if self._draw.random() < 0.8]
        return [
            change for each in chosen for change in self._filled(each, self._draw.choice(TOGETHER))
        ]

    def _filled(self, position: int, name: str) -> list[Change]:
        buffer = self._base[position]
        assert isinstance(buffer, Map)
        data = FILLS[name](self._draw, buffer.data)
        use = self._known.uses.get(position)
        if use is None:
            return [SetContent(position, data, name)]
        if use.job is not None:
            return [self._job_changed(position, buffer, use.job)]
        if use.contents is None:
            return []
        kept = use.contents.kept(self._draw, data, use.phase)
        if kept != data:
            name += f", or {use.contents.least} to {use.contents.highest}"
        return [SetContent(position, kept, name)]

    def _job_changed(self, position: int, buffer: Map, begin: int) -> SetContent:
        """Another number in the words of a job; addresses stay."""
        places = self._facts.ranges.job
        data = bytearray(buffer.data)
        if not places:
            return SetContent(position, bytes(data), "its words")
        place = self._draw.choice(places)
        at = begin + 4 * self._facts.ranges.words.index(place.word)
        word = int.from_bytes(data[at : at + 4], "little")
        states = self._known.states
        drawn = self._facts.ranges.drawn(self._draw, place, states[-1] if states else {})
        data[at : at + 4] = place.put(word, drawn).to_bytes(4, "little")
        name = f"{place.name} = {drawn} instead of {place.number(word)}"
        return SetContent(position, bytes(data), name)
