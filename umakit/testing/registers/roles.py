# SPDX-License-Identifier: Apache-2.0
"""Roles of a backend's registers in a comparison of model and RTL, from its map."""

from __future__ import annotations

from umakit.machine.registers.register_map import Register
from umakit.registration.backend import Backend
from umakit.testing.registers.register_check import map_of


def _registers(backend: Backend) -> list[Register]:
    found = map_of(backend)
    return [] if found is None else found[0].registers


def volatile_of(backend: Backend) -> list[int]:
    """Return offsets of registers that count or measure, and so differ in time."""
    section = backend.configuration.rtl
    offsets = set(section.registers.volatile) if section is not None else set()
    return sorted(offsets | {each.offset for each in _registers(backend) if each.volatile})


def doorbells_of(backend: Backend) -> list[int]:
    """Return offsets of registers whose writes start commands, as far as the map defines."""
    found = map_of(backend)
    if found is None:
        return []
    registers = found[0]
    start = "" if registers.job is None else registers.job.start.split(".")[0]
    return [
        each.offset
        for each in registers.registers
        if each.access == "wo" or each.write == "command" or each.name == start
    ]


def idle_register(backend: Backend) -> int | None:
    """Return the offset of a register that can be read without effect; None without one.

    The register is the device's identity, or the lowest read-only register that is not 0 after
    power-on.
    """
    found = map_of(backend)
    if found is None:
        return None
    job = found[0].job
    if job is not None and job.identity:
        return found[0].place(job.identity)[0].offset
    fixed = (
        each
        for each in found[0].registers
        if each.access == "ro" and each.reset and not each.volatile
    )
    return min((each.offset for each in fixed), default=None)


def named_register(backend: Backend, offset: int) -> str | None:
    """Return the name of a register in the map; None if there is no map, or a hole."""
    return next((each.name for each in _registers(backend) if each.offset == offset), None)
