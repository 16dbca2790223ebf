# SPDX-License-Identifier: Apache-2.0
"""Reading and checking of `accel.toml`, the description of an accelerator."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from umakit import sim
from umakit.errors import AcceleratorConfigError
from umakit.files.documents import is_special
from umakit.machine.config_faults import Section, fault_in_file
from umakit.machine.energy import ACCUMULATOR, EnergySection, check_memories
from umakit.machine.machine_config import MachineSection, Tensor
from umakit.machine.rtl_config import RtlSection
from umakit.machine.simulator_config import SimulatorSection, simulator_files
from umakit.machine.sources_config import SourcesSection

ArrayExtent = Annotated[int, Field(ge=1, le=1024)]
Count = Annotated[int, Field(ge=0, le=2**16)]
DataflowName = Literal["output_stationary", "weight_stationary", "input_stationary"]


ARRAY_FIGURES = ("rows", "columns", "pooling_lanes", "accumulator_bytes")

SIMULATORS = (*sim.KINDS, "own", "rtl", "none")


def _check_simulator(name: object) -> object:
    if name not in SIMULATORS:
        *names, last = map(repr, SIMULATORS)
        expected = {"expected": f"{', '.join(names)} or {last}"}
        raise PydanticCustomError("literal_error", "Input should be {expected}", expected)
    return name


SimulatorName = Annotated[str, BeforeValidator(_check_simulator)]


StatusNumber = Annotated[str, Field(pattern=r"^(-?[1-9][0-9]{0,3}|-?[12][0-9]{4})$")]
Meaning = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[ -~]+$")]


class AcceleratorSection(Section):
    """Name and description of the accelerator.

    `kind = "library"` is a library of C functions for the CPU, which has no array and no device.
    `clock_mhz` is the frequency of its clock, if it is known, to compare times with the CPU.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    description: str = ""
    kind: Literal["", "library"] = ""
    clock_mhz: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None


class ArraySection(Section):
    """The MAC array: rows x columns of multiply-accumulate units.

    A simulator of umakit refuses fields that the simulator does not implement. The header of a
    simulator documents the cycles of each field.

    Attributes:
        drain_cycles: cycles to move the results of a fold out of the array.
        depthwise: whether each column can have its own input.
        pooling_lanes: channels that the pooling stage takes per cycle, 0 for no pooling stage.
        dataflows: dataflows that a job may select; default `[dataflow]`. They must include
            `dataflow`.
        preload: whether a fold is filled and drained while its neighbours compute.
        preload_rows: rows of the stationary operand that enter per cycle with preload.
        pack_columns: whether few output channels are computed for several groups of positions at
            a time.
        accumulator_bytes: size of the memory of int32 accumulators that later jobs can continue
            from, 0 for none.
        setup_cycles: cycles of a job before its first fold, such as checks of its parameters.
    """

    rows: ArrayExtent
    columns: ArrayExtent
    dataflow: DataflowName = "output_stationary"
    drain_cycles: Count = 0
    depthwise: bool = False
    pooling_lanes: Count = 0
    dataflows: list[DataflowName] = Field(default=[])
    preload: bool = False
    preload_rows: ArrayExtent = 1
    pack_columns: bool = False
    accumulator_bytes: Annotated[int, Field(ge=0, le=2**28, multiple_of=4)] = 0
    setup_cycles: Count = 0

    @property
    def allowed_dataflows(self) -> list[DataflowName]:
        """The dataflows that a job may select."""
        return self.dataflows or [self.dataflow]

    @model_validator(mode="after")
    def _dataflows(self) -> Self:
        if len(set(self.dataflows)) != len(self.dataflows):
            raise ValueError("dataflows names one of them twice")
        if self.dataflow not in self.allowed_dataflows:
            raise ValueError(f'dataflow = "{self.dataflow}" is not one of dataflows')
        return self


class DmaSection(Section):
    """The DMA engine between shared memory and the scratchpad.

    `alignment` applies to addresses and strides, in bytes. With `burst_bytes = 0` each row is one
    burst. With `outstanding`, requests are issued ahead of the responses, so that a transfer pays
    the latency once instead of once per burst. `setup_cycles` are the cycles of a transfer before
    the first burst.
    """

    bytes_per_cycle: Annotated[int, Field(ge=1, le=2**16)] = 4
    latency_cycles: Count = 0
    burst_bytes: Count = 0
    alignment: Annotated[int, Field(ge=1, le=4096)] = 1
    outstanding: bool = False
    setup_cycles: Count = 0

    @field_validator("alignment")
    @classmethod
    def _power_of_two(cls, alignment: int) -> int:
        return _check_power_of_two(alignment)


class DeviceSection(Section):
    """The device behind `device.h` on the host, and the driver's way to wait for the device.

    `simulator` is a simulator of umakit (`sim/kinds.py`), `own` for the section `[simulator]`, or
    `rtl` for the design of `[rtl]` alone. `command_queue` is the number of commands in the device's
    queue, 0 for no queue. `completion` is the driver's way to detect the end of a command; the
    device supports both ways.
    """

    simulator: SimulatorName = "none"
    command_queue: Annotated[int, Field(ge=0, le=32)] = 0
    completion: Literal["interrupt", "polling"] = "interrupt"


class MemorySection(Section):
    """A memory that can hold intermediate and scratch tensors.

    A memory with `address = "offset"` is a scratchpad that the CPU cannot access: drivers get byte
    offsets from the start of the memory instead of pointers. Each of the `banks` serves either the
    array or the DMA engine at a time.

    For a `[machine]`, `holds` names the tensors whose tiles lie in the memory (`data`, `weights`,
    `parameters`, `addend`, `result`); tensors that no memory names lie in the first memory.
    Contiguous parts of a tile are padded to rows of `row_bytes`. With `exclusive = false` several
    engines read a bank at the same time. Tiles start at multiples of `alignment`. Without
    `alignment`, tiles in a memory of several banks start at banks.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    size: Annotated[int, Field(ge=1, le=2**48)] | None = None
    alignment: Annotated[int, Field(ge=1, le=2**31)] = 16
    reachable_by: list[Literal["cpu", "accelerator"]] = Field(
        default=["cpu", "accelerator"], min_length=1
    )
    address: Literal["pointer", "offset"] = "pointer"
    banks: Annotated[int, Field(ge=1, le=2**16)] = 1
    exclusive: bool = True
    row_bytes: Annotated[int, Field(ge=1, le=2**16)] = 1
    holds: list[Tensor] = Field(default=[])

    @field_validator("alignment")
    @classmethod
    def _power_of_two(cls, alignment: int) -> int:
        return _check_power_of_two(alignment)

    @model_validator(mode="after")
    def _scratchpad(self) -> Self:
        if self.address == "offset" and (self.reachable_by != ["accelerator"] or not self.size):
            raise ValueError('address = "offset" needs a size and reachable_by = ["accelerator"]')
        if self.holds and self.address != "offset":
            raise ValueError('holds is for memories with address = "offset"')
        return self


class AcceleratorConfig(Section):
    """The contents of an `accel.toml`.

    `statuses` gives the meaning of each number that functions of a kernel library return, as in
    `"-1" = "an argument does not fit"`.

    `array` may be absent with a simulator of the backend's own, with an explicit
    `simulator = "none"`, with `machine`, and with `kind = "library"`. The default array of one cell
    then says nothing about the machine, and `has_array` is False.
    """

    accelerator: AcceleratorSection
    array: ArraySection = ArraySection(rows=1, columns=1)
    dma: DmaSection = DmaSection()
    device: DeviceSection = DeviceSection()
    simulator: SimulatorSection | None = None
    rtl: RtlSection | None = None
    sources: SourcesSection | None = None
    machine: MachineSection | None = None
    energy: EnergySection | None = None
    memory: list[MemorySection] = Field(default=[])
    statuses: dict[StatusNumber, Meaning] = Field(default={})
    _path: Path | None = PrivateAttr(default=None)

    @property
    def path(self) -> Path | None:
        """Path of the `accel.toml`; None if the contents come from elsewhere."""
        return self._path

    @property
    def status_meanings(self) -> dict[int, str]:
        """The meanings of the numbers that functions of the driver return, by number."""
        return {int(number): meaning for number, meaning in self.statuses.items()}

    @property
    def is_library(self) -> bool:
        """Whether the accelerator is a library of C functions for the CPU."""
        return self.accelerator.kind == "library"

    @property
    def is_only_rtl(self) -> bool:
        """Whether only the design of `[rtl]` runs the driver; exported libraries have no such
        device."""
        return self.device.simulator == "rtl"

    @property
    def has_array(self) -> bool:
        """Whether the file describes the array."""
        return "array" in self.model_fields_set

    @property
    def cells(self) -> int | None:
        """The number of multiply-accumulate units of the array; None without an array."""
        return self.array.rows * self.array.columns if self.has_array else None

    @property
    def has_dma(self) -> bool:
        """Whether the file describes a DMA engine: more than the alignment of buffers."""
        return bool(self.dma.model_fields_set - {"alignment"})

    @property
    def scratchpads(self) -> list[MemorySection]:
        """The memories that drivers address by byte offset."""
        return [memory for memory in self.memory if memory.address == "offset"]

    @property
    def figures(self) -> dict[str, int]:
        """The numbers that `[simulator]` and `[rtl]` may name: figures of `[machine]`, of memories,
        such as `data.size`, and sizes of the array, such as `array.rows`."""
        found = {} if self.machine is None else dict(self.machine.values)
        if self.has_array:
            found |= {f"array.{key}": getattr(self.array, key) for key in ARRAY_FIGURES}
        for memory in self.memory:
            for key in ("size", "banks", "row_bytes"):
                number = getattr(memory, key)
                if number is not None:
                    found[f"{memory.name}.{key}"] = number
        return found

    @property
    def filled_simulator(self) -> SimulatorSection | None:
        """The section `[simulator]` with figures in the place of their names."""
        return None if self.simulator is None else self.simulator.filled(self.figures)

    @property
    def filled_rtl(self) -> RtlSection | None:
        """The section `[rtl]` with figures in the place of their names."""
        return None if self.rtl is None else self.rtl.filled(self.figures)

    @property
    def simulator_macros(self) -> list[str]:
        """The macros of the simulator, as `NAME` or `NAME=value`; none without a simulator."""
        section = self.filled_simulator
        return [] if section is None else section.defines

    @model_validator(mode="after")
    def _simulated(self) -> Self:
        is_own = self.device.simulator == "own"
        is_simulated = self.device.simulator in sim.KINDS
        if self.is_library:
            for key in ("array", "dma", "device", "simulator", "rtl", "machine", "energy"):
                if key in self.model_fields_set:
                    raise ValueError(f'kind = "library" runs on the CPU and has no section [{key}]')
            return self
        if self.device.simulator == "rtl" and self.rtl is None:
            raise ValueError('simulator = "rtl" needs a section [rtl] with the design')
        is_none = not is_simulated and "simulator" in self.device.model_fields_set
        if not self.has_array and (is_simulated or (self.machine is None and not is_none)):
            raise ValueError("array: Field required")
        if is_own and self.simulator is None:
            raise ValueError('simulator = "own" needs a section [simulator] with its sources')
        if self.simulator is not None and not is_own:
            raise ValueError('[simulator] needs simulator = "own" in [device]')
        if self.device.simulator in sim.KINDS:
            sim.KINDS[self.device.simulator].check(self)
        return self

    @model_validator(mode="after")
    def _described(self) -> Self:
        if self.machine is not None:
            _check_memories(self.scratchpads, self.memory)
        elif any(memory.model_fields_set & FOR_MACHINES for memory in self.memory):
            names = ", ".join(sorted(FOR_MACHINES))
            raise ValueError(f"memory: {names} need a section [machine]")
        _ = self.filled_simulator, self.filled_rtl  # refuse names without a figure
        return self

    @model_validator(mode="after")
    def _energy(self) -> Self:
        # A simulator of the backend's own may count accesses to memories unknown to this file.
        knows_memories = self.device.simulator in sim.KINDS or self.machine is not None
        if self.energy is not None and knows_memories:
            sums = [ACCUMULATOR] if self.array.accumulator_bytes else []
            check_memories(self.energy, [*(each.name for each in self.scratchpads), *sums])
        return self


FOR_MACHINES = {"exclusive", "row_bytes", "holds"}
"""Keys of memories that only a described machine has."""


def _check_memories(memories: list[MemorySection], all_: list[MemorySection]) -> None:
    if not memories:
        raise ValueError('[machine] needs a [[memory]] with address = "offset"')
    held: dict[str, str] = {}
    if len({memory.name for memory in memories}) < len(memories):
        raise ValueError("memory: two have the same name")
    for memory in memories:
        if (memory.size or 0) % memory.banks:
            raise ValueError(
                f"memory.{all_.index(memory)}.banks: {memory.name}: {memory.size} bytes are not "
                f"{memory.banks} equal banks: write a divisor of the size"
            )
        for tensor in memory.holds:
            if held.setdefault(tensor, memory.name) != memory.name:
                raise ValueError(f"memory {memory.name}: {held[tensor]} holds {tensor} already")


def _check_power_of_two(number: int) -> int:
    if number & (number - 1):
        larger = 1 << number.bit_length()
        raise ValueError(f"{number} is not a power of two: write {larger // 2} or {larger}")
    return number


def _key_of(location: Sequence[int | str], data: Any) -> str:
    """Return the dotted key of a location in a file; named engines and queues appear by name."""
    parts = []
    for part in location:
        try:
            data = data[part]
        except (IndexError, KeyError, TypeError):
            data = None
        is_named = location[0] == "machine" and isinstance(part, int) and isinstance(data, dict)
        name = data.get("name") if is_named else None
        parts.append(name if isinstance(name, str) and name.isidentifier() else str(part))
    return ".".join(parts)


BYTES = re.compile(r"(\d{1,15}) ?([KMG]?)(?:i?B)?", re.IGNORECASE)
UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
"""Suffixes of integers in quotes."""


def load_accelerator_config(path: Path) -> AcceleratorConfig:
    """Read and check an `accel.toml`."""
    if is_special(path):
        raise AcceleratorConfigError("is not a regular file", where=str(path))
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise AcceleratorConfigError("no such file", where=str(path)) from None
    except OSError as error:
        raise AcceleratorConfigError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except (ValueError, RecursionError) as error:  # TOML, its encoding, or the length of a number
        raise fault_in_file(path, f"is not valid TOML: {error}", AcceleratorConfig) from None
    try:
        configuration = AcceleratorConfig.model_validate(data, context=path.parent)
    except ValidationError as error:
        first = error.errors()[0]
        key = _key_of(first["loc"], data)
        problem = first["msg"].removeprefix("Value error, ")
        if problem.startswith(f"{key}."):  # names the key itself, in more detail
            key = ""
        fix = ""
        if first["type"] == "int_type":
            size = BYTES.fullmatch(str(first["input"]))
            number = int(size[1]) * UNITS[size[2].upper()] if size else "an integer"
            fix = f"write {number}"
            problem = f"{first['input']!r} is not an integer"
        message = f"{key}: {problem}" if key else problem
        fault = fault_in_file(path, message, AcceleratorConfig)
        fault.fix = fault.fix or fix
        raise fault from None
    configuration._path = path
    section = configuration.filled_simulator
    if section is not None:
        simulator_files(section, path.parent)  # refuses missing files
    return configuration
