# SPDX-License-Identifier: Apache-2.0
"""Tuning records: a file with tilings for one model on one backend, or with kernel choices for one
model on one CPU.

Records are valid only for their model, hardware parameters and version of the cost model, or for
their CPU, and refused for others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import pydantic

from umakit.errors import OutputError, RecordsError, short_path
from umakit.files.documents import Document
from umakit.files.outputs import FileKind, check_file
from umakit.files.staging import write_file
from umakit.frontend import Model
from umakit.machine import Layer, TileMachine, Tiling
from umakit.machine.planner import PlannedLayers
from umakit.machine.space import invalid
from umakit.records.kernels import KernelRecord, Origin
from umakit.records.owners import AGAIN, Owner, check_same_owner
from umakit.registration.backend import Backend

FORMAT = "umakit tuning records"
RECORDS = FileKind("file of tuning records", FORMAT.encode())
VERSION = 1

Cycles = Annotated[int, pydantic.Field(gt=0)]
"""A positive number of cycles; unknown cycles are None."""

TUNE = "`uma tune MODEL --records FILE` writes one, with --backend BACKEND, or with --cpu CPU"


@dataclass(frozen=True)
class Effort:
    """The extent of the search for a layer.

    Attributes:
        clock: number of candidates that the cost model simulated.
        simulate: number of best candidates that the simulator ran.
    """

    clock: int = 64
    simulate: int = 3

    def covers(self, other: Effort) -> bool:
        return self.clock >= other.clock and self.simulate >= other.simulate


@dataclass(frozen=True)
class Record:
    """The result of the search for one layer.

    Attributes:
        operators: names of the model's operators, for each occurrence of the layer.
        bound: lower bound of the cycles of all tilings.
        default: cycles of the default tiling by the cost model.
        predicted: cycles of the best tiling by the cost model.
        simulated: cycles of the best tiling in the simulator; None if not run.
        default_simulated: cycles of the default tiling in the simulator; None if not run, as in
            records of umakit 0.2.0.
    """

    layer: Layer
    operators: tuple[str, ...]
    tiling: Tiling
    bound: Cycles
    default: Cycles
    predicted: Cycles
    simulated: Cycles | None
    effort: Effort
    default_simulated: Cycles | None = None

    @property
    def is_measured(self) -> bool:
        """Whether `cycles` and `default_cycles` are measured; else both are predicted."""
        return self.simulated is not None and self.default_simulated is not None

    @property
    def cycles(self) -> int:
        """The cycles of the best tiling, measured if `is_measured`, else predicted."""
        return self.simulated if self.is_measured and self.simulated else self.predicted

    @property
    def default_cycles(self) -> int:
        """The cycles of the default tiling, measured if `is_measured`, else predicted."""
        return (
            self.default_simulated if self.is_measured and self.default_simulated else self.default
        )

    def covers(self, effort: Effort) -> bool:
        """Whether a search of this effort would find nothing more.

        Records of umakit 0.2.0 lack the measured cycles of the default tiling. The best tiling of
        such a record may be worse than the default.
        """
        lacks_default = self.simulated is not None and self.default_simulated is None
        return self.effort.covers(effort) and not lacks_default

    @pydantic.model_serializer(mode="wrap")
    def _without_unknown(self, handler: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        view: dict[str, Any] = handler(self)
        if self.default_simulated is None:
            del view["default_simulated"]  # as in files of umakit 0.2.0
        return view

    def as_json(self) -> dict[str, Any]:
        view: dict[str, Any] = pydantic.TypeAdapter(Record).dump_python(self, mode="json")
        return view


@pydantic.with_config(pydantic.ConfigDict(extra="forbid"))  # of all dataclasses inside, too
@dataclass(frozen=True)
class Records:
    """All records of a model on a backend, or for a CPU.

    Attributes:
        origin: origin of the figures of kernels; None without kernels.
    """

    owner: Owner
    layers: tuple[Record, ...] = ()
    format: str = FORMAT
    version: int = VERSION
    kernels: tuple[KernelRecord, ...] = ()
    origin: Origin | None = None

    @pydantic.model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        if self.owner.cpu is None and (self.kernels or self.origin):
            raise ValueError("records of a backend have no kernels")
        if self.owner.cpu is not None and (self.layers or self.origin is None):
            raise ValueError("records of a CPU have an origin and no layers")
        return self

    @pydantic.model_serializer(mode="wrap")
    def _of_one_kind(self, handler: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        view: dict[str, Any] = handler(self)
        left_out = ("kernels", "origin") if self.owner.cpu is None else ("layers",)
        return {name: each for name, each in view.items() if name not in left_out}

    @property
    def tilings(self) -> Mapping[Layer, Tiling]:
        return {record.layer: record.tiling for record in self.layers}

    def of(self, layer: Layer) -> Record | None:
        return next((record for record in self.layers if record.layer == layer), None)

    def with_record(self, record: Record) -> Records:
        """Return these records with a new record in place of any record of the same layer."""
        others = [each for each in self.layers if each.layer != record.layer]
        layers = sorted([*others, record], key=lambda each: (each.operators, repr(each.layer)))
        return Records(self.owner, tuple(layers))

    def write(self, path: Path, inputs: Iterable[Path] = ()) -> None:
        write_records(path, self.content(), inputs)

    def content(self) -> bytes:
        text = json.dumps(_ADAPTER.dump_python(self, mode="json"), indent=2, sort_keys=True)
        return (_compact(text) + "\n").encode()


_ADAPTER = pydantic.TypeAdapter(Records)
_DOCUMENT = Document(
    FORMAT,
    VERSION,
    "tuning records",
    _ADAPTER,
    RecordsError,
    is_strict=True,
    instead_of_special=TUNE,
    instead_of_another=TUNE,
    instead_of_damaged=AGAIN,
)


def _compact(text: str) -> str:
    """Put lists of strings and numbers on one line each, for readability."""
    line_break = re.compile(r"\s*\n\s*")
    lists = re.compile(r"\[\s+([^\[\]{}]*?)\s+\]")
    return lists.sub(lambda found: f"[{line_break.sub(' ', found[1])}]", text)


def write_records(path: Path, content: bytes | Callable[[], bytes], inputs: Iterable[Path]) -> None:
    """Write a file of records; a function returns the content under a lock."""
    try:
        write_file(path, content, RECORDS, inputs)
    except OutputError as error:
        raise RecordsError(error.what, where=error.where) from None


def add_record(
    path: Path,
    owner: Owner,
    record: Record,
    inputs: Iterable[Path] = (),
    *,
    instead_of: Record | None = None,
    machine: TileMachine | None = None,
) -> Records:
    """Add a record to a file under a lock against other processes; return the file's records.

    A record of another process in place of `instead_of` stays if its effort covers this record's.
    """
    merged = Records(owner)

    def content() -> bytes:
        nonlocal merged
        merged = existing_records(path, owner, machine)
        there = merged.of(record.layer)
        if there is None or there == instead_of or not there.covers(record.effort):
            merged = merged.with_record(record)
        return merged.content()

    write_records(path, content, inputs)
    return merged


def existing_records(path: Path, owner: Owner, machine: TileMachine | None = None) -> Records:
    """Read the existing records of a file; empty if there is no file."""
    records = read_existing(path)
    if records is None:
        return Records(owner)
    check_owner(records, owner, path, machine)
    return records


def read_existing(path: Path) -> Records | None:
    """Read a file of records; None if there is no file in an existing folder."""
    if path.exists():
        return read_records(path)
    if not path.parent.is_dir():
        raise RecordsError("no such folder", where=short_path(path.parent))
    return None


def read_tilings(
    path: Path, model: Model, backends: Sequence[Backend]
) -> dict[str, Mapping[Layer, Tiling]]:
    """Read the tilings of a file, by target and layer."""
    records = read_records(path)
    if records.owner.backend is None:
        return {}  # of kernels, see `umakit.records.choices`
    name = records.owner.name
    tiled = {each.target_name: each.tiling for each in backends if each.tiling is not None}
    if not tiled:
        raise RecordsError(
            "no backend that cuts layers into tiles was given",
            where=short_path(path),
            fix=f"give --backend {name}, or leave the records out",
        )
    target = name if name in tiled else next(iter(tiled))
    planner = tiled[target]
    check_owner(records, Owner.of(model, target, planner), path, planner.machine)
    return {target: records.tilings}


def check_use(path: Path, target: str, planned: PlannedLayers) -> None:
    """Refuse records that match none of a network's layers."""
    if not planned.tuned:
        raise RecordsError(
            f"has none of the network's {len(planned.layers)} layers on {target}",
            where=short_path(path),
            fix="tune with the same --input-shapes and --rounding",
        )


def check_records_file(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Refuse an output file that is an input or does not contain records."""
    try:
        check_file(path, RECORDS, inputs)
    except OutputError as error:
        raise RecordsError(
            error.what, where=str(path), fix="choose another file for the records"
        ) from None


def read_records(path: Path) -> Records:
    return _DOCUMENT.read(path)


def check_owner(
    records: Records, owner: Owner, path: Path, machine: TileMachine | None = None
) -> None:
    """Refuse records of another owner; a systolic array needs no `machine`."""
    where = short_path(path)
    check_same_owner(records.owner, owner, where)
    taken = machine or owner.hardware
    for number, record in enumerate(records.layers):
        if taken is not None and (reason := invalid(record.layer, record.tiling, taken)):
            raise RecordsError(
                f"the tiling of layer {number} ({', '.join(record.operators)}) does not fit: "
                f"{reason}",
                where=where,
                fix=AGAIN,
            )
