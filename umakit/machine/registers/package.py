# SPDX-License-Identifier: Apache-2.0
"""The SystemVerilog package of a register map, for register files in RTL."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from umakit.errors import RegisterMapError
from umakit.machine.registers.header import ACCESS
from umakit.machine.registers.register_map import RegisterMap
from umakit.text.rendering import Code, render

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
    """Return the text of a SystemVerilog package, clean under `verilator --lint-only -Wall`.

    Args:
        registers: the register map.
        package: name of the package, as `package_name` returns it.
        notice: sentences on the origin of the package, for the first comment.
        where: file of the map, for messages.

    Raises:
        RegisterMapError: two parts of the map would have the same name in the package.
    """
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
