# SPDX-License-Identifier: Apache-2.0
"""Values near a driver's values, and contents of buffers."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

from umakit.machine.registers.register_map import Register
from umakit.testing.programs.accesses import ALL_BITS

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
    """Return another value for a register.

    Args:
        draw: source of random numbers.
        register: register of the map; None without one.
        value: the driver's value.
        others: values that the driver writes to this register elsewhere, or to registers near it.
    """
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


def _words(draw: random.Random, data: bytes) -> bytes:
    words = [draw.choice(NEAR_LIMIT) for _ in range(-(-len(data) // 4))]
    return struct.pack(f"<{len(words)}I", *words)[: len(data)]


def _one_bit(draw: random.Random, data: bytes) -> bytes:
    words = [1 << draw.randrange(32) for _ in range(-(-len(data) // 4))]
    return struct.pack(f"<{len(words)}I", *words)[: len(data)]


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
    "words near 2^31": _words,
    "words with one bit": _one_bit,
    "some bytes changed": _some,
}
"""Contents of buffers by name."""

TOGETHER = ("bytes 0", "bytes from 0 to 31", "words with one bit", "words near 2^31")
"""Contents that several buffers get at once: sums and products at the ends of an engine's range
need more than one extreme operand."""
