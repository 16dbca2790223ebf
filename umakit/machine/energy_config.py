# SPDX-License-Identifier: Apache-2.0
"""The section `[energy]` of an `accel.toml`: picojoules of events, as far as known."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from umakit.text.spelling import closest_or_all

Picojoules = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
MemoryName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=23)]

ACCUMULATOR = "accumulator"
"""Name of the memory of sums of umakit's systolic array."""


class _Figures(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class MemoryEnergy(_Figures):
    """Picojoules of accesses to a memory. The energies of an access and of its bytes add up.

    Attributes:
        read, write: energy of an access of at most the memory's width.
        read_byte, written_byte: energy of each byte of an access.
    """

    read: Picojoules | None = None
    read_byte: Picojoules | None = None
    write: Picojoules | None = None
    written_byte: Picojoules | None = None


class EnergySection(_Figures):
    """Picojoules of events. Events without a figure are not added up, and reported energies say so.

    Attributes:
        mac: energy of a multiply-accumulate of a layer.
        wasted_mac: energy of an unused multiply-accumulate slot of a fold.
        bus_read_byte, bus_written_byte: energy of a byte that the accelerator moves over the bus.
        register_access: energy of a register access of the driver.
        cycle: energy of every cycle of the accelerator's clock.
        idle_cycle: additional energy of a cycle in which no engine works.
        memory: energies of the accelerator's memories, by name.
    """

    mac: Picojoules | None = None
    wasted_mac: Picojoules | None = None
    bus_read_byte: Picojoules | None = None
    bus_written_byte: Picojoules | None = None
    register_access: Picojoules | None = None
    cycle: Picojoules | None = None
    idle_cycle: Picojoules | None = None
    memory: dict[MemoryName, MemoryEnergy] = Field(default={}, max_length=64)


def check_memories(energy: EnergySection, names: Collection[str]) -> None:
    """Refuse figures of memories that an accelerator does not have.

    Args:
        names: names of the accelerator's memories.

    Raises:
        ValueError: a memory is unknown; names the key, and the nearest memory or all memories.
    """
    for name in energy.memory:
        if name not in names:
            fix = closest_or_all(name, sorted(names), "memories") if names else "remove it"
            raise ValueError(f"energy.memory.{name}: there is no such memory; {fix}")
