# SPDX-License-Identifier: Apache-2.0
"""Accesses to registers of a device, and the result of a check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol


class Access(NamedTuple):
    """A read (`value` None) or a write of a register, at an offset in bytes."""

    offset: int
    value: int | None = None


class BusError(int):
    """Value of a read that ended in a bus error with this name; on a board, all ones."""

    response: str

    def __new__(cls, value: int, response: str) -> BusError:
        found = super().__new__(cls, value)
        found.response = response
        return found


class Registers(Protocol):
    """Registers of a device."""

    def run(self, accesses: Sequence[Access]) -> list[int]:
        """Make accesses in order; return the values of the reads."""

    def reset(self) -> bool:
        """Bring the device into its power-on state; return whether it supports that."""


@dataclass
class RegisterReport:
    """The result of a check of registers.

    Attributes:
        map: path of the map, or its name and owner.
        left_out: names of registers that change by themselves, which were not compared.
        unknown: keys of `[access]` that the map lacks: these accesses were not made.
    """

    map: str
    registers: int
    accesses: int = 0
    differences: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    @property
    def summary(self) -> str:
        compared = self.registers - len(self.left_out)
        text = f"registers: {compared} of {self.registers} compared with {self.map}"
        count = len(self.differences)
        text += f", {self.accesses:,} accesses, {count} difference{'' if count == 1 else 's'}"
        if self.unknown:
            text += f"; not tried, because [access] does not say it: {', '.join(self.unknown)}"
        return text

    def as_json(self) -> dict[str, Any]:
        return dict(vars(self))
