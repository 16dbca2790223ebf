# SPDX-License-Identifier: Apache-2.0
"""The register writes of a driver, and the resulting constraints on layers."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from umakit.errors import BackendError, RegisterMapError
from umakit.machine.registers.parts import BitField, Operand
from umakit.machine.registers.register_map import ANY, RegisterMap, Word, line_of
from umakit.text.c_text import CText, filled, read_expression
from umakit.tools.scaffold.answers import OPERATORS
from umakit.tools.scaffold.layer.functions import CHANNELS_FIRST, SIGNED, WEIGHTED, DriverFunction

PLAIN = re.compile(r"\$(\w+)(?:\s*([+-])\s*(\d+))?")
"""An argument, or the sum of an argument and a number."""

NEGATED = re.compile(r"-\s*\$(\w+)")

MAP_FILE = "registers.toml"

INT8 = frozenset(name for name in SIGNED if "shift" not in name)
"""Arguments that are numbers of int8."""


@dataclass(frozen=True)
class Setting:
    """A driver's write to a register or field, or to a word of a descriptor.

    Attributes:
        field: the field; None for the whole word.
        text: C expression with `$name`s.
    """

    word: Word
    field: BitField | None
    text: CText

    @property
    def place(self) -> str:
        return self.word.name + (f".{self.field.name}" if self.field else "")

    @property
    def argument(self) -> tuple[str, int, int] | None:
        """The argument that is written directly: name, sign and addend; else None."""
        text = self.text.text.strip()
        if text.startswith("(") and text.endswith(")"):
            text = text[1:-1].strip()
        plain = PLAIN.fullmatch(text)
        if plain is not None:
            return plain[1], 1, int(f"{plain[2] or '+'}{plain[3] or 0}")
        negated = NEGATED.fullmatch(text)
        return None if negated is None else (negated[1], -1, 0)

    @property
    def constant(self) -> str:
        """The text, if it has no argument."""
        return "" if self.text.names else self.text.text

    @property
    def is_signed(self) -> bool:
        """Whether the written value may be negative."""
        if self.field is not None and self.field.signed is not None:
            return self.field.signed
        names = self.text.names
        return bool(SIGNED.intersection(names)) or self.text.text.strip().startswith("-")

    @property
    def range(self) -> tuple[int, int]:
        """The least and the largest number that fits."""
        width = 32 if self.field is None else self.field.width
        return (-(1 << (width - 1)), (1 << (width - 1)) - 1) if self.is_signed else (
            0, (1 << width) - 1,
        )  # fmt: skip


def settings_of(registers: RegisterMap, text: str, function: DriverFunction) -> list[Setting]:
    """Return the writes of a function, in the order of the map."""
    found = []
    for word, field, operand, place, where in _operands(registers, text):
        chosen = _expression(operand, function, place, where)
        if chosen is not None:
            found.append(Setting(word, field, chosen))
    return found


def check_operands(registers: RegisterMap, text: str, functions: list[DriverFunction]) -> None:
    """Refuse texts that belong to no function of the driver."""
    operators = {each.operator for each in functions} | {each.pattern[1:] for each in functions}
    every = {name for each in functions for name in each.operands}
    for _, _, operand, place, where in _operands(registers, text):
        texts = {ANY: operand} if isinstance(operand, str) else operand
        for operator, expression in texts.items():
            if operator not in (*operators, *OPERATORS, ANY):
                near = difflib.get_close_matches(operator, sorted({*operators, *OPERATORS}), n=1)
                raise RegisterMapError(
                    f"{place}: there is no operator {operator!r}",
                    where=where,
                    fix=f"write {near[0]}" if near else f"choose from {', '.join(OPERATORS)}",
                )
            names = _read(expression, place, where).names
            wrong = next((name for name in names if name not in every), None)
            if wrong is not None and operator in (*operators, ANY):
                raise _no_argument(place, wrong, sorted(every), where)
            if operator == ANY and not any(set(names) <= set(f.operands) for f in functions):
                raise RegisterMapError(
                    f"{place}: no operator has all of {', '.join(f'${n}' for n in names)}",
                    where=where,
                    fix='write a text for each operator, such as operand = { dense = "$rows" }',
                )


def _operands(
    registers: RegisterMap, text: str
) -> Iterator[tuple[Word, BitField | None, Operand, str, str]]:
    """Yield each word and field of a map with its operand, its name, and its file and line."""
    for word in registers.words:
        for field, operand in word.parts:
            names = [field.name, word.name] if field else [word.name]
            where = f"{MAP_FILE}:{line_of(text, names)}"
            yield word, field, operand, ".".join(reversed(names)), where


def _expression(operand: Operand, function: DriverFunction, place: str, where: str) -> CText | None:
    texts = {ANY: operand} if isinstance(operand, str) else operand
    own = texts.get(function.pattern[1:], texts.get(function.operator))
    if own is not None:
        read = _read(own, place, where)
        wrong = next((name for name in read.names if name not in function.operands), None)
        if wrong is not None:
            raise _no_argument(place, wrong, function.operands, where)
    elif ANY in texts:
        read = _read(texts[ANY], place, where)
        if not set(read.names) <= set(function.operands):
            return None
    else:
        return None
    pointer = next((name for name in read.names if name in function.pointers), None)
    if pointer is not None and read.text.strip() != f"${pointer}":
        raise RegisterMapError(
            f"{place}: ${pointer} is a tensor, of which a register gets the bus address",
            where=where,
            fix=f'write operand = "${pointer}"',
        )
    return read


def _read(text: str, place: str, where: str) -> CText:
    try:
        return read_expression(text, f"the operand of {place}")
    except BackendError as error:
        raise RegisterMapError(error.what, where=where, fix=error.fix) from None


def _no_argument(place: str, name: str, names: list[str], where: str) -> RegisterMapError:
    near = difflib.get_close_matches(name, names, n=1)
    return RegisterMapError(
        f"{place}: there is no argument ${name}",
        where=where,
        fix=f"write ${near[0]}" if near else f"arguments are {', '.join(f'${n}' for n in names)}",
    )


def named(settings: list[Setting]) -> set[str]:
    return {name for each in settings for name in each.text.names}


def limits_of(function: DriverFunction, settings: list[Setting]) -> dict[str, tuple[int, int]]:
    """Return the limits of arguments that are written to fields of fewer than 32 bits."""
    found: dict[str, tuple[int, int]] = {}
    for each in settings:
        argument = each.argument
        if each.field is None or each.field.width == 32 or argument is None:
            continue
        name, sign, added = argument
        if name == CHANNELS_FIRST or name in function.pointers:
            continue
        ends = sorted(sign * (end - added) for end in each.range)
        low, high = found.get(name, (ends[0], ends[1]))
        found[name] = (max(low, ends[0]), min(high, ends[1]))
    return {
        name: (low, high)
        for name, (low, high) in found.items()
        if name not in INT8 or low > -128 or high < 127
    }


def computed_limits(
    function: DriverFunction, settings: list[Setting]
) -> list[tuple[str, str, int, int]]:
    """Return C text, Python text, least and largest value of fields computed from arguments."""
    found = []
    for each in settings:
        names = set(each.text.names)
        if each.field is None or each.argument is not None or not names <= set(function.numbers):
            continue
        text = python_text(each.text, "n") if names else None
        if text is not None:
            found.append((each.text.text.replace("$", ""), text, *each.range))
    return found


def constraints_of(
    function: DriverFunction, settings: list[Setting], roundings: tuple[str, ...], derived: set[str]
) -> list[str]:
    """Return Python texts of a pattern's arguments, which exclude layers that no register tells."""
    says = named(settings) | derived
    quoted = [f'"{each}"' for each in roundings]
    several = f"({', '.join(quoted)})" if "rounding" in says and len(quoted) > 1 else quoted[0]
    weighted = function.operator in WEIGHTED
    found = []
    if function.pattern != f"q{function.operator}":
        found.append(f'name="{function.pattern}"')
    if function.layout == "NCHW":
        found.append('layouts="NCHW"')
    if weighted or function.operator in ("add", "multiply"):
        found.append(f"rounding={several}")
    if weighted and "scales" not in says:
        found.append("expand_scales=True")
    if "batch" in function.arguments and "batch" in says:
        found.append("batch=None")
    if "stride_y" in function.arguments and not {"stride_y", "stride_x"} <= says:
        found.append("strides=1")
    if "pad_top" in function.arguments and not {"pad_top", "pad_left"} <= says:
        found.append('padding="valid"')
    if {"dilation_y", "dilation_x"} <= set(function.arguments) & says:
        found.append("dilation=None")
    if function.operator == "conv2d" and "groups" in says:
        found.append("groups=None")
    if function.operator == "depthwise":
        found.append("multipliers=None")
    return found


def derived_of(
    function: DriverFunction, settings: list[Setting], registers: RegisterMap
) -> list[tuple[str, str]]:
    """Return name and Python text of numbers of a layer that hardware computes itself."""
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


SUFFIX = re.compile(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b")

ARITHMETIC_OF = (
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod, ast.LShift, ast.RShift, ast.BitAnd, ast.BitOr,
    ast.USub,
)  # fmt: skip


def python_text(text: CText, numbers: str) -> str | None:
    """Return a C text as Python; None if it is more than integers, arguments and arithmetic.

    The arguments are in a dictionary, and at least 0 where the text divides or shifts. The
    operators have the same precedence in both languages.
    """
    try:
        tree = ast.parse(SUFFIX.sub(r"\1", text.text.replace("$", "")), mode="eval")
    except SyntaxError:
        return None
    for node in ast.walk(tree.body):
        is_known = (
            isinstance(node, (*ARITHMETIC_OF, ast.BinOp, ast.UnaryOp, ast.Load))
            or (isinstance(node, ast.Name) and node.id in text.names)
            or (isinstance(node, ast.Constant) and type(node.value) is int)
        )
        if not is_known:
            return None
    return ast.unparse(_Reader(numbers).visit(tree)).replace("'", '"')


class _Reader(ast.NodeTransformer):
    """Replaces arguments by elements of a dictionary, and C's division by Python's."""

    def __init__(self, numbers: str) -> None:
        self._numbers = numbers

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.parse(f"{self._numbers}['{node.id}']", mode="eval").body

    def visit_Div(self, node: ast.Div) -> ast.operator:
        return ast.FloorDiv()
