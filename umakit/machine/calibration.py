# SPDX-License-Identifier: Apache-2.0
"""The file of measured costs of commands, which replace the described costs.

`uma calibrate` writes `calibration.json` beside `accel.toml`. A cost is a sum of terms, fitted to
measured tiles: a number of cycles times counts such as `ceil_div(m, 16)`. The costs hold for the
measured machine: a machine with other figures does not use the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, with_config

from umakit.errors import AcceleratorConfigError
from umakit.files.documents import Document
from umakit.files.outputs import FileKind
from umakit.machine.costs import Copy, Cost, Figure, TileSizes, flat
from umakit.machine.layer import Kind
from umakit.machine.systolic import Dataflow
from umakit.machine.tile_machine import TileMachine, Wrapped

FILE_NAME = "calibration.json"
"""Name of the file beside `accel.toml` that predictions are made from."""

FORMAT = "umakit calibration"
CALIBRATION = FileKind("calibration of umakit", FORMAT.encode())
VERSION = 1
"""Version of the file format."""

AGAIN = "run `uma calibrate` again"
REPLACE = "remove it, then run `uma calibrate`, which writes one"

JobVariable = Literal[
    "m", "n", "k", "rows", "columns", "input_channels", "window", "macs", "first", "last"
]
"""Sizes of a job: the product's m positions, n output channels and k products for each result; rows
and columns of the result, channels of the data, positions of the kernel, m * n * k, and 1 for the
first or last job of a tile, else 0."""

CopyVariable = Literal["planes", "rows", "lines", "row_bytes", "bytes"]
"""Sizes of a copy: planes, rows of each, their product, contiguous bytes of a row, all bytes."""

WRITTEN = {
    "window": "kernel_rows * kernel_columns",
    "macs": "m * n * k",
    "lines": "planes * rows",
}
"""Formula text in `accel.toml` for sizes without a name."""

Positive = Annotated[int, Field(ge=1, le=2**31)]


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Count:
    """The number of parts that a size is cut into: max(ceil_div(size, part), least).

    Attributes:
        size: name of the size, or `described` for the cycles that the backend describes.
        least: smallest number of parts that counts.
    """

    size: JobVariable | CopyVariable | Literal["described"]
    part: Positive = 1
    least: Annotated[int, Field(ge=0, le=2**31)] = 0

    def of(self, sizes: Mapping[str, int]) -> int:
        """Return the number of parts."""
        return max(self.least, -(-sizes[self.size] // self.part))

    def __str__(self) -> str:
        text = WRITTEN.get(self.size, self.size)
        if self.part > 1:
            text = f"ceil_div({text}, {self.part})"
        return f"max({text}, {self.least})" if self.least > 1 else text


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Term:
    """A number of cycles, times the product of counts."""

    cycles: int | float
    counts: tuple[Count, ...] = ()


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Formula:
    """A sum of terms, rounded to whole cycles.

    The text of a formula is valid in `accel.toml` if all numbers are whole and no term uses
    `described`.
    """

    terms: tuple[Term, ...]

    def of(self, sizes: Mapping[str, int]) -> int:
        """Return the cycles of a command of these sizes."""
        total: float = 0
        for term in self.terms:
            product = term.cycles
            for count in term.counts:
                product *= count.of(sizes)
            total += product
        return round(total)

    @property
    def sizes(self) -> set[str]:
        """The names of the sizes in the formula."""
        return {count.size for term in self.terms for count in term.counts}

    def __str__(self) -> str:
        texts = []
        for term in self.terms:
            factors = [str(count) for count in term.counts]
            if term.cycles != 1 or not factors:
                factors.insert(0, f"{term.cycles:g}" if term.cycles < 10**6 else str(term.cycles))
            texts.append(" * ".join(factors))
        return " + ".join(texts).replace("+ -", "- ") or "0"


AS_DESCRIBED = Formula((Term(1, (Count("described"),)),))
"""The cycles that the backend describes."""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Evidence:
    """How a formula agrees with measured tiles.

    Attributes:
        fitted: number of measured commands, of different sizes, that the formula was fitted to; 0
            for a formula that existed before.
        held_out: number of other measured commands that the formula was compared with.
        exact: number of held-out commands whose cycles the formula gives exactly.
        worst_percent: largest deviation of busy cycles and tail on the held-out commands, in
            percent of the measured cycles.
    """

    fitted: int
    held_out: int
    exact: int
    worst_percent: float


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class JobCosts:
    """Measured cycles of jobs.

    Attributes:
        kind, dataflow: kind of layer and dataflow of the jobs.
        busy, tail: cycles, as in `Cost`.
        adds: whether the layers add a second tensor; None for both kinds of layers.
    """

    kind: Kind
    dataflow: Dataflow
    busy: Formula
    tail: Formula
    evidence: Evidence
    adds: bool | None = None

    @property
    def name(self) -> str:
        """Name of the measured jobs for people, such as `job, convolution, weight stationary`."""
        flow = self.dataflow.value.replace("_", " ")
        kind = self.kind.value.replace("_", " ")
        kind += " with a sum" if self.adds else ""
        pools = (Kind.MAX_POOL, Kind.AVERAGE_POOL)
        return f"job, {kind}" if self.kind in pools else f"job, {kind}, {flow}"


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class CopyCosts:
    """Measured cycles of copies."""

    stream: str
    tensors: tuple[str, ...]
    busy: Formula
    tail: Formula
    evidence: Evidence

    @property
    def name(self) -> str:
        """Name of the measured copies for people: stream and tensors."""
        return f"copy, {self.stream}: {', '.join(self.tensors)}"


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class MeasuredLayer:
    """A measured layer of several tiles, with the prediction from the measured costs."""

    layer: str
    clock_cycles: Positive
    predicted_cycles: Positive

    @property
    def difference_percent(self) -> float:
        """Predicted cycles above the measured ones, in percent."""
        return 100 * (self.predicted_cycles / self.clock_cycles - 1)


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Calibration:
    """Measured costs of a machine.

    Attributes:
        device: name of the device that ran its driver.
        figures: figures of the measured machine by name; see `figures_of`.
        jobs, copies: measured costs.
    """

    backend: str
    device: str
    measured: datetime
    umakit: str
    figures: dict[str, str]
    jobs: tuple[JobCosts, ...]
    copies: tuple[CopyCosts, ...]
    layers: tuple[MeasuredLayer, ...] = ()
    format: Literal["umakit calibration"] = FORMAT  # type: ignore[assignment]
    version: int = VERSION

    def content(self) -> bytes:
        """Return the content of the file."""
        view = _ADAPTER.dump_python(self, mode="json")
        head = {name: view.pop(name) for name in ("format", "version")}
        return (json.dumps({**head, **view}, indent=2) + "\n").encode()

    def as_json(self) -> dict[str, Any]:
        """Return everything, with formulas as text."""
        view: dict[str, Any] = _ADAPTER.dump_python(self, mode="json")
        for group in ("jobs", "copies"):
            for costs, shown in zip(getattr(self, group), view[group], strict=True):
                shown["name"] = costs.name
                shown["busy"], shown["tail"] = str(costs.busy), str(costs.tail)
        for layer, shown in zip(self.layers, view["layers"], strict=True):
            shown["difference_percent"] = layer.difference_percent
        return view


_ADAPTER = TypeAdapter(Calibration)
_DOCUMENT = Document(
    FORMAT,
    VERSION,
    "measured costs",
    _ADAPTER,
    AcceleratorConfigError,
    is_strict=False,
    instead_of_special="remove it",
    instead_of_another=REPLACE,
    instead_of_damaged=REPLACE,
)


def read_calibration(path: Path) -> Calibration:
    """Read a file of measured costs."""
    return _DOCUMENT.read(path)


def figures_of(machine: TileMachine, configuration: Mapping[str, Any]) -> dict[str, str]:
    """Return the figures that identify a machine, by name."""
    given = _by_name({**configuration, "accelerator": None})
    found = {f"accel.toml: {name[1:]}": str(value) for name, value in flat("", given)}
    for name, value in machine.figures().items():
        found[f"the machine: {name}"] = str(value)
    return found


def _by_name(value: Any) -> Any:
    """Return tables of `accel.toml`, with each list of tables as a table by name."""
    if isinstance(value, Mapping):
        return {key: _by_name(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)) and any(isinstance(each, Mapping) for each in value):
        return {each.get("name", number): _by_name(each) for number, each in enumerate(value)}
    return value


def changed_figure(calibration: Calibration, figures: Mapping[str, str]) -> str:
    """Return in words the first figure that changed since the measurement; empty if none did."""
    for name in {**calibration.figures, **figures}:
        was, now = calibration.figures.get(name), figures.get(name)
        if was != now:
            place, _, rest = name.partition(": ")
            return f"{rest} of {place} was {_or_absent(was)}, and is {_or_absent(now)} now"
    return ""


def _or_absent(figure: str | None) -> str:
    return "absent" if figure is None else figure or "empty"


class Calibrated(Wrapped):
    """A machine with measured costs of commands.

    Commands that were not measured keep the costs of the described machine.
    """

    def __init__(self, other: TileMachine, calibration: Calibration) -> None:
        super().__init__(other)
        self.other_costs = "costs are measured, not those of folds"
        self.calibration = calibration
        self.jobs_by_step = other.jobs_by_step or any(
            {"first", "last"} & each.sizes
            for costs in calibration.jobs
            for each in (costs.busy, costs.tail)
        )
        self._jobs = {
            (each.kind, each.dataflow, adds): each
            for each in calibration.jobs
            for adds in ((False, True) if each.adds is None else (each.adds,))
        }
        self._copies = {
            (each.stream, tensor): each for each in calibration.copies for tensor in each.tensors
        }
        self._by_stream = {each.stream: each for each in reversed(calibration.copies)}

    def job(self, sizes: TileSizes) -> Cost:
        """Return the measured cycles of a job."""
        costs = self.costs_of_jobs(sizes.layer.kind, sizes.dataflow, sizes.layer.adds)
        described = self.other.job(sizes)
        return described if costs is None else _cost(costs, job_sizes(sizes), described)

    def copy(self, copied: Copy) -> Cost:
        """Return the measured cycles of a copy; an unmeasured tensor has the costs of others of its
        stream."""
        costs = self.costs_of_copies(self.stream_of(copied.tensor), copied.tensor)
        described = self.other.copy(copied)
        return described if costs is None else _cost(costs, copy_sizes(copied), described)

    def costs_of_jobs(self, kind: Kind, dataflow: Dataflow, adds: bool) -> JobCosts | None:
        """Return the costs of jobs of a kind of layer; None if no such job was measured."""
        costs = self._jobs.get((kind, dataflow, adds)) or self._jobs.get((kind, dataflow, False))
        if costs is None and kind in (Kind.MAX_POOL, Kind.AVERAGE_POOL):
            costs = next((each for each in self._jobs.values() if each.kind is kind), None)
        return costs

    def costs_of_copies(self, stream: str, tensor: str) -> CopyCosts | None:
        """Return the costs of a tensor's copies; None if no copy of its stream was measured."""
        return self._copies.get((stream, tensor)) or self._by_stream.get(stream)

    @cached_property
    def digest(self) -> str:
        """Device and time of the measurement, which identify the costs."""
        return f"{self.calibration.device}, {self.calibration.measured.isoformat()}"

    def figures(self) -> dict[str, Figure]:
        """Return the machine's figures, with the measurement."""
        return {**self.other.figures(), "calibration": self.digest}


def job_sizes(sizes: TileSizes) -> dict[str, int]:
    """Return the sizes that the cycles of a job may depend on, by `JobVariable`."""
    layer, product = sizes.layer, sizes.product
    return {
        "m": product.m,
        "n": product.n,
        "k": product.k,
        "rows": sizes.rows,
        "columns": sizes.columns,
        "input_channels": 1 if layer.per_channel else sizes.input_channels,
        "window": layer.window,
        "macs": product.macs,
        "first": int(sizes.first),
        "last": int(sizes.last),
    }


def copy_sizes(copied: Copy) -> dict[str, int]:
    """Return the sizes that the cycles of a copy may depend on, by `CopyVariable`."""
    lines = copied.planes * copied.rows
    return {
        "planes": copied.planes,
        "rows": copied.rows,
        "lines": lines,
        "row_bytes": copied.row_bytes,
        "bytes": lines * copied.row_bytes,
    }


def _cost(costs: JobCosts | CopyCosts, sizes: dict[str, int], described: Cost) -> Cost:
    busy = costs.busy.of({**sizes, "described": described.busy})
    tail = costs.tail.of({**sizes, "described": described.tail})
    return replace(described, busy=max(1, busy), tail=max(0, tail))
