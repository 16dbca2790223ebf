# SPDX-License-Identifier: Apache-2.0
"""Compiler flags of libraries that are scheduled for a CPU."""

from __future__ import annotations

from pathlib import Path

from umakit.devices.device import Device
from umakit.errors import BuildError
from umakit.library.metadata import read_description


def cpu_flags(library: Path, device: Device) -> list[str]:
    """Return the flags with which the C of a library compiles for its CPU.

    Args:
        library: an exported library, a folder or a tar file.
        device: the device that it runs on.

    Raises:
        BuildError: the device is not of the CPU's kind.
    """
    cpu = read_description(library).cpu
    if cpu is None:
        return []
    lacks = cpu.missing_here() if device.is_host else ""
    if not device.is_host and device.processor != cpu.architecture:
        lacks = f"{device.name} is of another architecture"
    if lacks:
        raise BuildError(
            f"the library is for {cpu.name}: {lacks}",
            where=str(library),
            fix="export it with uma compile --cpu generic, or run it where it fits",
        )
    return list(cpu.flags)
