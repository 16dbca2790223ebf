# SPDX-License-Identifier: Apache-2.0
"""Several CPUs of one export; macros of the C compiler choose one CPU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from umakit.cpu.description import GENERIC, Cpu, find_cpu
from umakit.errors import InputError

FORCING = "UMAKIT_CPU_"
"""Start of the macro that chooses a CPU whatever the compiler's macros are."""


@dataclass(frozen=True)
class CpuChoice:
    """A CPU of an export for several CPUs.

    Attributes:
        suffix: ending of the names of the CPU's files.
    """

    cpu: Cpu
    suffix: str

    @property
    def forced_by(self) -> str:
        """The macro that chooses this CPU, whatever the compiler's macros are."""
        return f"{FORCING}{self.suffix.upper()}"


def cpu_texts(text: str) -> list[str]:
    """Split a value of `--cpu` into the names and paths of its CPUs.

    An existing file whose path has a comma is one CPU.
    """
    if "," not in text or Path(text).is_file():
        return [text]
    return [each.strip() for each in text.split(",")]


def choices_of(cpus: Sequence[Cpu]) -> list[CpuChoice]:
    """Return CPUs in the order in which the preprocessor tests their macros, `generic` last.

    Wider vectors come first, then more macros, then the order of the command line.
    """
    for number, cpu in enumerate(cpus):
        if any(other.name == cpu.name for other in cpus[:number]):
            raise InputError(f"--cpu names {cpu.name} twice", fix="name each CPU once")
        if cpu.name != GENERIC and not cpu.macros:
            raise InputError(
                f"no macro tells a compiler that it compiles for {cpu.name}",
                where="--cpu",
                fix="name its macros in its TOML file, or export it alone",
            )
    ordered = sorted(cpus, key=_order)
    for number, cpu in enumerate(ordered):
        earlier = next((e for e in ordered[:number] if {*e.macros} <= {*cpu.macros}), None)
        if earlier is not None and cpu.name != GENERIC:
            raise InputError(
                f"macros do not tell {cpu.name} from {earlier.name}: a compiler for it defines "
                f"{', '.join(earlier.macros)}, too",
                where="--cpu",
                fix="name one of them, or add a macro to its TOML file",
            )
    return [CpuChoice(cpu, c_suffix(cpu)) for cpu in ordered]


def _order(cpu: Cpu) -> tuple[bool, int, bool, int]:
    has_products = bool(cpu.dot_products)
    return cpu.name == GENERIC, -cpu.vector_bytes, not has_products, -len(cpu.macros)


def c_suffix(cpu: Cpu) -> str:
    """Return the name of a CPU as a part of identifiers and file names."""
    return re.sub(r"[^a-z0-9]", "_", cpu.name)


def find_cpus(text: str) -> list[Cpu]:
    """Return the CPUs of an export in the order in which `--cpu` names them."""
    cpus = [find_cpu(each) for each in cpu_texts(text)]
    if len(cpus) > 1:
        choices_of(cpus)
    return cpus
