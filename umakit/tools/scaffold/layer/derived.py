# SPDX-License-Identifier: Apache-2.0
"""Constraints of what hardware computes itself: `[mock]` in the register map."""

from __future__ import annotations

from collections.abc import Sequence

from umakit.errors import RegisterMapError
from umakit.machine.registers.register_map import RegisterMap
from umakit.text.c_text import filled, read_expression
from umakit.tools.scaffold.layer.arithmetic import python_text
from umakit.tools.scaffold.layer.functions import DriverFunction
from umakit.tools.scaffold.layer.settings import MAP_FILE, Setting


def derived_of(
    function: DriverFunction, settings: Sequence[Setting], registers: RegisterMap
) -> list[tuple[str, str]]:
    """Return numbers of a layer that hardware does not take from the driver.

    Args:
        function: the C function.
        settings: what it writes.
        registers: the map; names in its section `[mock]` are read before, by `mock_of`.

    Returns:
        Name, and what hardware computes as Python with the arguments in a dictionary `n`.

    Raises:
        RegisterMapError: a text is more than arithmetic, so that layers could not be compared.
    """
    found = []
    written = {each.word.name: _operand(each) for each in settings if each.field is None}
    for name, text in registers.mock.items():
        if name not in function.numbers:
            continue
        read = read_expression(text, f"mock.{name}")
        texts = {each: f"${each}" for each in read.names}
        texts |= {each: written[each] for each in read.names if each in written}
        whole = read_expression(filled(read.text, texts), f"mock.{name}")
        python = python_text(whole, "n") if set(whole.names) <= set(function.numbers) else None
        if python is None:
            raise RegisterMapError(
                f"mock.{name}: layers cannot be compared with {text!r}",
                where=MAP_FILE,
                fix="write it with numbers, arguments, registers without fields, and + - * / % << "
                ">> & |",
            )
        found.append((name, python))
    return found


def _operand(setting: Setting) -> str:
    """Return the text of a register as an operand; a name in parentheses would be a cast."""
    text = setting.text.text
    is_name = [text] == [f"${name}" for name in setting.text.names]
    return text if is_name else f"({text})"
