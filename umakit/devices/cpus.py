# SPDX-License-Identifier: Apache-2.0
"""Which CPUs a device runs libraries for, and the compiler flags of these."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from umakit.devices.catalogue import DEVICES
from umakit.devices.device import Device
from umakit.errors import BuildError
from umakit.library.metadata import read_description
from umakit.machine.cpu import Cpu

PROCESSOR_FLAGS = ("-mcpu=", "-march=")
"""Flags that choose a processor or its instructions."""

REPLACED_FLAGS = (*PROCESSOR_FLAGS, "-mfpu=", "-mfloat-abi=", "-mabi=")
"""Flags of a device that those of a CPU replace if they choose a processor."""


def cpu_flags(library: Path, device: Device) -> list[str]:
    """Return the flags with which the C of a library compiles for its CPU.

    Args:
        library: an exported library, a folder or a tar file.
        device: the device that it runs on.

    Raises:
        BuildError: the device does not run code for the CPU.
    """
    cpu = read_description(library).cpu
    if cpu is None:
        return []
    lacks = what_lacks(cpu, device)
    if lacks:
        fitting = [each.name for each in DEVICES if not what_lacks(cpu, each)]
        others = f"run it with --device {' or '.join(fitting)}" if fitting else "run it elsewhere"
        raise BuildError(
            f"the library is for {cpu.name}: {lacks}",
            where=str(library),
            fix=f"{others}, or export it with uma compile --cpu generic",
        )
    return list(cpu.flags)


def device_for(library: Path, device: Device) -> Device:
    """Return a device without the compiler flags that those of a library's CPU replace.

    Whole programs are then for that CPU: one for a Cortex-M3 has software floating point on a
    Cortex-M4, too, and is linked with the C library for it.

    Args:
        library: an exported library, a folder or a tar file.
        device: the device that it runs on.
    """
    cpu = read_description(library).cpu
    if cpu is None or not any(flag.startswith(PROCESSOR_FLAGS) for flag in cpu.flags):
        return device
    kept = [flag for flag in device.architecture if not flag.startswith(REPLACED_FLAGS)]
    return replace(device, architecture=tuple(kept))


def what_lacks(cpu: Cpu, device: Device) -> str:
    """Return what a device lacks to run code for a CPU, for people; empty if it runs it."""
    if device.is_host:
        return cpu.missing_here()
    if cpu.architecture and cpu.architecture not in device.processors:
        runs = " and ".join(device.processors)
        return f"{device.name} runs {f'code for {runs}' if runs else 'only generic C'}"
    has = cpu.features if device.features is None else device.features
    missing = [feature for feature in cpu.features if feature not in has]
    return f"{device.name} has no {', '.join(missing)}" if missing else ""
