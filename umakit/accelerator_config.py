# SPDX-License-Identifier: Apache-2.0
"""`accel.toml`: the facts about an accelerator that are not code."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from umakit.errors import AcceleratorConfigError

ArrayExtent = Annotated[int, Field(ge=1, le=1024)]
Count = Annotated[int, Field(ge=0, le=2**16)]
DataflowName = Literal["output_stationary", "weight_stationary", "input_stationary"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class AcceleratorSection(_Section):
    """Who it is."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    description: str = ""


class ArraySection(_Section):
    """The MAC array: rows x columns of multiply-accumulate units.

    What follows `dataflow` only the simulated `systolic_array` knows: cycles to drain a fold,
    whether each column can have an input of its own, and channels that its pooling stage takes in
    a cycle, 0 for none; what a job may choose beside `dataflow`, whether the next fold's operands
    enter while the present one computes, whether a few channels share the columns among positions,
    and bytes for sums that several jobs add to, 0 for none.
    """

    rows: ArrayExtent
    columns: ArrayExtent
    dataflow: DataflowName = "output_stationary"
    dataflows: list[DataflowName] = []
    drain_cycles: Count = 0
    depthwise: bool = False
    pooling_lanes: Count = 0
    preload: bool = False
    pack_columns: bool = False
    accumulator_bytes: Annotated[int, Field(ge=0, lt=2**31)] = 0


class DmaSection(_Section):
    """The DMA engine of the simulated `systolic_array`; the cost of a transfer is in its header.

    `alignment` is that of addresses and strides, 0 `burst_bytes` makes each row one burst.
    `outstanding` requests are issued ahead, so that the latency is paid once.
    """

    bytes_per_cycle: Annotated[int, Field(ge=1, le=2**16)] = 4
    latency_cycles: Count = 0
    burst_bytes: Count = 0
    outstanding: bool = False
    alignment: Annotated[int, Field(ge=1, le=4096)] = 1

    @field_validator("alignment")
    @classmethod
    def _power_of_two(cls, alignment: int) -> int:
        return _check_power_of_two(alignment)


class DeviceSection(_Section):
    """What answers behind `device.h` on the host.

    `command_queue` is the number of its entries, 0 for none; `completion` how the driver learns
    that a command has ended.
    """

    simulator: Literal["mac_array", "systolic_array", "none"] = "none"
    command_queue: Count = 0
    completion: Literal["interrupt", "polling"] = "interrupt"


class MemorySection(_Section):
    """A memory that working tensors may live in.

    With `address = "offset"` it is a scratchpad that the CPU does not see: drivers are told byte
    offsets from its start instead of pointers. The simulated `systolic_array` has one; its `banks`
    serve the array or the DMA engine at a time.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    size: Annotated[int, Field(ge=1)] | None = None
    alignment: Annotated[int, Field(ge=1)] = 16
    reachable_by: list[Literal["cpu", "accelerator"]] = Field(
        default=["cpu", "accelerator"], min_length=1
    )
    address: Literal["pointer", "offset"] = "pointer"
    banks: Annotated[int, Field(ge=1, le=32)] = 1

    @field_validator("alignment")
    @classmethod
    def _power_of_two(cls, alignment: int) -> int:
        return _check_power_of_two(alignment)

    @model_validator(mode="after")
    def _scratchpad(self) -> Self:
        if self.address == "offset" and (self.reachable_by != ["accelerator"] or not self.size):
            raise ValueError('address = "offset" needs a size and reachable_by = ["accelerator"]')
        return self


class AcceleratorConfig(_Section):
    """The whole file."""

    accelerator: AcceleratorSection
    array: ArraySection
    dma: DmaSection = DmaSection()
    device: DeviceSection = DeviceSection()
    memory: list[MemorySection] = Field(default=[])

    @property
    def scratchpads(self) -> list[MemorySection]:
        """Memories that drivers address by offset."""
        return [memory for memory in self.memory if memory.address == "offset"]

    @model_validator(mode="after")
    def _simulated(self) -> Self:
        if self.device.simulator == "systolic_array":
            _check_systolic_array(self.array, self.scratchpads)
        if self.device.simulator == "mac_array" and self.array.dataflow != "output_stationary":
            raise ValueError(
                f'dataflow = "{self.array.dataflow}" needs simulator = "systolic_array"'
            )
        return self


def _check_systolic_array(array: ArraySection, scratchpads: list[MemorySection]) -> None:
    if len(scratchpads) != 1:
        raise ValueError(
            'simulator = "systolic_array" needs one [[memory]] with address = "offset", not '
            f"{len(scratchpads)}"
        )
    (memory,) = scratchpads
    if (memory.size or 0) % (4 * memory.banks):
        raise ValueError(
            f"{memory.name}: {memory.size} bytes are not {memory.banks} banks of whole 32-bit words"
        )
    if array.depthwise and array.dataflow == "input_stationary":
        raise ValueError(
            "depthwise convolutions cannot be input_stationary: each input meets one weight only"
        )


def _check_power_of_two(number: int) -> int:
    if number & (number - 1):
        raise ValueError(f"{number} is no power of two")
    return number


def load_accelerator_config(path: Path) -> AcceleratorConfig:
    """Read and check an `accel.toml`.

    Raises:
        AcceleratorConfigError: no such file, no TOML, an unknown key, a value out of range; names
            the key.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise AcceleratorConfigError("no such file", where=str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise AcceleratorConfigError(f"is not valid TOML: {error}", where=str(path)) from None
    try:
        return AcceleratorConfig.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        message = f"{key}: {first['msg']}" if key else first["msg"]
        raise AcceleratorConfigError(message, where=str(path)) from None
