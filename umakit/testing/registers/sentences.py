# SPDX-License-Identifier: Apache-2.0
"""How differences of registers are said."""

from __future__ import annotations

from umakit.machine.registers.register_map import Register
from umakit.testing.registers.accesses import BusError


def number(value: int) -> str:
    """Return a value of a register as text."""
    if isinstance(value, BusError):
        return f"the bus error {value.response}"
    return f"0x{value:08X}"


def place(register: Register) -> str:
    """Return name and offset of a register."""
    return f"{register.name} (0x{register.offset:03X})"


def bits_text(register: Register, bits: int) -> str:
    """Return a set of bits as text, with the names of the fields that have some of them."""
    fields = [each.name for each in register.field if each.mask & bits]
    if bits == 0xFFFFFFFF:
        return "all bits"
    ranges = _ranges(bits)
    word = "bit" if len(ranges) == 1 and ranges[0].isdigit() else "bits"
    return f"{word} {', '.join(ranges)}" + (f" ({', '.join(fields)})" if fields else "")


def difference(register: Register, what: str, expected: int, found: int) -> str:
    """Return a clause that says which bits of a register differ, from what, and to what."""
    if isinstance(found, BusError):
        what = f" {what}" if what else ""
        return f"{place(register)}:{what} {number(found)} instead of {number(expected)}"
    bits = bits_text(register, expected ^ found)
    what = f" {what}" if what else ""
    return f"{place(register)}, {bits}:{what} {number(found)} instead of {number(expected)}"


def _ranges(bits: int) -> list[str]:
    """Return the runs of ones of a word, such as `31:16` and `3`."""
    found, bit = [], 31
    while bit >= 0:
        if bits >> bit & 1:
            end = bit
            while end > 0 and bits >> (end - 1) & 1:
                end -= 1
            found.append(str(bit) if end == bit else f"{bit}:{end}")
            bit = end
        bit -= 1
    return found
