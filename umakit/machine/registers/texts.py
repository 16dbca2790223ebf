# SPDX-License-Identifier: Apache-2.0
"""Files made of a register map: a C header, a SystemVerilog package, a table in Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from umakit.errors import RegisterMapError
from umakit.machine.registers.parts import BitField
from umakit.machine.registers.register_map import Register, RegisterMap, Word
from umakit.text.rendering import Code, render

ACCESS = {"ro": "read only", "wo": "write only", "rw": "read and write"}


def register_header(registers: RegisterMap, *, prefix: str, notice: Sequence[str]) -> str:
    """Return the text of a C header: names begin with `prefix`, and the first comment with
    `notice`."""
    lines = [
        *notice,
        *(["", *textwrap.wrap(registers.description, 75)] if registers.description else []),
    ]
    return render(
        "registers/registers.h.j2",
        prefix=prefix,
        notice=Code("\n".join(f" * {line}".rstrip() for line in lines)),
        size=Code(hexadecimal(registers.size, 4)),
        registers=registers.registers,
        words=registers.descriptor.word if registers.descriptor is not None else [],
        access=ACCESS,
        hexadecimal=hexadecimal,
        block_comment=_block_comment,
    )


def hexadecimal(value: int, digits: int) -> Code:
    """Return an unsigned hexadecimal C number."""
    return Code(f"0x{value:0{digits}X}u")


def _block_comment(*texts: str) -> Code:
    text = " ".join(each.strip() for each in texts if each.strip())
    line = f"/* {text} */"
    if len(line) <= 78:
        return Code(line)
    return Code("/*\n" + "\n".join(f" * {each}" for each in textwrap.wrap(text, 75)) + "\n */")


LINE = 100
INDENTATION = 4

_DIRECTIVE = re.compile(r"(?=(?:verilator|synopsys|synthesis|pragma|cadence|ambit|xilinx)\b)", re.I)
"""Start of a comment that tools take as a directive."""


def package_name(name: str) -> str:
    """Return the package name of a device; the file has this name and `.sv`."""
    return f"{name}_registers_pkg"


def register_package(
    registers: RegisterMap, *, package: str, notice: Sequence[str], where: str
) -> str:
    """Return the text of a SystemVerilog package, clean under `verilator --lint-only -Wall`."""
    lines = [*notice, *(["", *_wrapped(registers.description, 0)] if registers.description else [])]
    text = render(
        "registers/package.sv.j2",
        package=package,
        notice=Code("\n".join(f"// {line}".rstrip() for line in lines)),
        size=registers.size,
        registers=registers.registers,
        words=registers.descriptor.word if registers.descriptor is not None else [],
        access=ACCESS,
        hexadecimal=_hexadecimal,
        comment=_comment,
    )
    names = re.findall(r"^ +localparam .*?(\w+) = ", text, re.MULTILINE)
    twice = next((each for each in names if names.count(each) > 1), None)
    if twice is not None:
        raise RegisterMapError(
            f"two parts of the map are called {twice} in the SystemVerilog package",
            where=where,
            fix="give one of them another name",
        )
    return text


def _hexadecimal(value: int) -> Code:
    digits = f"{value:08X}"
    return Code(f"32'h{digits[:4]}_{digits[4:]}")


def _wrapped(text: str, indentation: int) -> list[str]:
    lines = textwrap.wrap(text.strip(), LINE - indentation - len("// "))
    return [
        _DIRECTIVE.sub("... ", line, count=1) if _DIRECTIVE.match(line) else line for line in lines
    ]


def _comment(*texts: str) -> Code:
    """Return a comment of several lines; the template indents the first line."""
    text = " ".join(each.strip() for each in texts if each.strip())
    space = " " * INDENTATION
    return Code(f"\n{space}".join(f"// {line}" for line in _wrapped(text, INDENTATION)))


HEADINGS = ("offset", "name", "bits", "access", "after reset", "meaning")

ANSWERS = {
    "ignored": "is ignored: a write changes nothing, and a read gives anything",
    "zero": "has no effect: a write changes nothing, and a read gives 0",
    "error": "is an error: a write changes nothing, a read gives 0, and {error} is not 0 until 1 "
    "is written to {clear}",
}

WRITES = {
    "store": "",
    "one_to_clear": "A write clears the bits that are 1.",
    "command": "A write is a command.",
}


def register_table(registers: RegisterMap) -> str:
    """Return a register map in Markdown, without a heading: paragraphs, and a table or two."""
    parts = [_paragraph(registers.description), *_answers(registers), _registers(registers)]
    if registers.descriptor is not None:
        alignment = registers.descriptor.alignment
        parts += [
            f"A job is described by words in memory, at a multiple of {alignment} bytes, whose "
            f"address is written to `{registers.descriptor.register_name}`:",
            _table(
                [("offset", "name", "bits", "meaning")]
                + [
                    (offset, name, bits, meaning)
                    for number, word in enumerate(registers.descriptor.word)
                    for offset, name, bits, _, _, meaning in _rows(word, _offset(4 * number))
                ]
            ),
        ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _registers(registers: RegisterMap) -> str:
    rows = [row for each in registers.registers for row in _rows(each, _offset(each.offset))]
    return _table([HEADINGS, *rows])


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def _rows(word: Word, offset: str) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a word, of its fields, and of its values."""
    access = reset = ""
    more: list[str] = []
    if isinstance(word, Register):
        access = ACCESS[word.access]
        own = f"`{word.configured}`" if isinstance(word.configured, str) else "the device's own"
        reset = own if word.configured else _number(word.reset)
        more = [WRITES[word.write]]
        if word.volatile:
            more.append("Changes by itself.")
        if word.access != "ro" and word.writable is not None:
            more.append(f"A write changes the bits {_number(word.writable)}.")
    more.append(_escaped(word.sentence))
    yield offset, f"`{word.name}`", "", access, reset, _text(word.description, *more)
    for field in sorted(word.field, key=lambda each: each.lowest_bit):
        present = f"Not there if `{field.present}` is 0." if field.present else ""
        name = f"`{word.name}.{field.name}`"
        more = [present, _escaped(field.sentence)]
        yield "", name, bits_of(field), "", "", _text(field.description, *more)
    for value in word.value:
        name = f"`{word.name} = {value.name}`"
        yield "", name, "", "", "", f"{value.value}. {_escaped(value.description)}".strip()


def bits_of(field: BitField) -> str:
    """Return the bits of a field as a text, such as `15:8`."""
    if field.width == 1:
        return str(field.lowest_bit)
    return f"{field.lowest_bit + field.width - 1}:{field.lowest_bit}"


def _answers(registers: RegisterMap) -> Iterator[str]:
    """Yield the answers of a device to accesses that a driver should not make."""
    access = registers.access
    below = f"0x{registers.size_of_holes:X}"
    answers = {
        f"An access of an offset below `{below}` without a register": access.holes,
        "A write of what is read only, or a read of what is write only,": access.wrong,
    }
    of_error = {"error": f"`{registers.error}`", "clear": f"`{registers.clear}`"}
    lines = [
        f"- {what} {ANSWERS[answer].format(**of_error)}."
        for what, answer in answers.items()
        if answer
    ]
    if access.reserved == "ignored":
        lines.append("- Ones in bits that a write does not change are ignored.")
    elif access.reserved == "error":
        lines.append(
            "- A write of ones to bits that a write does not change is an error: it changes "
            f"nothing, and {of_error['error']} is not 0 until 1 is written to "
            f"{of_error['clear']}."
        )
    if access.outside == "error":
        lines.append(
            "- A command that uses a number beyond those that drivers write is an error: "
            f"{of_error['error']} is not 0 until 1 is written to {of_error['clear']}."
        )
    if access.busy == "kept":
        lines.append("- Registers may be written for the next command while an engine works.")
    if lines:
        yield "\n".join(lines)


def _offset(value: int) -> str:
    return f"`0x{value:03X}`"


def _number(value: int) -> str:
    return f"`0x{value:08X}`"


def _text(description: str, *more: str) -> str:
    return " ".join(each for each in (_escaped(description), *more) if each)


def _paragraph(text: str) -> str:
    return _escaped(" ".join(text.split()))


def _escaped(text: str) -> str:
    """Escape the marks of Markdown in a text."""
    return re.sub(r"([\\`*\[\]<>|~]|(?<!\w)_|_(?!\w))", r"\\\1", text)
