# SPDX-License-Identifier: Apache-2.0
"""The accesses of a program; `sim/programs/umakit_programs.h` defines their text form."""

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
    """A read of a register: offset in bytes, and the model's answer in the recording."""

    offset: int
    value: int


@dataclass(frozen=True)
class Wait:
    """A wait for the interrupt, with a maximum number of cycles."""

    cycles: int


@dataclass(frozen=True)
class Map:
    """A buffer that is mapped for the device.

    Attributes:
        address: bus address.
        direction: 1 if the device reads the buffer, 2 if it writes the buffer, 3 for both.
        data: content.
    """

    address: int
    direction: int
    data: bytes


@dataclass(frozen=True)
class Unmap:
    """Unmaps the buffer at a bus address, once the device has finished with it."""

    address: int


@dataclass(frozen=True)
class Rest:
    """Both sides come to rest.

    Attributes:
        offset: offset in bytes of the register that the driver polls; None without polling.
        mask, value: bits of the register, and their value at rest.
    """

    offset: int | None = None
    mask: int = 0
    value: int = 0


Access = Write | Read | Wait | Map | Unmap | Rest
