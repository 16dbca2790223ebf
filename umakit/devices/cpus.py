# SPDX-License-Identifier: Apache-2.0
"""Choice of a library's CPU for a device, and the compiler flags of the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from umakit.cpu.description import GENERIC, Cpu
from umakit.cpu.several import CpuChoice
from umakit.devices.catalogue import DEVICES
from umakit.devices.device import Device
from umakit.errors import BuildError
from umakit.library.cpu_sections import section_for
from umakit.library.metadata import load_metadata

PROCESSOR_FLAGS = ("-mcpu=", "-march=")
"""Flags that choose a processor or its instructions."""

REPLACED_FLAGS = (*PROCESSOR_FLAGS, "-mfpu=", "-mfloat-abi=", "-mabi=")
"""Flags of a device that a CPU's flags replace if they choose a processor."""


def description_for(library: Path, device: Device, cpu: str = "") -> dict[str, Any]:
    """Return the section `umakit` of a library's metadata for a device.

    Args:
        cpu: name of a CPU of the library; default: the first CPU that the device supports.
    """
    description: dict[str, Any] = load_metadata(library)["umakit"]
    if cpu:
        return section_for(description, cpu)
    if not description.get("cpus"):
        return description
    lacking = []
    for section in description["cpus"]:
        found = Cpu.model_validate(section["cpu"])
        lacks = what_lacks(found, device)
        if not lacks:
            return section_for(description, found.name)
        lacking.append(f"{found.name}: {lacks}")
    raise BuildError(
        f"the library has no code for {device.name}: {'; '.join(lacking)}",
        where=str(library),
        fix="export it with uma compile --cpu generic, or run it where it fits",
    )


def cpu_flags(library: Path, device: Device, cpu: str = "") -> list[str]:
    """Return the compiler flags of a library's C code for its CPU."""
    description = description_for(library, device, cpu)
    found = _cpu_of(description)
    flags: list[str] = []
    if found is not None:
        _check_runs(found, library, device)
        flags += found.flags
    if description.get("suffix"):
        chosen = CpuChoice(found or Cpu(name=GENERIC), description["suffix"])
        flags.append(f"-D{chosen.forced_by}")
    return flags


def device_for(library: Path, device: Device, cpu: str = "") -> Device:
    """Return a device without the compiler flags that a library's CPU replaces.

    Whole programs are then compiled for that CPU. For example, code for a Cortex-M3 has software
    floating point on a Cortex-M4 too, and is linked with the Cortex-M3's C library.
    """
    found = _cpu_of(description_for(library, device, cpu))
    if found is None or not any(flag.startswith(PROCESSOR_FLAGS) for flag in found.flags):
        return device
    kept = [flag for flag in device.architecture if not flag.startswith(REPLACED_FLAGS)]
    return replace(device, architecture=tuple(kept))


def what_lacks(cpu: Cpu, device: Device) -> str:
    """Return a text about a device's missing features for a CPU; empty if nothing is missing."""
    if device.is_host:
        return cpu.missing_here()
    if cpu.architecture and cpu.architecture not in device.processors:
        runs = " and ".join(device.processors)
        return f"{device.name} runs {f'code for {runs}' if runs else 'only generic C'}"
    has = cpu.features if device.features is None else device.features
    missing = [feature for feature in cpu.features if feature not in has]
    return f"{device.name} has no {', '.join(missing)}" if missing else ""


def _cpu_of(description: Mapping[str, Any]) -> Cpu | None:
    stored = description.get("cpu")
    return None if stored is None else Cpu.model_validate(stored)


def check_one_runs(cpus: Mapping[str, Cpu], device: Device) -> None:
    """Refuse a device that runs code for none of the CPUs of a future library.

    Args:
        cpus: CPUs by their text of `--cpu`.
    """
    lacking = {name: what_lacks(cpu, device) for name, cpu in cpus.items()}
    if not all(lacking.values()):
        return
    fitting = [each.name for each in DEVICES if any(not what_lacks(c, each) for c in cpus.values())]
    raise BuildError(
        f"its code cannot run: {'; '.join(dict.fromkeys(lacking.values()))}",
        where=f"--cpu {','.join(cpus)}",
        fix=f"choose --device {' or '.join(fitting)}, or leave out --cpu"
        if fitting
        else "leave out --cpu",
    )


def _check_runs(cpu: Cpu, library: Path, device: Device) -> None:
    """Refuse a device that does not run code for a CPU."""
    lacks = what_lacks(cpu, device)
    if lacks:
        fitting = [each.name for each in DEVICES if not what_lacks(cpu, each)]
        others = f"run it with --device {' or '.join(fitting)}" if fitting else "run it elsewhere"
        raise BuildError(
            f"the library is for {cpu.name}: {lacks}",
            where=str(library),
            fix=f"{others}, or export it with uma compile --cpu generic",
        )
