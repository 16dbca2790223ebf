# SPDX-License-Identifier: Apache-2.0
"""Owners of tuning records: a model, and either a backend's hardware and a version of the cost
model, or a CPU."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from umakit.cpu.description import Cpu
from umakit.errors import RecordsError
from umakit.frontend import Model
from umakit.machine import COST_MODEL, DriverCosts, Hardware, TilePlanner
from umakit.machine.costs import Figure

AGAIN = "tune again, into another file"


@dataclass(frozen=True)
class ModelView:
    """Identity of a model: its C name and the SHA-256 of its file; empty for an object in
    memory."""

    name: str
    sha256: str


@dataclass(frozen=True)
class BackendView:
    """Identity of a backend: name, and all parameters that determine cycles.

    Attributes:
        hardware: parameters of the systolic array; None for another machine.
        driver: register accesses of the driver's calls.
        machine: figures of a machine other than `Hardware`, by name; None for a systolic array.
    """

    name: str
    driver: DriverCosts
    hardware: Hardware | None = None
    machine: dict[str, Figure] | None = None

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if (self.hardware is None) == (self.machine is None):
            raise ValueError("needs either hardware or machine")
        return self

    @model_serializer(mode="wrap")
    def _of_one_kind(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        view: dict[str, Any] = handler(self)
        return {name: each for name, each in view.items() if each is not None}


@dataclass(frozen=True)
class CpuView:
    """Identity of a CPU: name, and the parameters of schedules and compilers."""

    name: str
    vector_bytes: int
    vector_registers: int
    cache_bytes: int
    dot_products: str
    flags: tuple[str, ...]

    @classmethod
    def of(cls, cpu: Cpu) -> CpuView:
        return cls(**{field.name: getattr(cpu, field.name) for field in fields(cls)})


@dataclass(frozen=True)
class Owner:
    """The owner of records: model, backend and cost model, or model and CPU.

    Attributes:
        backend: None for records of kernels for a CPU.
        cost_model: version of the default tilings and of the cost model.
        cpu: None for records of tilings.
    """

    model: ModelView
    backend: BackendView | None = None
    cost_model: int = COST_MODEL
    cpu: CpuView | None = None

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if (self.backend is None) == (self.cpu is None):
            raise ValueError("needs either backend or cpu")
        return self

    @model_serializer(mode="wrap")
    def _of_one_kind(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        view: dict[str, Any] = handler(self)
        left_out = ("cpu",) if self.cpu is None else ("backend", "cost_model")
        return {name: each for name, each in view.items() if name not in left_out}

    @property
    def name(self) -> str:
        named = self.backend or self.cpu
        assert named is not None  # as `_has_one` says
        return named.name

    @property
    def hardware(self) -> Hardware | None:
        """The systolic array of the backend; None for another machine or a CPU."""
        return None if self.backend is None else self.backend.hardware

    @classmethod
    def of_cpu(cls, model: Model, cpu: Cpu) -> Owner:
        return cls(ModelView(model.name, model.fingerprint), cpu=CpuView.of(cpu))

    @classmethod
    def of(cls, model: Model, backend: str, planner: TilePlanner) -> Owner:
        machine = planner.machine
        array = machine if isinstance(machine, Hardware) else None
        figures = machine.figures() if array is None else None
        view = BackendView(backend, planner.driver, hardware=array, machine=figures)
        return cls(ModelView(model.name, model.fingerprint), view)


def check_same_owner(mine: Owner, owner: Owner, where: str) -> None:
    if mine.name != owner.name or (mine.cpu is None) != (owner.cpu is None):
        kind = "backend" if owner.cpu is None else "CPU"
        raise RecordsError(
            f"records are of {mine.name}, not of {owner.name}",
            where=where,
            fix=f"tune for this {kind}, into another file",
        )
    measured = [
        ((each.backend and each.backend.machine) or {}).get("calibration", "none")
        for each in (mine, owner)
    ]
    if measured[0] != measured[1]:
        raise RecordsError(
            f"records are for costs of calibration {measured[0]}, {owner.name} has {measured[1]}",
            where=where,
            fix=AGAIN,
        )
    for kind in ("hardware", "machine", "driver", "cpu"):
        old, new = (_figures(_part(each, kind)) for each in (mine, owner))
        for name in dict.fromkeys((*new, *old)):
            was, now = old.get(name, "none"), new.get(name, "none")
            if was != now:
                raise RecordsError(
                    f"records are for {_SHOWN.get(kind, kind)} with {name} {was}, {owner.name} "
                    f"has {now}",
                    where=where,
                    fix=AGAIN,
                )
    if owner.cpu is None and mine.cost_model != owner.cost_model:
        raise RecordsError(
            f"records are of version {mine.cost_model} of the cost model, this is "
            f"{owner.cost_model}",
            where=where,
            fix=AGAIN,
        )
    if mine.model.sha256 != owner.model.sha256:
        raise RecordsError(
            f"records are of {mine.model.name} (SHA-256 {mine.model.sha256[:12]}...), not of "
            f"{owner.model.name} ({owner.model.sha256[:12]}...)",
            where=where,
            fix="tune this model, into another file",
        )


_SHOWN = {"cpu": "a CPU"}


def _part(owner: Owner, kind: str) -> Any:
    return owner.cpu if kind == "cpu" else getattr(owner.backend, kind, None)


def _figures(value: Any) -> dict[str, str]:
    """Return the figures of a kind by name; empty for None."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    return {name: _text(each) for name, each in value.items()}


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(_text(item) for item in value)
    return str(getattr(value, "value", value))
