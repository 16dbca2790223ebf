# SPDX-License-Identifier: Apache-2.0
"""What a program does, access by access; its lines are in `sim/programs/umakit_programs.h`."""

from __future__ import annotations

from dataclasses import dataclass

ALL_BITS = 0xFFFFFFFF


@dataclass(frozen=True)
class Write:
    """A write of a register: its offset in bytes, and a value of 32 bits."""

    offset: int
    value: int


@dataclass(frozen=True)
class Read:
    """A read of a register: its offset in bytes, and what the model answered in the recording."""

    offset: int
    value: int


@dataclass(frozen=True)
class Wait:
    """A wait for the interrupt, at most so many cycles."""

    cycles: int


@dataclass(frozen=True)
class Map:
    """A buffer that the device gets.

    Attributes:
        address: on the bus.
        direction: 1 if the device reads it, 2 if it writes it, 3 for both.
        data: its content.
    """

    address: int
    direction: int
    data: bytes


@dataclass(frozen=True)
class Unmap:
    """The buffer at a bus address is taken away, when nothing works on it any more."""

    address: int


@dataclass(frozen=True)
class Rest:
    """Both sides come to rest.

    Attributes:
        offset: of the register that the driver polls, in bytes; None if it polls none.
        mask, value: bits of it, and their value when there is no more work.
    """

    offset: int | None = None
    mask: int = 0
    value: int = 0


Access = Write | Read | Wait | Map | Unmap | Rest
