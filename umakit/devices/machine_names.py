# SPDX-License-Identifier: Apache-2.0
"""Processors by what operating systems, ELF files and TVM call them."""

from __future__ import annotations

import re
from pathlib import Path

from umakit.errors import BuildError, LibraryError
from umakit.files.compiled_files import read_compiled

SYSTEM_NAMES = {
    "x86-64": r"x86_64|amd64",
    "AArch64": r"aarch64|arm64",
    "Arm": r"arm(?!64).*",
    "RISC-V": r"riscv(32|64)",
    "x86": r"i[3-6]86",
}
"""What `uname -m` says, by the names of `umakit.files.compiled_files.MACHINES`."""


def processor_of(system_name: str) -> str:
    """Return the processor of a name of an operating system, else the name itself.

    >>> processor_of("armv7l")
    'Arm'
    """
    for name, form in SYSTEM_NAMES.items():
        if re.fullmatch(form, system_name):
            return name
    return system_name


def check_runs_on(program: Path, system_name: str, where: str) -> None:
    """Refuse a program for another processor.

    Args:
        program: an ELF file.
        system_name: what `uname -m` says there.
        where: what messages call the machine.

    Raises:
        BuildError: names both.
    """
    try:
        machine = read_compiled("program.o", program.read_bytes(), str(program)).machine
    except (OSError, LibraryError):
        return
    there = processor_of(system_name)
    if machine is not None and there and machine.name != there:
        raise BuildError(
            f"the program is for {machine.name}, this machine is {there} ({system_name})",
            where=where,
            fix="correct the compiler in the device's file, or leave it out: the machine is asked "
            "what it is then",
        )
