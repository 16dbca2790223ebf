# SPDX-License-Identifier: Apache-2.0
"""The file of measured costs of commands, which take the place of the described ones.

`uma calibrate` writes them as `calibration.json` beside `accel.toml`. A cost is a sum of terms: a
number of cycles times counts such as `ceil_div(m, 16)`, which were fitted to measured tiles.
They hold for the machine that was measured: with other figures they are not used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, with_config

from umakit.errors import AcceleratorConfigError
from umakit.files.documents import Document
from umakit.files.outputs import FileKind
from umakit.machine.figures import flat
from umakit.machine.layer import Kind
from umakit.machine.systolic import Dataflow
from umakit.machine.tile_machine import TileMachine

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
"""How formulas of `accel.toml` say sizes that have no name there."""

Positive = Annotated[int, Field(ge=1, le=2**31)]


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Count:
    """The number of parts that a size is cut into: max(ceil_div(size, part), least).

    Attributes:
        size: name of the size, or `described` for the cycles that the backend describes.
        part: size of a part.
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

    As text it is a formula of `accel.toml`, if all its numbers are whole and it does not ask for
    what the backend describes.
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
        """The names of the sizes that it depends on."""
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
        fitted: number of measured commands of different sizes that it was fitted to; 0 for one
            that was there before.
        held_out: number of other ones that it was compared with.
        exact: number of these on which it is right to the cycle.
        worst_percent: largest deviation on these, of busy cycles and tail, in percent of what was
            measured.
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
        kind, dataflow: the jobs.
        busy, tail: their cycles, as in `Cost`.
        evidence: how they agree with what was measured, busy cycles and tail together.
        adds: whether the layers add a second tensor; None: those that do and those that do not.
    """

    kind: Kind
    dataflow: Dataflow
    busy: Formula
    tail: Formula
    evidence: Evidence
    adds: bool | None = None

    @property
    def name(self) -> str:
        """What it is about."""
        flow = self.dataflow.value.replace("_", " ")
        kind = self.kind.value.replace("_", " ")
        kind += " with a sum" if self.adds else ""
        pools = (Kind.MAX_POOL, Kind.AVERAGE_POOL)
        return f"job, {kind}" if self.kind in pools else f"job, {kind}, {flow}"


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class CopyCosts:
    """Measured cycles of copies.

    Attributes:
        stream: name of the stream of the copies.
        tensors: tensors that were copied.
        busy, tail, evidence: as in `JobCosts`.
    """

    stream: str
    tensors: tuple[str, ...]
    busy: Formula
    tail: Formula
    evidence: Evidence

    @property
    def name(self) -> str:
        """What it is about."""
        return f"copy, {self.stream}: {', '.join(self.tensors)}"


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class MeasuredLayer:
    """A layer of several tiles that was measured, as predicted from the measured costs.

    Attributes:
        layer: the layer in words.
        clock_cycles: measured cycles.
        predicted_cycles: predicted ones.
    """

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
        backend: name of the backend.
        device: name of the device that ran its driver.
        measured: date and time of the measurement.
        umakit: version that measured.
        figures: by name, what identifies the machine that was measured; see `figures_of`.
        jobs, copies: the costs.
        layers: layers that were measured for comparison.
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
    """Read a file of measured costs.

    Raises:
        AcceleratorConfigError: it cannot be read, holds no measured costs, or is of another
            version.
    """
    return _DOCUMENT.read(path)


def figures_of(machine: TileMachine, configuration: Mapping[str, Any]) -> dict[str, str]:
    """Return what identifies a machine, by name.

    Args:
        machine: its description.
        configuration: contents of `accel.toml`.
    """
    given = _by_name({**configuration, "accelerator": None})
    found = {f"accel.toml: {name[1:]}": str(value) for name, value in flat("", given)}
    for name, value in machine.figures().items():
        found[f"the machine: {name}"] = str(value)
    return found


def _by_name(value: Any) -> Any:
    """Return tables of `accel.toml` with lists of tables as tables by name."""
    if isinstance(value, Mapping):
        return {key: _by_name(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)) and any(isinstance(each, Mapping) for each in value):
        return {each.get("name", number): _by_name(each) for number, each in enumerate(value)}
    return value


def changed_figure(calibration: Calibration, figures: Mapping[str, str]) -> str:
    """Return the first figure that is not as it was measured, in words; empty if all are."""
    for name in {**calibration.figures, **figures}:
        was, now = calibration.figures.get(name), figures.get(name)
        if was != now:
            place, _, rest = name.partition(": ")
            return f"{rest} of {place} was {_or_absent(was)}, and is {_or_absent(now)} now"
    return ""


def _or_absent(figure: str | None) -> str:
    return "absent" if figure is None else figure or "empty"
