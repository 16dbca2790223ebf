# SPDX-License-Identifier: Apache-2.0
"""What the register map of a backend says about registers that a co-simulation compares."""

from __future__ import annotations

from umakit import sim
from umakit.backend.base import UMABackend
from umakit.codegen.driver_names import kit_simulator
from umakit.machine.registers.register_map import RegisterMap, read_register_map

REGISTERS = "registers.toml"


def map_of(backend: UMABackend) -> RegisterMap | None:
    """Return the register map of a backend: its own, or that of the kit's simulator.

    Raises:
        RegisterMapError: the file is wrong.
    """
    path = backend.folder / REGISTERS
    kind = kit_simulator(backend)
    if not path.is_file() and kind is not None:
        path = sim.source_directory() / "registers" / f"{kind}.toml"
    if not path.is_file():
        return None
    return read_register_map(path.read_text(encoding="utf-8"), str(path))


def volatile_of(backend: UMABackend) -> list[int]:
    """Return offsets of registers that count or measure, which differ in time, not in results."""
    registers = map_of(backend)
    section = backend.configuration.rtl
    offsets = set(section.registers.volatile) if section is not None else set()
    if registers is not None:
        offsets |= {each.offset for each in registers.registers if each.volatile}
    return sorted(offsets)


def doorbells_of(backend: UMABackend) -> list[int]:
    """Return offsets of registers whose writes begin commands, as far as the map says."""
    registers = map_of(backend)
    if registers is None:
        return []
    return [each.offset for each in registers.registers if each.write == "command"]


def named_register(backend: UMABackend, offset: int) -> str | None:
    """Return the name of a register in the map; None if there is no map, or a hole."""
    registers = map_of(backend)
    found = () if registers is None else registers.registers
    return next((each.name for each in found if each.offset == offset), None)
