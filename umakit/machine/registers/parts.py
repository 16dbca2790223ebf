# SPDX-License-Identifier: Apache-2.0
"""Parts of the registers of a map: names, fields and named numbers."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from umakit.machine.registers.limits import Limits

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


class Part(BaseModel):
    """A named part of a register map."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

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
