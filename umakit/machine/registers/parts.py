# SPDX-License-Identifier: Apache-2.0
"""Parts of the registers of a map: names, fields and named numbers."""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from umakit.machine.config_faults import Section
from umakit.machine.formulas import Formula, FormulaError, Language, parse_formula

Elements = Literal["", "int8", "uint8", "int16", "uint16", "int32", "uint32"]

OPERANDS: dict[str, Elements] = {
    "$data": "int8",
    "$weights": "int8",
    "$left": "int8",
    "$right": "int8",
    "$result": "int8",
    "$bias": "int32",
    "$multipliers": "int32",
    "$shifts": "int8",
}
"""Element types of operands by their text."""

ELEMENT_LIMITS = {"$multipliers": (0, (1 << 31) - 1), "$shifts": (-31, 30)}
"""Least and greatest element of driver tensors with a range smaller than their type."""

EXPRESSION = Language(
    {
        ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
        ast.Div: operator.floordiv,
    }, {},
)  # fmt: skip

LONGEST = 200
"""Characters of an expression."""


class _References:
    """All texts `REGISTER` and `REGISTER.FIELD`."""

    def __contains__(self, text: object) -> bool:
        return bool(re.fullmatch(r"[A-Z][A-Z0-9_]*(\.[A-Z][A-Z0-9_]*)?", str(text)))


@functools.cache
def _parsed(text: str) -> Formula:
    try:
        if len(text) <= LONGEST:
            return parse_formula(text, _References(), language=EXPRESSION)
    except FormulaError:
        pass
    raise ValueError(
        f"{text!r} is more than numbers, REGISTER, REGISTER.FIELD, + - * / and brackets"
    )


def _check_expression(text: str) -> str:
    if text:
        _parsed(text)
    return text


Expression = Annotated[str, AfterValidator(_check_expression)]
Limit = Annotated[int, Field(ge=-(1 << 31), lt=1 << 32)]


class Limits(Section):
    """Limits of the number in a register or field when the driver starts work.

    Attributes:
        least, highest: least and largest number; None for the range of the bits. A negative limit
            means two's complement.
        multiple_of: divisor of every number.
        not_above: expression of other registers and fields, an upper limit: numbers, `REGISTER`,
            `REGISTER.FIELD`, `+`, `-`, `*`, `/` (rounded down) and brackets.
        one_of: expressions of the allowed numbers; empty for any number.
    """

    least: Limit | None = None
    highest: Limit | None = None
    multiple_of: Annotated[int, Field(ge=1, lt=1 << 32)] = 1
    not_above: Expression = ""
    one_of: list[Expression] = Field(default=[])

    @property
    def has_limits(self) -> bool:
        """Whether the driver may not write every number."""
        return self.has_range or bool(self.not_above)

    @property
    def has_range(self) -> bool:
        """Whether numbers are limited independently of other registers."""
        is_limited = self.least is not None or self.highest is not None
        return is_limited or self.multiple_of > 1 or bool(self.one_of)

    @property
    def is_signed(self) -> bool:
        """Whether a limit is negative, so that the bits are in two's complement."""
        return any(limit is not None and limit < 0 for limit in (self.least, self.highest))

    @property
    def references(self) -> list[str]:
        """Registers and fields in the expressions."""
        return [name for text in self.expressions for name in sorted(_parsed(text).names)]

    @property
    def expressions(self) -> list[str]:
        """Texts of all expressions."""
        return [*([self.not_above] if self.not_above else []), *self.one_of]

    @property
    def sentence(self) -> str:
        """The limits for people, such as `Driver: -128 to 127.`; empty without limits."""
        return f"Driver: {self.limits}." if self.limits else ""

    @property
    def limits(self) -> str:
        """The limits alone, such as `-128 to 127, not above CLIP_HIGHEST`."""
        parts = []
        if self.one_of:
            parts.append(" or ".join(self.one_of))
        if self.least is not None and self.highest is not None:
            parts.append(f"{self.least} to {self.highest}")
        elif self.least is not None:
            parts.append(f"at least {self.least}")
        elif self.highest is not None:
            parts.append(f"at most {self.highest}")
        if self.multiple_of > 1:
            parts.append(f"a multiple of {self.multiple_of}")
        if self.not_above:
            parts.append(f"not above {self.not_above}")
        return ", ".join(parts)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.least is not None and self.highest is not None and self.least > self.highest:
            raise ValueError(f"least is {self.least}, and highest is {self.highest}")
        if self.is_signed and (self.highest or 0) >= 1 << 31:
            raise ValueError(f"least is negative, and highest is {self.highest}: 32 bits hold less")
        return self


def elements_of(operand: str | dict[str, str]) -> Elements:
    """Return the element type of an operand's buffer; empty if the operand points to no buffer."""
    texts = [operand] if isinstance(operand, str) else list(operand.values())
    found = {OPERANDS.get(text.strip(), "") for text in texts}
    return found.pop() if len(found) == 1 else ""


def element_limits(operand: str | dict[str, str]) -> tuple[int, int] | None:
    """Return least and largest element of an operand's buffer; None for the range of the type."""
    return ELEMENT_LIMITS.get(operand.strip()) if isinstance(operand, str) else None


def value_of(expression: str, value: Callable[[str], int]) -> int | None:
    """Return the value of an expression of registers and fields; None for a division by 0."""

    formula = _parsed(expression)
    try:
        return formula.unlimited({name: value(name) for name in sorted(formula.names)})
    except ZeroDivisionError:
        return None


WORD = 1 << 32


def _check_name(name: str) -> str:
    if not re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
        raise ValueError(f"{name!r} is no name: capital letters, digits and _ only")
    return name


def _check_description(text: str) -> str:
    if re.search(r"\*/|/\*|\?\?/", text) or not text.isprintable():
        raise ValueError(f"{text!r} cannot stand in a comment of C")
    return text


Name = Annotated[str, AfterValidator(_check_name)]
Description = Annotated[str, AfterValidator(_check_description)]
Number = Annotated[int, Field(ge=0, lt=WORD)]

Operand = str | dict[str, str]
"""C text with the `$name`s of a driver's arguments, or texts by operator."""


class Part(Section):
    """A named part of a register map."""

    name: Name
    description: Description = ""


class BitField(Limits, Part):
    """Neighbouring bits of a word.

    Attributes:
        lowest_bit, width: place in the word, in bits.
        operand: value that a driver writes, see `Word`.
        signed: whether the operand is in two's complement; None to tell from its text: zero points,
            clips, shifts and texts that begin with a minus sign are.
        present: name of a register; devices in which this register is 0 do not have the field.
    """

    lowest_bit: Annotated[int, Field(ge=0, le=31)]
    width: Annotated[int, Field(ge=1, le=32)]
    operand: Operand = ""
    signed: bool | None = None
    present: str = ""

    @property
    def mask(self) -> int:
        """The bit mask of the field in its word."""
        return ((1 << self.width) - 1) << self.lowest_bit

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.lowest_bit + self.width > 32:
            raise ValueError(f"field {self.name} does not fit 32 bits")
        for limit in (self.least, self.highest):
            if limit is None:
                continue
            if self.signed is False and limit < 0:
                raise ValueError(f"field {self.name} is not signed, and {limit} is negative")
            is_signed = self.is_signed or bool(self.signed)
            lowest = -(1 << (self.width - 1)) if is_signed else 0
            highest = (1 << (self.width - 1 if is_signed else self.width)) - 1
            if not lowest <= limit <= highest:
                raise ValueError(f"field {self.name} holds {lowest} to {highest}, and no {limit}")
        return self


class NamedValue(Part):
    """One of the numbers that a register takes."""

    value: Number
