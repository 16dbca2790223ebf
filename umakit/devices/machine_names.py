# SPDX-License-Identifier: Apache-2.0
"""Names of processors in operating systems, ELF files and TVM."""

from __future__ import annotations

import platform
import re
import subprocess
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from umakit.cpu.description import CPU_INFORMATION
from umakit.errors import BuildError
from umakit.files.compiled_files import MACHINES

SYSTEM_NAMES = {
    "x86-64": r"x86_64|amd64",
    "AArch64": r"aarch64|arm64",
    "Arm": r"arm(?!64).*",
    "RISC-V": r"riscv(32|64)",
    "x86": r"i[3-6]86",
}
"""Outputs of `uname -m`, by the names of `umakit.files.compiled_files.MACHINES`."""


def processor_of(system_name: str) -> str:
    """Return the processor for an operating system's name of it, else the name itself.

    >>> processor_of("armv7l")
    'Arm'
    """
    for name, form in SYSTEM_NAMES.items():
        if re.fullmatch(form, system_name):
            return name
    return system_name


def check_runs_on(program: Path, system_name: str, where: str) -> None:
    """Refuse a program for another processor."""
    try:
        with program.open("rb") as stream:
            machine = MACHINES.get(str(ELFFile(stream)["e_machine"]), "")
    except (OSError, ELFError):
        return
    there = processor_of(system_name)
    if machine and there and machine != there:
        raise BuildError(
            f"the program is for {machine}, this machine is {there} ({system_name})",
            where=where,
            fix="correct the compiler in the device's file, or leave it out: the machine is asked "
            "what it is then",
        )


def version_line(program: str) -> str:
    """Return the first line of a program's version, else its name."""
    try:
        result = subprocess.run(
            [program, "--version"], capture_output=True, text=True, errors="replace", check=False
        )
    except OSError:
        return program
    lines = result.stdout.splitlines()
    return re.sub(r"\s+", " ", lines[0]).strip() if lines else program


def processor_name() -> str:
    """Return the operating system's name of this machine's processor, else its architecture."""
    try:
        text = CPU_INFORMATION.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    name = named[1].strip() if named else platform.processor()
    return name or platform.machine()
