# SPDX-License-Identifier: Apache-2.0
"""Names of the compiler and the processor in use, for messages."""

from __future__ import annotations

import platform
import re
import subprocess

from umakit.machine.cpu import CPU_INFORMATION


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
