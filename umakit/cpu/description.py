# SPDX-License-Identifier: Apache-2.0
"""Descriptions of CPUs: the targets of kernel schedules, with the flags of their compilers.

Each description is a TOML file, one of umakit's in `umakit/cpu/cpus` or one of the user's.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from umakit.errors import InputError
from umakit.machine.config_faults import read_described
from umakit.text.spelling import closest_or_all

FOLDER = Path(__file__).with_name("cpus")

GENERIC, NATIVE = "generic", "native"
"""Names of the default CPU (C99 for any compiler) and of the widest description that this machine
supports."""

MACHINES = {"x86_64": "x86-64", "amd64": "x86-64", "aarch64": "aarch64", "arm64": "aarch64"}
"""Architectures by the names that operating systems use."""

CPU_INFORMATION = Path("/proc/cpuinfo")

MachineFlag = Annotated[
    str, Field(pattern=r"^-(m[a-z0-9][a-z0-9.=+_-]*|ffp-contract=(fast|on|off))$", max_length=100)
]
"""A compiler flag that chooses instructions; a library may come from an untrusted source."""

DotProducts = Literal["", "smlad", "mve", "sdot", "avx2", "vnni", "rvv"]
"""Instructions that sum products of integers; empty for none."""

Macro = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)]


class Cpu(BaseModel):
    """A CPU as a target of kernel schedules.

    Attributes:
        architecture: `x86-64`, `aarch64`, `riscv32`, `riscv64`, `armv6-m`, `armv7-m`, `armv7e-m`,
            `armv8-m`, `armv8.1-m`, or another name; empty for any.
        features: required instruction sets, by their names in Linux' `/proc/cpuinfo`; of
            microcontrollers `dsp`, `fp32`, `fp64` and `mve`; of RISC-V `v`.
        flags: flags of gcc and clang for the CPU.
        macros: macros that the compilers define for these flags; the C checks the macros.
        vector_bytes: width of vector registers in bytes; 0 for none.
        float_registers: number of registers of one float32 each, if too few for the tiles of sums
            of vector kernels; 0 otherwise.
        cache_bytes: size of the second-level cache, or of the only cache, in bytes; 0 for none.
        dot_products: instructions with which integer kernels sum products: `smlad` (Arm DSP),
            `mve` (Arm Helium), `sdot` (Arm dot product), `avx2`, `vnni` (AVX-512), `rvv` (RISC-V
            vectors); empty for none.
        costs: costs of the operations of kernels; None if unknown.
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
        """Whether kernels use vectors."""
        return self.vector_bytes > 0

    @property
    def is_scheduled_for(self) -> bool:
        """Whether kernels differ from the kernels for any CPU."""
        return self.has_vectors or bool(self.dot_products)

    @property
    def is_described(self) -> bool:
        """Whether a library names its CPU: the flags are not any CPU's, or costs are known."""
        return bool(self.flags) or self.costs is not None

    @property
    def layout(self) -> str:
        """The image layout that the kernels prefer; empty for the layout of the model."""
        return "NHWC" if self.dtypes_of_layout else ""

    @property
    def dtypes_of_layout(self) -> tuple[str, ...]:
        """Dtypes of images for which the kernels prefer `layout`."""
        return (
            *(("float32",) if self.has_vectors else ()),
            *(("int8", "uint8") if self.dot_products else ()),
        )

    @property
    def float_lanes(self) -> int:
        """Number of float32 in a vector register; 1 without vectors."""
        return max(1, self.vector_bytes // 4)

    @property
    def register_bytes(self) -> int:
        """Most bytes of sums that a kernel keeps in registers."""
        return self.vector_bytes * self.vector_registers

    def missing_here(self) -> str:
        """Return for people the features that this machine lacks; empty if nothing is known."""
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

    The features of RISC-V are the letters of `isa`, such as `v`.
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
    """Return a CPU by its name, or from a TOML file."""
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
    bases = {name: FOLDER / f"{name}.toml" for name in cpu_names()}
    return read_described(own or bases[text], Cpu, bases, "CPU", shown=text)


def cpu_file(name: str | os.PathLike[str]) -> Path | None:
    """Return the path of a CPU's TOML file; None for a name, which has only small letters, digits
    and hyphens."""
    text = os.fspath(name)
    return None if re.fullmatch(r"[a-z0-9-]+", text) else Path(text)


def _native() -> Cpu:
    known = [find_cpu(each) for each in cpu_names()]
    runnable = [cpu for cpu in known if cpu.architecture and not cpu.missing_here()]
    return max(runnable, key=lambda cpu: (cpu.vector_bytes, len(cpu.features)), default=known[0])


OPERATIONS: Mapping[str, str] = {
    "call": "a call of a kernel",
    "loop": "a loop that is entered, of those that compilers do not unroll whole",
    "turn": "a turn of such a loop",
    "condition": "a condition that is evaluated",
    "load": "a load of a number that is not in a register",
    "store": "a store of a number",
    "address": "a pointer that advances, for each loop that it depends on",
    "parallel_turn": "a turn of a loop in float32 that compilers may turn into vectors",
    "parallel_load": "a load in such a loop",
    "parallel_store": "a store in such a loop",
    "parallel_operation": "an operation in such a loop",
    "integer": "an addition or a bitwise operation of integers",
    "integer_product": "a multiplication of integers",
    "integer_division": "a division of integers",
    "choice": "a comparison, minimum, maximum or selection of integers",
    "wide": "an operation of 64-bit integers",
    "float_addition": "an addition in float32",
    "float_product": "a multiplication in float32",
    "float_division": "a division in float32",
    "float_choice": "a comparison, minimum or maximum in float32",
    "double": "an operation in float64",
    "conversion": "a conversion between kinds of numbers",
    "broadcast": "a number that is copied to all places of a vector",
    "vector_load": "a load of a vector",
    "vector_store": "a store of a vector",
    "vector_operation": "an operation of a vector",
    "products_call": "a call that multiplies windows with blocks of weights",
    "products_block": "a block of weights for all windows at once",
    "products_group": "a group of elements of such a block",
    "products_single_block": "a block of weights for one window",
    "products_single_group": "a group of elements of such a block",
    "results_call": "a call that rescales a row of sums by instructions for it",
    "results_tflm": "a group of results that round as TensorFlow Lite Micro",
    "results_ort": "a group of results that round as ONNX Runtime",
    "plain_results_call": "a call that rescales a row of sums in plain C",
    "plain_results_tflm": "a result that rounds as TensorFlow Lite Micro",
    "plain_results_ort": "a result that rounds as ONNX Runtime",
    "copy_call": "a copy of a part of a window by instructions for it",
    "copied_group": "a group of elements of such a copy",
    "copied_rest": "an element behind the last whole group",
    "plain_copy_call": "a copy of a part of a window in plain C",
    "plain_copied": "an element of such a copy",
    "fill_call": "a window that is filled with the zero point",
    "filled": "an element of 8 bits that is filled",
    "filled_wide": "an element of 16 bits that is filled",
    "depthwise_call": "a call that sums a depthwise window",
    "depthwise_group": "a group of channels of it",
    "depthwise_row": "a row of a group of channels",
    "depthwise_product": "an element of a group of channels",
    "depthwise_rest": "a channel, or a small group, behind the last whole group",
    "depthwise_rest_product": "an element of those",
    "addition_call": "a call that adds two tensors by instructions for it",
    "addition": "a group of elements of them",
}
"""Operations of kernels with a cost. Groups have the width of instructions, see
`umakit.lower.executed.called`."""

FUNCTION = "function."
"""Prefix of the name of an operation that is a call of a C function."""

Factor = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]
Cost = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
FunctionName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=60)]


class CpuCosts(BaseModel):
    """Costs of the operations of kernels on a CPU.

    Attributes:
        cycles_per_instruction: predicted average cycles of an instruction; None if unknown: cycles
            then cannot be predicted from instructions.
        clock_mhz: clock of the CPU in MHz; None if unknown.
        operations: cost of each operation of `OPERATIONS`; a kernel with another operation has no
            known cost.
        functions: cost of calls of C functions, without `umakit_`, such as `exp` or
            `requantize_tflm`; `requantize_tflm_constant` is a requantization by a constant.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    unit: Literal["instructions", "cycles"] = "instructions"
    cycles_per_instruction: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] | None = (
        None
    )
    clock_mhz: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    operations: dict[str, Cost] = {}
    functions: dict[FunctionName, Cost] = {}

    @field_validator("operations")
    @classmethod
    def _have_a_meaning(cls, operations: dict[str, float]) -> dict[str, float]:
        other = [name for name in operations if name not in OPERATIONS]
        if other:
            raise ValueError(f"{other[0]!r} is no operation; docs/cpus.md lists them")
        return operations

    def of(self, executed: Mapping[str, float] | None) -> CpuPrediction:
        """Return the predicted cost of a kernel from the number of executions of each operation, of
        `umakit.lower.executed`; None if unknown."""
        costs = {**self.operations, **{FUNCTION + name: c for name, c in self.functions.items()}}
        if executed is None or any(name not in costs for name in executed):
            return UNPREDICTED
        total = sum(costs[name] * count for name, count in executed.items())
        if self.unit == "cycles":
            return CpuPrediction(None, round(total))
        return CpuPrediction(round(total), self.cycles(total))

    def cycles(self, instructions: float) -> int | None:
        """Return the predicted cycles of a number of instructions; None if unknown."""
        factor = self.cycles_per_instruction
        return None if factor is None or self.unit == "cycles" else round(instructions * factor)


@dataclass(frozen=True)
class CpuPrediction:
    """The predicted cost of a kernel on a CPU."""

    instructions: int | None
    cycles: int | None


UNPREDICTED = CpuPrediction(None, None)
