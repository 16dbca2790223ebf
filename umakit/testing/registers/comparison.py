# SPDX-License-Identifier: Apache-2.0
"""A device compared with its register map, access by access."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from umakit.errors import DeviceError
from umakit.machine.registers.parts import WORD
from umakit.machine.registers.register_map import Answer, Register, RegisterMap
from umakit.testing.registers.accesses import Access, BusError, RegisterReport, Registers

ONES = WORD - 1

PATTERNS = (
    *(0, ONES, 0x55555555, 0xAAAAAAAA),
    *(1 << bit for bit in range(32)),
    *(ONES ^ (1 << bit) for bit in range(32)),
)
"""Values written to a storing register: all bits, alternating bits, a walking 1 and a walking 0."""

PAIR = (0xA5A5A5A5, 0x5A5A5A5A)
"""Values written before all others are read: one of them differs from any other register's
value."""

RESETS = 8
"""Number of resets. On RTL, an omitted register has another value before each reset."""

MOST_SENTENCES = 20


def compare(
    device: Registers, registers: RegisterMap, configured: Mapping[str, int] = MappingProxyType({})
) -> RegisterReport:
    """Compare a device in its power-on state with its register map.

    The only commands given are the one that clears errors and, at the end, a reset. A device that
    fails is a difference.
    """
    work = _Work(device, registers, configured)
    found = work.found
    found.left_out = [each.name for each in registers.registers if each.volatile]
    keys = ("holes", "wrong", "reserved")
    found.unknown = [key for key in keys if not getattr(registers.access, key)]
    steps = (
        work.after_power_on, work.stored, work.all_at_once, work.reserved, work.wrong_accesses,
        work.holes, work.after_reset,
    )  # fmt: skip
    try:
        for step in steps:
            if len(found.differences) < MOST_SENTENCES:
                step()
    except DeviceError as error:
        found.differences.append(error.what)
    return found


class _Work:
    """The steps of a comparison; each step restores the power-on state of the registers."""

    def __init__(
        self, device: Registers, registers: RegisterMap, configured: Mapping[str, int]
    ) -> None:
        self._device, self._map, self._configured = device, registers, configured
        self.found = RegisterReport("", len(registers.registers))
        read = [each for each in registers.registers if each.access != "wo" and not each.volatile]
        self._by_offset = {each.offset: each for each in read}
        self._initial: dict[int, int] = {}
        self._at_first: dict[int, int] = {}
        self._commands = _command_registers(registers)
        self._said: set[str] = set()

    # ---- Steps ----

    def after_power_on(self) -> None:
        self._at_first = self._initial = self._all()
        self._compare_resets(self._initial, "after power-on")
        self._compare_idle("after power-on")
        again = self._all()
        for offset, value in again.items():
            if value != self._initial[offset]:
                register = self._by_offset.pop(offset)
                what = "changes though nothing is written:"
                said = difference(register, what, self._initial[offset], value)
                self._say(register.name, f"{said}; if it runs, the map needs volatile = true")

    def stored(self) -> None:
        """Check that writable bits keep written values, and that no other register changes."""
        for register in self._keeping():
            allowed = self._allowed(register)
            self._patterns(register, allowed)
            for pattern in PAIR:
                value = pattern & allowed
                self._write(register.offset, value)
                what = f"a write of {number(value)} to {place(register)}"
                self._others_unchanged(what, register.name, register.offset)
            self._restore(register)

    def all_at_once(self) -> None:
        """Check that registers keep their values while others are written, in both orders."""
        storing = [each for each in self._keeping() if each.write == "store"]
        for order in (storing, storing[::-1]):
            written = {}
            for count, register in enumerate(order, 1):
                value = (0x9E3779B9 * count) & self._mask(register)
                self._write(register.offset, value)
                kept = self._initial[register.offset] & ~self._mask(register)
                written[register.offset] = kept | value
            values = self._all()
            for register in order:
                offset = register.offset
                if values[offset] != written[offset]:
                    what = "does not keep its value while other registers are written:"
                    said = difference(register, what, written[offset], values[offset])
                    self._say(register.name, said)
        for register in storing:
            self._restore(register)

    def reserved(self) -> None:
        """Check the answers to ones written to bits that a write does not change."""
        answer = self._map.access.reserved
        keeping = self._keeping()
        for register in self._map.registers:
            bits = ONES & ~self._mask(register)
            is_kept = register in keeping
            if not answer or not bits or register.access == "ro":
                continue
            if is_kept and answer == "ignored":
                continue  # already written by `stored`
            values = [1 << bit for bit in range(32) if bits >> bit & 1]
            for value in [*values, ONES] if is_kept else values:
                self._write(register.offset, value)
                what = f"a write of {number(value)} to {place(register)}"
                self._answered(what, register.name, answer)
                self._others_unchanged(what, register.name)

    def wrong_accesses(self) -> None:
        answer = self._map.access.wrong
        for register in self._map.registers:
            if not answer or register.access == "rw":
                continue
            if register.access == "wo":
                what = f"a read of {place(register)}"
                self._read_answered(register.offset, what, register.name, answer)
                continue
            value = self._initial.get(register.offset, 0)
            for written in dict.fromkeys((ONES, 0, value ^ ONES, *PAIR)):
                self._write(register.offset, written)
                what = f"a write of {number(written)} to {place(register)}"
                self._answered(what, register.name, answer)
                self._others_unchanged(what, register.name)

    def holes(self) -> None:
        answer = self._map.access.holes
        offsets = {each.offset for each in self._map.registers}
        for offset in range(0, self._map.size_of_holes, 4):
            if not answer or offset in offsets:
                continue
            name = f"0x{offset:03X}, where there is no register"
            self._read_answered(offset, f"a read of {name},", name, answer)
            for value in PAIR:
                self._write(offset, value)
                what = f"a write of {number(value)} to {name},"
                self._answered(what, name, answer)
                self._read_answered(offset, f"after {what} a read", name, answer)
            self._others_unchanged(what, name)

    def after_reset(self) -> None:
        """Check that each reset restores all registers from any state, without a job under way."""
        for _ in range(RESETS):
            for register in self._keeping():
                self._write(register.offset, self._initial[register.offset] ^ self._mask(register))
            if not self._device.reset():
                return
            self._compare_resets(self._all(), "after a reset")
            self._compare_idle("after a reset")

    # ---- Properties of a register ----

    def _keeping(self) -> list[Register]:
        return [
            each
            for each in self._map.registers
            if each.access == "rw"
            and each.offset in self._by_offset
            and each.write != "command"
            and each.name not in self._commands
        ]

    def _mask(self, register: Register) -> int:
        """The writable bits, without fields that this device lacks."""
        mask = register.writable_mask
        for each in register.field:
            if each.present:
                switch, _ = self._map.place(each.present)
                if self._initial.get(switch.offset, 1) == 0:
                    mask &= ~each.mask
        return mask

    def _allowed(self, register: Register) -> int:
        return ONES if self._map.access.reserved == "ignored" else self._mask(register)

    def _after_write(self, register: Register, before: int, value: int) -> int:
        mask = self._mask(register)
        if register.write == "one_to_clear":
            return before & ~(value & mask)
        return (before & ~mask) | (value & mask)

    # ---- Accesses ----

    def _write(self, offset: int, value: int) -> None:
        self._device.run([Access(offset, value)])

    def _all(self) -> dict[int, int]:
        offsets = list(self._by_offset)
        values = self._device.run([Access(offset) for offset in offsets])
        return dict(zip(offsets, values, strict=True))

    def _restore(self, register: Register) -> None:
        if register.write == "store":
            value = self._initial[register.offset] & self._allowed(register)
            self._write(register.offset, value)

    def _restore_all(self) -> None:
        """Restore the registers of a device that may have answered wrongly."""
        self._clear()
        for register in self._keeping():
            self._restore(register)

    def _clear(self) -> None:
        if self._map.clear:
            register, part = self._map.place(self._map.clear)
            self._write(register.offset, 1 << (part.lowest_bit if part else 0))

    def _has_error(self) -> bool:
        return self._bits_of(self._map.error) != 0

    def _bits_of(self, text: str) -> int:
        """Read a register or a field, such as `STATUS.ERROR`, without shifting the bits."""
        register, part = self._map.place(text)
        (value,) = self._device.run([Access(register.offset)])
        return value & (part.mask if part else ONES)

    # ---- Comparisons ----

    def _patterns(self, register: Register, allowed: int) -> None:
        values = list(dict.fromkeys(pattern & allowed for pattern in PATTERNS))
        offset = register.offset
        accesses = [a for value in values for a in (Access(offset, value), Access(offset))]
        before, wrong, example = self._initial[offset], 0, ""
        for value, read in zip(values, self._device.run(accesses), strict=True):
            expected = self._after_write(register, before, value)
            wrong |= read ^ expected
            if read != expected and not example:
                example = (f"{number(read)} instead of {number(expected)} after a write of "
                           f"{number(value)}")  # fmt: skip
            before = expected if register.write == "store" else read
        if register.write == "one_to_clear":
            self._initial[offset] = before  # cleared now, though set after power-on
        if wrong:
            kept = "" if wrong & self._mask(register) else ", which a write does not change,"
            bits = bits_text(register, wrong)
            self._say(register.name, f"{place(register)}, {bits}{kept}: {example}")

    def _others_unchanged(self, what: str, about: str, offset: int | None = None) -> None:
        """Compare all registers but one with their power-on values."""
        changed = False
        for other, value in self._all().items():
            if other != offset and value != self._initial[other]:
                register = self._by_offset[other]
                changed = True
                said = difference(register, "", self._initial[other], value)
                self._say(f"{about} changes {register.name}", f"{what} changes {said}")
        if changed:
            self._restore_all()
            self._initial = self._all()  # report a lasting change only once

    def _answered(self, what: str, about: str, answer: Answer) -> None:
        if answer != "error":
            return
        at = self._map.error
        if not self._has_error():
            self._say(f"{about} {what[:7]}", f"{what} is no error: {at} is 0")
        self._clear()
        if self._has_error():
            raise DeviceError(
                f"{at} is not 0 after a write to {self._map.clear}, which follows {what}; "
                "the rest was not compared"
            )

    def _read_answered(self, offset: int, what: str, about: str, answer: Answer) -> None:
        (value,) = self._device.run([Access(offset)])
        if answer != "ignored" and value != 0:
            self._say(f"{about} gives", f"{what} gives {number(value)} instead of 0")
        self._answered(what, about, answer)

    def _compare_resets(self, values: Mapping[int, int], when: str) -> None:
        for offset, value in values.items():
            register = self._by_offset[offset]
            expected, where = register.reset, ""
            if register.configured:  # an unknown value must stay as after power-on
                expected = self._configured.get(register.name, self._at_first[offset])
                if register.name in self._configured:
                    where = f", as {register.configured} of accel.toml says,"
            if value != expected:
                said = difference(register, f"{when}{where}", expected, value)
                self._say(f"value of {register.name}", said)

    def _compare_idle(self, when: str) -> None:
        job = self._map.job
        if job is None:
            return
        for text in filter(None, dict.fromkeys((job.busy, job.error))):
            register, _ = self._map.place(text)
            value = self._bits_of(text)
            if register.volatile and value:
                self._say(
                    f"idle {text}",
                    f"{text} of {place(register)} is {number(value)} {when}, though no job was "
                    "started",
                )

    def _say(self, about: str, sentence: str) -> None:
        if about not in self._said and len(self.found.differences) < MOST_SENTENCES:
            self._said.add(about)
            self.found.differences.append(sentence)


def _command_registers(registers: RegisterMap) -> set[str]:
    job = registers.job
    texts: Iterable[str] = (registers.error, registers.clear)
    if job is not None:
        texts = (*texts, job.start, job.stop, job.busy, job.error)
    return {registers.place(text)[0].name for text in texts if text}


def number(value: int) -> str:
    """Return a value of a register as text."""
    if isinstance(value, BusError):
        return f"the bus error {value.response}"
    return f"0x{value:08X}"


def place(register: Register) -> str:
    """Return name and offset of a register."""
    return f"{register.name} (0x{register.offset:03X})"


def bits_text(register: Register, bits: int) -> str:
    """Return a set of bits as text, with the names of affected fields."""
    fields = [each.name for each in register.field if each.mask & bits]
    if bits == 0xFFFFFFFF:
        return "all bits"
    ranges = _ranges(bits)
    word = "bit" if len(ranges) == 1 and ranges[0].isdigit() else "bits"
    return f"{word} {', '.join(ranges)}" + (f" ({', '.join(fields)})" if fields else "")


def difference(register: Register, what: str, expected: int, found: int) -> str:
    """Return a clause about the differing bits of a register, with expected and found values."""
    is_read = not isinstance(found, BusError)
    bits = f", {bits_text(register, expected ^ found)}" if is_read else ""
    what = f" {what}" if what else ""
    return f"{place(register)}{bits}:{what} {number(found)} instead of {number(expected)}"


def _ranges(bits: int) -> list[str]:
    """Return the runs of ones of a word, such as `31:16` and `3`."""
    runs = ((31 - each.start(), 32 - each.end()) for each in re.finditer("1+", f"{bits:032b}"))
    return [str(first) if first == last else f"{first}:{last}" for first, last in runs]
