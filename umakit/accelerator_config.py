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


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class AcceleratorSection(_Section):
    """Who it is."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    description: str = ""


class ArraySection(_Section):
    """The MAC array: rows x columns of multiply-accumulate units."""

    rows: ArrayExtent
    columns: ArrayExtent
    dataflow: Literal["output_stationary"] = "output_stationary"


class DeviceSection(_Section):
    """What answers behind `device.h` on the host."""

    simulator: Literal["mac_array", "none"] = "none"


class MemorySection(_Section):
    """A memory that working tensors may live in.

    With `address = "offset"` it is a scratchpad that the CPU does not see: drivers are told byte
    offsets from its start instead of pointers.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    size: Annotated[int, Field(ge=1)] | None = None
    alignment: Annotated[int, Field(ge=1)] = 16
    reachable_by: list[Literal["cpu", "accelerator"]] = Field(
        default=["cpu", "accelerator"], min_length=1
    )
    address: Literal["pointer", "offset"] = "pointer"

    @field_validator("alignment")
    @classmethod
    def _power_of_two(cls, alignment: int) -> int:
        if alignment & (alignment - 1):
            raise ValueError(f"{alignment} is no power of two")
        return alignment

    @model_validator(mode="after")
    def _scratchpad(self) -> Self:
        if self.address == "offset" and (self.reachable_by != ["accelerator"] or not self.size):
            raise ValueError('address = "offset" needs a size and reachable_by = ["accelerator"]')
        return self


class AcceleratorConfig(_Section):
    """The whole file."""

    accelerator: AcceleratorSection
    array: ArraySection
    device: DeviceSection = DeviceSection()
    memory: list[MemorySection] = Field(default=[])


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
        raise AcceleratorConfigError(f"{key}: {first['msg']}", where=str(path)) from None
