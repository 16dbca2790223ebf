# SPDX-License-Identifier: Apache-2.0
"""Accesses to registers of a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Access(NamedTuple):
    """A read or a write of a register.

    Attributes:
        offset: offset in bytes from the first register, a multiple of 4.
        value: value to write, below 2^32; None for a read.
    """

    offset: int
    value: int | None = None


class BusError(int):
    """Value of a read that ended in a bus error. On a board, the driver reads all ones.

    Attributes:
        response: name of the error, such as `SLVERR`.
    """

    response: str

    def __new__(cls, value: int, response: str) -> BusError:
        found = super().__new__(cls, value)
        found.response = response
        return found


class Registers(Protocol):
    """Registers of a device."""

    def run(self, accesses: Sequence[Access]) -> list[int]:
        """Make accesses in order; return the values of the reads.

        Raises:
            DeviceError: the device failed.
        """

    def reset(self) -> bool:
        """Bring the device into its power-on state; return whether it supports that."""
