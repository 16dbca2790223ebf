# SPDX-License-Identifier: Apache-2.0
"""Accesses to registers: what a device is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Access(NamedTuple):
    """A read or a write of a register.

    Attributes:
        offset: in bytes from the first register, a multiple of 4.
        value: what is written, below 2^32; None: a read.
    """

    offset: int
    value: int | None = None


class BusError(int):
    """Value of a read that ended in a bus error. On a board, the driver gets all ones.

    Attributes:
        response: name of the error, such as `SLVERR`.
    """

    response: str

    def __new__(cls, value: int, response: str) -> BusError:
        """Return a read value with the error."""
        found = super().__new__(cls, value)
        found.response = response
        return found


class Registers(Protocol):
    """Registers of a device."""

    def run(self, accesses: Sequence[Access]) -> list[int]:
        """Make accesses in their order; return what the reads give.

        Raises:
            DeviceError: the device failed.
        """

    def reset(self) -> bool:
        """Bring the device into its state after power-on; return whether it can be."""
