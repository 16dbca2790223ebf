# SPDX-License-Identifier: Apache-2.0
"""Ranges of the numbers that drivers send, from the register map, as limits of varied programs."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from umakit.machine.registers.parts import BitField, Elements, Limits, element_limits, value_of
from umakit.machine.registers.register_map import Register, RegisterMap, Word
from umakit.testing.programs.accesses import ALL_BITS, Access, Map, Unmap, Write

NumberOf = Callable[[str], int]
"""Returns the number in a `REGISTER` or `REGISTER.FIELD`."""


@dataclass(frozen=True)
class Place:
    """A word or a field with limits; the name is `REGISTER` or `REGISTER.FIELD`."""

    name: str
    word: str
    mask: int
    limits: Limits

    @property
    def shift(self) -> int:
        return (self.mask & -self.mask).bit_length() - 1

    @property
    def ends(self) -> tuple[int, int]:
        bits, given = self.mask >> self.shift, self.limits
        least, highest = (-(bits // 2) - 1, bits // 2) if given.is_signed else (0, bits)
        return (
            least if given.least is None else given.least,
            highest if given.highest is None else given.highest,
        )

    def number(self, word: int) -> int:
        found = (word & self.mask) >> self.shift
        bits = self.mask >> self.shift
        return found - bits - 1 if self.limits.is_signed and found > bits // 2 else found

    def put(self, word: int, number: int) -> int:
        return (word & ~self.mask) | ((number << self.shift) & self.mask)

    def fault(self, number: int, number_of: NumberOf) -> str:
        """Return the violated limit of a number, as the key of the map; empty if none."""
        least, highest = self.ends
        if not least <= number <= highest:
            return f"least = {least}" if number < least else f"highest = {highest}"
        if number % self.limits.multiple_of:
            return f"multiple_of = {self.limits.multiple_of}"
        others = [value_of(each, number_of) for each in self.limits.one_of]
        if others and number not in others and None not in others:
            texts = ", ".join(f'"{each}"' for each in self.limits.one_of)
            return f"one_of = [{texts}]"
        above = value_of(self.limits.not_above, number_of) if self.limits.not_above else None
        return "" if above is None or number <= above else f'not_above = "{self.limits.not_above}"'

    def drawn(self, draw: random.Random, number_of: NumberOf) -> int:
        """Return a random number within the place's own limits."""
        least, highest = self.ends
        others = [value_of(each, number_of) for each in self.limits.one_of]
        chosen = [each for each in others if each is not None and least <= each <= highest]
        if chosen:
            return draw.choice(chosen)
        step = self.limits.multiple_of
        first, last = -(-least // step), highest // step
        few = max(first, min(last, first + draw.choice((2, 8, 64, 1024))))
        end = last if self.limits.highest is not None else few
        return step * draw.choice((first, end, draw.randint(first, few)))


@dataclass(frozen=True)
class Contents:
    """The elements that a register points to."""

    kind: Elements
    least: int
    highest: int

    @property
    def size(self) -> int:
        return np.dtype(self.kind).itemsize

    def kept(self, draw: random.Random, data: bytes, phase: int) -> bytes:
        """Return data with the elements, from byte `phase` on, moved into the limits."""
        layout = struct.Struct(f"<{(len(data) - phase) // self.size}{np.dtype(self.kind).char}")
        found = [
            each if self.least <= each <= self.highest else draw.randint(self.least, self.highest)
            for each in layout.unpack_from(data, phase)
        ]
        return data[:phase] + layout.pack(*found) + data[phase + layout.size :]


@dataclass(frozen=True)
class Ranges:
    """The ranges of a register map for numbers that drivers send.

    Attributes:
        places: places with limits, by offset of their register.
        contents: elements behind pointers in registers and words of a job, by name.
        known: offsets of registers with documented ranges.
        numbers: values of registers before they are written, by name.
        fields: bits of fields by their name, `REGISTER.FIELD`.
        is_error: whether the map declares numbers beyond the limits an error.
        descriptor: offset of the register with the address of a job's words; None without one.
        words: names of these words.
        job: places with limits in these words.
    """

    places: Mapping[int, tuple[Place, ...]] = field(default_factory=dict)
    contents: Mapping[str, Contents] = field(default_factory=dict)
    known: frozenset[int] = frozenset()
    names: Mapping[int, str] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    fixed: frozenset[str] = frozenset()
    fields: Mapping[str, Place] = field(default_factory=dict)
    is_error: bool = False
    descriptor: int | None = None
    words: tuple[str, ...] = ()
    job: tuple[Place, ...] = ()

    @property
    def has_limits(self) -> bool:
        return bool(self.places or self.contents or self.job)

    def within(self, draw: random.Random, offset: int, value: int, state: Mapping[str, int]) -> int:
        """Return a value with each number within its own limits; `state` has values by name."""
        for place in self.places.get(offset, ()):
            number_of = self._number_of({**state, place.word: value})
            fault = place.fault(place.number(value), number_of)
            if fault and not fault.startswith("not_above"):
                value = place.put(value, place.drawn(draw, number_of))
        return value

    def drawn(self, draw: random.Random, place: Place, state: Mapping[str, int]) -> int:
        """Return a random number for a place, within the place's own limits."""
        return place.drawn(draw, self._number_of(state))

    def at_an_end(self, draw: random.Random, offset: int, value: int) -> int:
        """Return a value with one number at an end of its limits; unchanged without limits."""
        places = self.places.get(offset, ())
        if not places:
            return value
        place = draw.choice(places)
        given = [each for each in (place.limits.least, place.limits.highest) if each is not None]
        return place.put(value, draw.choice(given)) if given else value

    def _number_of(self, state: Mapping[str, int]) -> NumberOf:
        def number(name: str) -> int:
            word, _, _ = name.partition(".")
            value = state.get(word, self.numbers.get(word, 0))
            place = self.fields.get(name)
            return value if place is None else place.number(value)

        return number

    def states(self, accesses: Sequence[Access], starts: frozenset[int]) -> list[dict[str, int]]:
        """Return the values of written registers and words at each start of work."""
        state: dict[str, int] = {}
        buffers: dict[int, bytes] = {}
        found = []
        for access in accesses:
            if isinstance(access, Map):
                buffers[access.address] = access.data
            elif isinstance(access, Unmap):
                buffers.pop(access.address, None)
            elif isinstance(access, Write):
                state[self.names.get(access.offset, "")] = access.value
                if access.offset in starts:
                    found.append({**state, **self._job(state, buffers)})
        return found

    def _job(self, state: Mapping[str, int], buffers: Mapping[int, bytes]) -> dict[str, int]:
        """Return the words of the job in memory that the descriptor register points to."""
        if self.descriptor is None:
            return {}
        address = state.get(self.names[self.descriptor], 0)
        for begin, data in buffers.items():
            end = address - begin + 4 * len(self.words)
            if begin <= address and end <= len(data):
                words = struct.unpack_from(f"<{len(self.words)}I", data, address - begin)
                return dict(zip(self.words, words, strict=True))
        return {}

    def faults(self, state: Mapping[str, int], *, only_written: bool) -> Iterator[tuple[str, str]]:
        """Yield names and violated limits, also of unwritten values unless `only_written`."""
        number_of = self._number_of(state)
        if not only_written:
            yield from ((name, "points_to") for name in self.contents if name not in state)
        for place in (*(each for found in self.places.values() for each in found), *self.job):
            names = [place.word, *(each.partition(".")[0] for each in place.limits.references)]
            if only_written and not all(each in state or each in self.fixed for each in names):
                continue
            number = place.number(state.get(place.word, self.numbers.get(place.word, 0)))
            fault = place.fault(number, number_of)
            if fault:
                yield f"{place.name} is {number}", fault


def ranges_of(
    registers: RegisterMap, configured: Mapping[str, int], written: Mapping[int, Sequence[int]]
) -> Ranges:
    """Return the ranges that a map defines for drivers.

    Args:
        written: values that the driver writes to each register, by offset. If all are named values
            of the register, the register gets only named values.
    """
    places = {}
    known = set()
    for register in registers.registers:
        if register.access == "ro":
            continue
        found = tuple(_places(register, written.get(register.offset, ())))
        if found:
            places[register.offset] = found
        if register.elements or (found and _is_known(register)):
            known.add(register.offset)
    job = registers.descriptor.word if registers.descriptor is not None else []
    descriptor = None
    if registers.descriptor is not None:
        descriptor = registers.place(registers.descriptor.register_name)[0].offset
        known.add(descriptor)
    every = [*registers.registers, *job]
    starts = {each.name: each.reset for each in registers.registers}
    return Ranges(
        places=places,
        contents={each.name: _contents(each) for each in every if each.elements},
        known=frozenset(known),
        names={each.offset: each.name for each in registers.registers},
        numbers={**starts, **configured},
        fixed=frozenset(each.name for each in registers.registers if each.access == "ro"),
        fields={place.name: place for word in every for place in _numbered(word)},
        is_error=registers.access.outside == "error",
        descriptor=descriptor,
        words=tuple(each.name for each in job),
        job=tuple(place for each in job for place in _places(each, ())),
    )


def _numbered(word: Word) -> Iterator[Place]:
    if not word.elements:
        yield Place(word.name, word.name, ALL_BITS, word)
    for each in word.field:
        limits = each if each.is_signed or not each.signed else _signed(each)
        yield Place(f"{word.name}.{each.name}", word.name, each.mask, limits)


def _places(word: Word, written: Sequence[int]) -> Iterator[Place]:
    if word.elements:
        return
    if word.field:
        yield from (each for each in _numbered(word) if each.limits.has_limits)
        return
    values = [each.value for each in word.value]
    if word.has_limits:
        yield Place(word.name, word.name, ALL_BITS, word)
    elif values and set(written) <= set(values):
        yield Place(word.name, word.name, ALL_BITS, Limits(one_of=[str(each) for each in values]))


def _signed(bits: BitField) -> Limits:
    least = -(1 << (bits.width - 1)) if bits.least is None else bits.least
    return Limits(**{key: getattr(bits, key) for key in Limits.model_fields if key != "least"},
                  least=least)  # fmt: skip


def _is_known(register: Register) -> bool:
    if register.field:
        return all(each.has_range for each in register.field)
    return register.has_range or not register.has_limits  # its named values are its limits


def _contents(register: Word) -> Contents:
    kind = register.elements
    of_type = np.iinfo(kind)
    least, highest = element_limits(register.operand) or (int(of_type.min), int(of_type.max))
    return Contents(
        kind,
        least if register.least is None else register.least,
        highest if register.highest is None else register.highest,
    )
