# SPDX-License-Identifier: Apache-2.0
"""A check of the registers of a backend's device, before any layer runs on it."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from umakit import sim
from umakit.codegen.driver_names import is_simulated, kit_simulator
from umakit.devices import HOST, Device
from umakit.errors import RegisterMapError, short_path
from umakit.files.staging import temporary_folder
from umakit.machine.accelerator_config import AcceleratorConfig
from umakit.machine.registers.register_map import RegisterMap, read_register_map
from umakit.registration.backend import Backend
from umakit.registration.buffer_alignment import MAP_FILE, check_map_alignment
from umakit.testing.registers.comparison import compare
from umakit.testing.registers.session import opened

SECONDS = 600.0
"""After which a device is not asked any more."""


@dataclass
class RegisterReport:
    """What a check of registers found.

    Attributes:
        map: its path, or its name and whose it is.
        registers: how many it has.
        accesses: how many were made.
        differences: a sentence each.
        left_out: names of registers that change by themselves, which were not compared.
        unknown: keys of `[access]` that the map does not have: these accesses were not made.
    """

    map: str
    registers: int
    accesses: int = 0
    differences: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    @property
    def summary(self) -> str:
        """What was compared, in a line."""
        compared = self.registers - len(self.left_out)
        text = f"registers: {compared} of {self.registers} compared with {self.map}"
        count = len(self.differences)
        text += f", {self.accesses:,} accesses, {count} difference{'' if count == 1 else 's'}"
        if self.unknown:
            text += f"; not tried, because [access] does not say it: {', '.join(self.unknown)}"
        return text

    def as_json(self) -> dict[str, Any]:
        """Return it with stable keys."""
        return dict(vars(self))


def map_of(backend: Backend) -> tuple[RegisterMap, str] | None:
    """Return the register map of a backend's simulated device, and its name; None if it has none.

    It is `registers.toml` in the backend's folder, or that of umakit's simulator that answers.

    Raises:
        RegisterMapError: the map cannot be read, or is not sound.
        AcceleratorConfigError: `accel.toml` cannot be used.
    """
    path, kind = backend.folder / MAP_FILE, kit_simulator(backend)
    name = short_path(path)
    if not is_simulated(backend):
        return None
    if not path.is_file():
        if kind is None:
            return None
        path = sim.source_directory() / "registers" / f"{kind}.toml"
        name = f"{kind}.toml of umakit"
    registers = _read(path, name, path.stat().st_mtime_ns if path.exists() else 0)
    if kind is None:
        check_map_alignment(registers, backend, path)
    return registers, name


@functools.lru_cache(maxsize=8)
def _read(path: Path, name: str, changed_at: int) -> RegisterMap:
    """Return the map of a file, which is read once for each time at which it was changed."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise RegisterMapError(what, where=name) from None
    except UnicodeDecodeError:
        raise RegisterMapError("is not a text in UTF-8", where=name) from None
    return read_register_map(text, name)


def configured_values(
    registers: RegisterMap, configuration: AcceleratorConfig, where: str
) -> dict[str, int]:
    """Return the values that `accel.toml` has of a device's own registers, by register.

    Raises:
        RegisterMapError: there is no such number in `accel.toml`.
    """
    found = {}
    for register in registers.registers:
        if isinstance(register.configured, str):
            value = _figure(configuration, register.configured)
            if value is None:
                raise RegisterMapError(
                    f"{register.name}: accel.toml has no number {register.configured}",
                    where=where,
                    fix="write SECTION.KEY, memory.NAME.KEY, or configured = true",
                )
            found[register.name] = value
    return found


def _figure(configuration: AcceleratorConfig, path: str) -> int | None:
    """Return a number of a configuration; None if there is none."""
    section, *keys = path.split(".")
    value: object = getattr(configuration, section, None)
    if section == "scratchpad":
        value = next(iter(configuration.scratchpads), None)
    elif section == "memory":
        name, keys = keys[0], keys[1:]
        value = next((each for each in configuration.memory if each.name == name), None)
    for key in keys:
        value = getattr(value, key, None)
    return value if isinstance(value, int) else None


def check_registers(
    backend: Backend, *, seconds: float = SECONDS, device: Device = HOST
) -> RegisterReport | None:
    """Compare the registers of a backend's simulated device with their map.

    Args:
        backend: the backend.
        seconds: after which its program is ended.
        device: this machine, with the simulator or the design of the backend.

    Returns:
        What was found; None if the backend has no simulated device, or no register map.

    Raises:
        RegisterMapError: the map is not sound.
        BuildError: a file of the simulator does not compile.
        LibraryError: a file is missing, or cannot be read.
        AcceleratorConfigError: `accel.toml` cannot be used.
    """
    found = map_of(backend)
    if found is None:
        return None
    registers, name = found
    configured = configured_values(registers, backend.configuration, name)
    with (
        temporary_folder("umakit-registers-") as folder,
        opened(backend, folder, seconds, device) as session,
    ):
        compared = compare(session, registers, configured)
        return RegisterReport(
            name, compared.registers, session.accesses, compared.differences,
            compared.left_out, compared.unknown,
        )  # fmt: skip
