# SPDX-License-Identifier: Apache-2.0
"""A register map in TOML, checked."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from umakit.errors import RegisterMapError
from umakit.machine.config_faults import Section, spelling_of_key
from umakit.machine.registers.parts import (
    WORD,
    BitField,
    Description,
    Elements,
    Limits,
    Name,
    NamedValue,
    Number,
    Operand,
    Part,
    elements_of,
)

Answer = Literal["", "ignored", "zero", "error"]


class Access(Section):
    """Answers of a device to accesses that drivers should not make.

    An answer is one of

    - `ignored`: a write changes nothing, a read gives anything,
    - `zero`: a write changes nothing, a read gives 0,
    - `error`: like `zero`; in addition the register `error` is not 0 until 1 is written to
      `clear`,
    - empty: unknown; nothing relies on the answer.

    Attributes:
        holes: answer to an access of an offset at which there is no register.
        wrong: answer to a write of a read-only register, and to a read of a write-only register.
        reserved: answer to a write of ones to read-only bits. `ignored`: the other bits are
            written; `error`: no bit is written.
        busy: effect of writes while an engine works. `kept`: registers keep the written value for
            the next command, and the work continues with the previous value.
        outside: answer to a command that uses numbers beyond the limits of registers and fields:
            `error`; empty: unknown.
        error, clear: `REGISTER` or `REGISTER.FIELD` to read an error and to clear an error; empty:
            `error` and `stop` of `[job]`.
        size: bytes from the first register to the end of the last hole, or None: the size of all
            registers, rounded up to a power of two.
    """

    holes: Answer = ""
    wrong: Answer = ""
    reserved: Literal["", "ignored", "error"] = ""
    busy: Literal["", "kept"] = ""
    outside: Literal["", "error"] = ""
    error: str = ""
    clear: str = ""
    size: Annotated[int, Field(gt=0, le=1 << 20, multiple_of=4)] | None = None

    @property
    def reports_errors(self) -> bool:
        """Whether an answer is `error`."""
        return "error" in (self.holes, self.wrong, self.reserved, self.outside)

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if self.clear and not self.error:
            raise ValueError("clear is given without error")
        return self


ANY = "any"
"""Key of an operand for all operators with such an operand."""


def _check_offset(offset: int) -> int:
    if offset % 4:
        raise ValueError(f"{offset:#x} is no multiple of 4, and a register has 4 bytes")
    return offset


def _check_folder(path: str) -> str:
    if path and not re.fullmatch(
        r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*", path
    ):
        raise ValueError(f"{path!r} is no folder in that of the backend, such as rtl or hw/rtl")
    return path


WRITTEN = ("job.start", "job.stop", "descriptor.register", "access.clear")
"""References that a driver writes; it reads all others."""


MOST_ALIGNMENT = 4096
"""Bytes; as of `alignment` in `[dma]` of `accel.toml`."""


class Word(Limits, Part):
    """A word of 32 bits: a register, or an element of a job descriptor.

    Attributes:
        operand: C text of the value that a driver writes; `$name` is an argument of the driver. By
            operator, or `any` for all operators with these arguments. For an operator without
            operand, a register is not written, and a word of a descriptor is 0.
        points_to: element type of a buffer, if the word is the buffer's bus address; `least` and
            `highest` then limit the elements. Empty for no buffer, or if the operand names the
            buffer.
        field, value: bit fields, and named numbers.
    """

    operand: Operand = ""
    points_to: Elements = ""
    field: list[BitField] = Field(default=[])
    value: list[NamedValue] = Field(default=[])

    @property
    def elements(self) -> Elements:
        """Element type of the buffer by `points_to` or the operand; empty without a buffer."""
        return self.points_to or elements_of(self.operand)

    @property
    def sentence(self) -> str:
        if not self.points_to:
            return super().sentence
        return f"Driver: address of {self.points_to}{f', {self.limits}' if self.limits else ''}."

    @property
    def parts(self) -> list[tuple[BitField | None, Operand]]:
        """The written values: fields with their operands, or None with the word's operand."""
        fields: list[tuple[BitField | None, Operand]] = [
            (each, each.operand) for each in self.field if each.operand
        ]
        return [(None, self.operand)] if self.operand else fields

    @model_validator(mode="after")
    def _sound(self) -> Self:
        _require_unique(
            f"field or value name in {self.name}",
            [*(each.name for each in self.field), *(each.name for each in self.value)],
        )
        _require_unique(f"value in {self.name}", [str(each.value) for each in self.value])
        taken = 0
        for each in self.field:
            if taken & each.mask:
                raise ValueError(f"{self.name}.{each.name} overlaps another field")
            taken |= each.mask
        if self.field and self.has_limits:
            raise ValueError(f"{self.name} has fields: give limits of these")
        if self.operand and any(each.operand for each in self.field):
            raise ValueError(f"{self.name} has an operand, and so has one of its fields")
        return self


class Register(Word):
    """A register.

    Attributes:
        access: `ro`, `wo` or `rw`.
        writable: bits that a write changes; None for the bits of the fields, or for all bits of a
            register without fields or with an operand of its own.
        write: effect of a write: store the bits, clear the bits that are 1, or start a command.
        volatile: whether the register changes by itself, such as a running counter.
        configured: whether the value after power-on is the device's own, such as a size, and not
            `reset`; a text is the key of `accel.toml` with the value, such as `array.rows`,
            `memory.NAME.size`, or `scratchpad.size` of the first scratchpad.
    """

    offset: Annotated[int, Field(ge=0, lt=WORD), AfterValidator(_check_offset)]
    access: Literal["ro", "wo", "rw"]
    reset: Number = 0
    writable: Number | None = None
    write: Literal["store", "one_to_clear", "command"] = "store"
    volatile: bool = False
    configured: bool | Annotated[str, Field(pattern=r"^[a-z]\w*(\.\w+)+$")] = False

    @property
    def writable_mask(self) -> int:
        """The bits that a write changes; 0 for a read-only register."""
        if self.access == "ro":
            return 0
        if self.writable is not None:
            return self.writable
        fields = 0 if self.operand else sum(each.mask for each in self.field)
        return fields or WORD - 1

    @model_validator(mode="after")
    def _writable(self) -> Self:
        if self.access == "ro" and self.parts:
            raise ValueError(f"{self.name} is read only, and has an operand")
        if self.access == "ro" and self.writable:
            raise ValueError(f"{self.name} is read only, and has writable bits")
        return self


class Descriptor(Section):
    """A job as words in memory; a register gets the address of the words."""

    model_config = ConfigDict(populate_by_name=True)

    register_name: Name = Field(alias="register")
    alignment: Annotated[int, Field(ge=4, le=4096)] = 4
    word: list[Word] = Field(min_length=1)

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.alignment & (self.alignment - 1):
            raise ValueError(f"alignment {self.alignment} is not a power of two")
        _require_unique("word", [each.name for each in self.word])
        return self


class Job(Section):
    """Registers with a meaning for the driver, as `REGISTER` or `REGISTER.FIELD`.

    Attributes:
        start: place of the 1 that the driver writes after all operands.
        error: 0 after a successful job, else an `enum umakit_status`.
        busy: not 0 while a job runs; empty if the interrupt alone tells the end of a job.
        stop: place of the 1 that the driver writes after a failure.
        identity: register that the driver compares with its reset value before any write.
    """

    start: str
    error: str
    busy: str = ""
    stop: str = ""
    identity: str = ""


class RegisterMap(Section):
    """A register map.

    Attributes:
        descriptor: the job in memory; None for a job in registers.
        mock: C text, by name, of arguments that no register holds unchanged, for the mock.
        systemverilog: folder for the SystemVerilog package, below the backend's folder; empty for
            no package.
    """

    model_config = ConfigDict(protected_namespaces=())

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")] = "device"
    description: Description = ""
    registers: list[Register] = Field(alias="register", min_length=1)
    job: Job | None = None
    descriptor: Descriptor | None = None
    mock: dict[str, str] = Field(default={})
    systemverilog: Annotated[str, AfterValidator(_check_folder)] = ""
    access: Access = Access()

    @property
    def size(self) -> int:
        """Bytes from the first register to the end of the last one."""
        return max(each.offset for each in self.registers) + 4

    @property
    def size_of_holes(self) -> int:
        """Bytes from the first register to the end of the last hole."""
        return self.access.size or 1 << (self.size - 1).bit_length()

    @property
    def error(self) -> str:
        """Place of the error, as `REGISTER` or `REGISTER.FIELD`; empty if the map has none."""
        return self.access.error or (self.job.error if self.job else "")

    @property
    def clear(self) -> str:
        """Place of the 1 that clears an error; empty if the map has none."""
        return self.access.clear or (self.job.stop if self.job and not self.access.error else "")

    @property
    def words(self) -> list[Word]:
        """The words that a driver writes: of the descriptor, or registers."""
        if self.descriptor is not None:
            return list(self.descriptor.word)
        return [each for each in self.registers if each.parts]

    @property
    def buffer_alignment(self) -> int:
        """Alignment of the addresses of all buffers, in bytes."""
        return max((each.multiple_of for each in self.buffers()), default=1)

    @property
    def _every_word(self) -> list[Word]:
        return [*self.registers, *(self.descriptor.word if self.descriptor else [])]

    def buffers(self) -> list[Word]:
        """Return the words to which a driver writes addresses of buffers."""
        return [each for each in self._every_word if each.elements]

    def place(self, text: str) -> tuple[Register, BitField | None]:
        """Return the register and field of `REGISTER` or `REGISTER.FIELD`.

        Raises:
            KeyError: there is no such register or field.
        """
        name, _, part = text.partition(".")
        register = {each.name: each for each in self.registers}[name]
        return register, {each.name: each for each in register.field}[part] if part else None

    @model_validator(mode="after")
    def _sound(self) -> Self:
        _require_unique("register name", [each.name for each in self.registers])
        homes: dict[int, str] = {}
        for each in self.registers:
            if each.offset in homes:
                what = f"register offset {each.offset:#x} is used twice"
                raise ValueError(f"{what}, by {each.name} and {homes[each.offset]}")
            homes[each.offset] = each.name
        for key, text in self._references():
            try:
                register, _ = self.place(text)
            except KeyError:
                raise ValueError(f"{key}: there is no {text} in the map") from None
            if key in WRITTEN and register.access == "ro":
                raise ValueError(f"{key}: {text} is read only")
            if key not in WRITTEN and register.access == "wo":
                raise ValueError(f"{key}: {text} is write only")
        self._check_limits()
        if self.access.reports_errors and not (self.error and self.clear):
            raise ValueError('access: "error" needs error and clear, to see it and to end it')
        if self.access.size is not None and self.access.size < self.size:
            raise ValueError(f"access.size: registers need {self.size} bytes")
        if self.descriptor is not None:
            written = [each.name for each in self.registers if each.parts]
            if written:
                raise ValueError(f"{written[0]} has an operand, and there is a descriptor for them")
        return self

    def limited(self) -> Iterator[tuple[Word, BitField | None, Limits]]:
        """Yield each limited word with None, and with each limited field."""
        for word in self._every_word:
            if word.has_limits or word.points_to:
                yield word, None, word
            yield from ((word, each, each) for each in word.field if each.has_limits)

    def _check_limits(self) -> None:
        for buffer in self.buffers():
            step = buffer.multiple_of
            if step & (step - 1) or step > MOST_ALIGNMENT:
                raise ValueError(
                    f"{buffer.name}: multiple_of of a buffer is {step}; its address can be a "
                    f"multiple of a power of two, {MOST_ALIGNMENT} at most"
                )
        words = {each.name: each for each in self.registers}
        words_of_job = self.descriptor.word if self.descriptor else []
        for word, field, limits in self.limited():
            name = f"{word.name}.{field.name}" if field else word.name
            if isinstance(word, Register) and word.access == "ro":
                raise ValueError(f"{name} is read only: a driver writes nothing there")
            others = {each.name: each for each in words_of_job} if word in words_of_job else {}
            for text in limits.references:
                register, _, part = text.partition(".")
                found: Word | None = others.get(register) or words.get(register)
                if found is None or (part and part not in {each.name for each in found.field}):
                    raise ValueError(f"{name}: there is no {text} in the map")

    def _references(self) -> Iterator[tuple[str, str]]:
        if self.job is not None:
            yield from ((f"job.{key}", text) for key, text in self.job.model_dump().items() if text)
        if self.descriptor is not None:
            yield "descriptor.register", self.descriptor.register_name
        for key, text in (("error", self.access.error), ("clear", self.access.clear)):
            if text:
                yield f"access.{key}", text
        for register in self.registers:
            for field in register.field:
                if field.present:
                    yield f"{register.name}.{field.name}", field.present


def _require_unique(what: str, values: Iterable[str]) -> None:
    given = list(values)
    for value in given:
        if given.count(value) > 1:
            raise ValueError(f"{what} {value} is used twice")


def read_register_map(text: str, where: str) -> RegisterMap:
    """Read and check a register map."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise RegisterMapError(f"is not valid TOML: {error}", where=where) from None
    try:
        return RegisterMap.model_validate(data)
    except ValidationError as error:
        first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        location = [part for part in first["loc"] if part not in ("str", "dict[str,str]")]
        message = first["msg"].removeprefix("Value error, ")
        key = ".".join(str(part) for part in location if not isinstance(part, int))
        line, fix = _line(text, data, location, message), ""
        if first["type"] == "extra_forbidden":
            message = "there is no such key"
            line = line or _line_of_key(text, str(location[-1]))
            fix = spelling_of_key([str(part) for part in location], RegisterMap)
        raise RegisterMapError(
            f"{key}: {message}" if key else message,
            where=f"{where}:{line}" if line else where,
            fix=fix,
        ) from None


def _line(text: str, data: Any, location: list[str | int], message: str) -> int | None:
    """Return the line of the entry that a message is about; None if unknown."""
    names = []
    for part in location:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            break
        if isinstance(data, Mapping) and isinstance(data.get("name"), str):
            names.append(data["name"])
    return line_of(text, [*reversed(names), *re.findall(r"[A-Z][A-Z0-9_]+", message)])


def _line_of_key(text: str, key: str) -> int | None:
    """Return the number of the only line that sets a key; None if there are several."""
    form = re.compile(rf"\s*{re.escape(key)}\s*=")
    found = [number for number, line in enumerate(text.splitlines(), 1) if form.match(line)]
    return found[0] if len(found) == 1 else None


def line_of(text: str, names: Iterable[str]) -> int | None:
    """Return the line number of `name = "NAME"` for the first of several names."""
    forms = (re.compile(rf"""\s*name\s*=\s*["']{re.escape(name)}["']""") for name in names)
    lines = list(enumerate(text.splitlines(), 1))
    return next((number for form in forms for number, line in lines if form.match(line)), None)
