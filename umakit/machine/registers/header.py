# SPDX-License-Identifier: Apache-2.0
"""The C header of a register map: offsets, reset values, fields and named numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from umakit.machine.registers.register_map import RegisterMap
from umakit.text.rendering import Code, render

ACCESS = {"ro": "read only", "wo": "write only", "rw": "read and write"}


def register_header(registers: RegisterMap, *, prefix: str, notice: Sequence[str]) -> str:
    """Return the text of a C header.

    Args:
        registers: the register map.
        prefix: prefix of all names, such as `MY_NPU`.
        notice: sentences on the origin of the header, for the first comment.
    """
    lines = [*notice, *(["", *_wrapped(registers.description)] if registers.description else [])]
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


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 75)


def _block_comment(*texts: str) -> Code:
    text = " ".join(each.strip() for each in texts if each.strip())
    line = f"/* {text} */"
    if len(line) <= 78:
        return Code(line)
    return Code("/*\n" + "\n".join(f" * {each}" for each in _wrapped(text)) + "\n */")
