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


class Registers(Protocol):
    """Registers of a device."""

    def run(self, accesses: Sequence[Access]) -> list[int]:
        """Make accesses in their order; return what the reads give.

        Raises:
            DeviceError: the device failed.
        """

    def reset(self) -> bool:
        """Bring the device into its state after power-on; return whether it can be."""
