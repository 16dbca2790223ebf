# SPDX-License-Identifier: Apache-2.0
"""Descriptions of CPUs as data: what kernels are scheduled for, and with which flags they compile.

Each description is a TOML file, one of umakit's in `umakit/machine/cpus` or one of the user's.
"""

from __future__ import annotations

import os
import platform
import re
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from umakit.errors import InputError
from umakit.machine.cpu_costs import CpuCosts
from umakit.machine.described_files import read_described
from umakit.text.spelling import closest_or_all

FOLDER = Path(__file__).with_name("cpus")

GENERIC, NATIVE = "generic", "native"
"""The CPU of an export unless another one is chosen: C99 for any compiler. And the description
with the widest vectors that this machine has."""

MACHINES = {"x86_64": "x86-64", "amd64": "x86-64", "aarch64": "aarch64", "arm64": "aarch64"}
"""Architectures by what operating systems call them."""

CPU_INFORMATION = Path("/proc/cpuinfo")

MachineFlag = Annotated[
    str, Field(pattern=r"^-(m[a-z0-9][a-z0-9.=+_-]*|ffp-contract=(fast|on|off))$", max_length=100)
]
"""A compiler flag that chooses instructions; a library may come from an untrusted source."""

DotProducts = Literal["", "smlad", "mve", "sdot", "avx2", "vnni", "rvv"]
"""Instructions that sum products of integers; empty for none."""

Macro = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)]


class Cpu(BaseModel):
    """A CPU, as schedules of kernels see it.

    Attributes:
        name: what `--cpu` calls it.
        description: a sentence for people.
        architecture: `x86-64`, `aarch64`, `riscv32`, `riscv64`, `armv6-m`, `armv7-m`, `armv7e-m`,
            `armv8-m`, `armv8.1-m`, or another name; empty for any.
        features: the instruction sets that it needs: as Linux calls them in `/proc/cpuinfo`; of
            microcontrollers `dsp`, `fp32`, `fp64` and `mve`; of RISC-V `v`.
        flags: flags with which gcc and clang compile for it.
        macros: macros that they then define, which the C checks.
        vector_bytes: width of vector registers in bytes; 0 for none.
        vector_registers: their number.
        float_registers: number of registers of one float32 each, where they are known to be too few
            for tiles of sums that suit vectors; 0 otherwise.
        cache_bytes: size of the second cache, or of the only one, in bytes; 0 for none.
        dot_products: instructions with which integer kernels sum products: `smlad` (Arm DSP),
            `mve` (Arm Helium), `sdot` (Arm dot product), `avx2`, `vnni` (AVX-512), `rvv` (RISC-V
            vectors); empty for none.
        costs: what operations of kernels cost; None if nothing is known.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=60)
    description: str = Field(default="", max_length=200)
    architecture: str = Field(default="", pattern=r"^[a-z0-9.-]*$", max_length=60)
    features: tuple[Macro, ...] = ()
    flags: tuple[MachineFlag, ...] = ()
    macros: tuple[Macro, ...] = ()
    vector_bytes: Annotated[int, Field(ge=0, le=256, multiple_of=4)] = 0
    vector_registers: Annotated[int, Field(ge=0, le=64)] = 0
    float_registers: Annotated[int, Field(ge=0, le=64)] = 0
    cache_bytes: Annotated[int, Field(ge=0, le=2**40)] = 0
    dot_products: DotProducts = ""
    costs: CpuCosts | None = None

    @model_validator(mode="after")
    def _vectors(self) -> Cpu:
        if bool(self.vector_bytes) != bool(self.vector_registers):
            raise ValueError("vector_bytes and vector_registers go together")
        if self.vector_bytes & (self.vector_bytes - 1):
            raise ValueError(f"vector_bytes = {self.vector_bytes} is no power of two")
        return self

    @property
    def has_vectors(self) -> bool:
        """Whether kernels are written with vectors."""
        return self.vector_bytes > 0

    @property
    def is_scheduled_for(self) -> bool:
        """Whether kernels are other ones than those for any CPU."""
        return self.has_vectors or bool(self.dot_products)

    @property
    def is_described(self) -> bool:
        """Whether a library says what it is for: other flags than any CPU's, or costs."""
        return bool(self.flags) or self.costs is not None

    @property
    def layout(self) -> str:
        """The layout of images that its kernels prefer; empty for that of the model."""
        return "NHWC" if self.dtypes_of_layout else ""

    @property
    def dtypes_of_layout(self) -> tuple[str, ...]:
        """Dtypes of images for which its kernels prefer `layout`."""
        return (
            *(("float32",) if self.has_vectors else ()),
            *(("int8", "uint8") if self.dot_products else ()),
        )

    @property
    def float_lanes(self) -> int:
        """Numbers of float32 in a vector register; 1 without vectors."""
        return max(1, self.vector_bytes // 4)

    @property
    def register_bytes(self) -> int:
        """Most bytes of sums that a kernel keeps in registers."""
        return self.vector_bytes * self.vector_registers

    def missing_here(self) -> str:
        """Return what this machine lacks to run its code, for people; empty if nothing is known."""
        here = MACHINES.get(platform.machine().lower(), platform.machine())
        if self.architecture and self.architecture != here:
            return f"this machine is {here}"
        try:
            text = CPU_INFORMATION.read_text(encoding="ascii", errors="replace")
        except OSError:
            return ""
        found = features_in(text)
        if found is None:
            return ""
        missing = [feature for feature in self.features if feature not in found]
        return f"this machine has no {', '.join(missing)}" if missing else ""


def features_in(text: str) -> tuple[str, ...] | None:
    """Return the features that a text like `/proc/cpuinfo` lists; None if it lists none.

    Of RISC-V these are the letters of `isa`, such as `v`.
    """
    found: dict[str, None] = {}
    for line in text.splitlines():
        name, _, value = line.lower().partition(":")
        if name.startswith(("flags", "features")):
            found.update(dict.fromkeys(value.split()))
        elif name.strip() == "isa":
            letters = value.strip().partition("_")[0].removeprefix("rv64").removeprefix("rv32")
            found.update(dict.fromkeys(letters))
    return tuple(found) or None


@cache
def cpu_names() -> tuple[str, ...]:
    """Return the names of umakit's CPUs, `generic` first."""
    names = sorted(path.stem for path in FOLDER.glob("*.toml"))
    return (GENERIC, *(name for name in names if name != GENERIC))


def find_cpu(name: str | os.PathLike[str]) -> Cpu:
    """Return a CPU by its name, or from a TOML file.

    Args:
        name: a name of `cpu_names`, `native` for what this machine has, or the path of a file.

    Raises:
        InputError: there is no such CPU, or the file describes none.
    """
    text = os.fspath(name)
    if text == NATIVE:
        return _native()
    own = cpu_file(name)
    if own is not None and "," in text and not own.is_file():
        raise InputError(
            f"{text!r} names several CPUs", where="--cpu", fix="name one; uma compile takes several"
        )
    if own is None and text not in cpu_names():
        raise InputError(
            f"there is no CPU {text!r}",
            fix=f"{closest_or_all(text, (*cpu_names(), NATIVE), 'CPUs')}, or name a TOML file",
        )
    return _read(own or FOLDER / f"{text}.toml", text)


def cpu_file(name: str | os.PathLike[str]) -> Path | None:
    """Return the file of a CPU that `find_cpu` reads for a user; None for a name, which has only
    small letters, digits and hyphens."""
    text = os.fspath(name)
    return None if re.fullmatch(r"[a-z0-9-]+", text) else Path(text)


def _native() -> Cpu:
    known = [find_cpu(each) for each in cpu_names()]
    runnable = [cpu for cpu in known if cpu.architecture and not cpu.missing_here()]
    return max(runnable, key=lambda cpu: (cpu.vector_bytes, len(cpu.features)), default=known[0])


def _read(path: Path, text: str) -> Cpu:
    bases = {name: FOLDER / f"{name}.toml" for name in cpu_names()}
    return read_described(path, Cpu, bases, "CPU", shown=text)
