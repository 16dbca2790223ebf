# SPDX-License-Identifier: Apache-2.0
"""Processor time of an inference on the host: in drivers, in simulators, and in CPU steps.

A simulator takes processor time that the product does not spend. A driver's own computations, such
as padding, packing or scaling, also take time on the product's CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from umakit.tools.columns import Column
from umakit.tools.record import LayerRecord

Unit = Literal["seconds", "instructions"]
"""Processor time, or instructions that an emulator counted: names of figures of a record."""

Answering = Literal["simulator", "driver", "library"]
"""Source of the answers to accelerator layers: simulators, at least for some layers; without a
simulator, computing drivers or the functions of kernel libraries."""

PLACES = 12
"""Decimal places of a difference in seconds. Further places are rounding errors."""

Figure = float | int | None
"""Seconds, or instructions as integers; None for an unknown figure."""


@dataclass(frozen=True)
class Host:
    """Mean processor time, or instructions, of an inference.

    Attributes:
        unit: unit of the figures; None if nothing was measured.
        programs: accelerators whose simulators are separate processes. Only the exchange with these
            processes is measured.
        runs: number of averaged inferences.
    """

    rows: tuple[LayerRecord, ...]
    unit: Unit | None
    answering: Answering
    programs: tuple[str, ...] = ()
    runs: int = 1

    @classmethod
    def of(
        cls, rows: Sequence[LayerRecord], answering: Answering, programs: Sequence[str], runs: int
    ) -> Host:
        found = tuple(rows)
        units: tuple[Unit, ...] = ("instructions", "seconds")
        measured = (
            unit for unit in units if found and None not in [getattr(r, unit) for r in found]
        )
        return cls(found, next(measured, None), answering, tuple(programs), runs)

    @property
    def is_told_apart(self) -> bool:
        """Whether the figures separate the drivers' own code from calls of devices."""
        layers = [row for row in self.rows if row.owner == "layer"]
        return bool(layers) and None not in map(self.device, layers)

    @property
    def drivers(self) -> Figure:
        """Cost of layers on accelerators outside of calls of their devices."""
        return self._sum("layer", self.cpu)

    @property
    def devices(self) -> Figure:
        """Cost of layers on accelerators in calls of their devices."""
        return self._sum("layer", self.device)

    @property
    def steps(self) -> Figure:
        return self._sum("cpu step", self.whole)

    def whole(self, row: LayerRecord) -> Figure:
        """Return the whole cost of a row, inside and outside of calls of a device."""
        figure: Figure = None if self.unit is None else getattr(row, self.unit)
        return figure

    def device(self, row: LayerRecord) -> Figure:
        """Return the cost of a row in calls of a device."""
        figure: Figure = None if self.unit is None else getattr(row, f"device_{self.unit}")
        return figure

    def cpu(self, row: LayerRecord) -> Figure:
        """Return the cost of a row outside of calls of a device."""
        whole, device = self.whole(row), self.device(row)
        return None if whole is None or device is None else round(whole - device, PLACES)

    def _sum(self, owner: str, of: Callable[[LayerRecord], Figure]) -> Figure:
        figures = [of(row) for row in self.rows if row.owner == owner]
        if self.unit is None or None in figures:
            return None
        return round(sum(figure or 0 for figure in figures), PLACES)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences that explain the columns, and state the costs of drivers and simulators."""
        if self.unit is None:
            return ()
        columns = self._legend()
        if not self.is_told_apart:
            return (columns,)
        own, called = self._clause(self.drivers), self._clause(self.devices)
        if self.answering == "library":
            return (columns, f"functions of libraries: {own}")
        if self.answering == "driver":
            return (columns, f"drivers' own code: {own}, without a simulator")
        found = [
            columns,
            f"drivers' own code: {own}, outside of calls of umakit/device.h",
            f"simulators: {called} in these calls, which the product does not spend",
        ]
        if self.programs:
            found[-1] += f"; without the processes that simulate {' and '.join(self.programs)}"
        return tuple(found)

    def _legend(self) -> str:
        """Return the legend: unit of the columns, number of inferences, content of `CPU`."""
        what = "" if self.unit == "instructions" else "processor time "
        mean = f", mean of {self.runs:,}" if self.runs > 1 else ""
        text = f"{', '.join(each.header for each in self.columns)}: {what}of one inference{mean}"
        if not self._has_two_columns:
            return text
        return f"{text}; CPU: the driver's own code for a layer on an accelerator, else the step"

    @property
    def _has_two_columns(self) -> bool:
        return self.is_told_apart and self.answering == "simulator"

    def _clause(self, figure: Figure) -> str:
        unit = "instructions" if self.unit == "instructions" else "us of processor time"
        return f"{self._text(figure)} {unit}"

    def _text(self, figure: Figure) -> str:
        """Return a figure as text, a time in microseconds; empty if unknown."""
        if figure is None:
            return ""
        return f"{figure:,}" if self.unit == "instructions" else f"{figure * 1e6:,.1f}"

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of a table of rows; none without measurements."""
        if self.unit is None:
            return ()
        unit = "us" if self.unit == "seconds" else "instructions"
        if not self._has_two_columns:
            alone = unit if unit == "instructions" else f"host {unit}"
            return (self._column(alone, self.whole),)
        return (
            self._column(f"CPU {unit}", self.cpu),
            self._column(f"simulator {unit}", lambda row: self.device(row) or None),
        )

    def _column(self, header: str, of: Callable[[LayerRecord], Figure]) -> Column:
        def cell(row: LayerRecord) -> str:
            return self._text(None if row.owner == "between layers" else of(row))

        return Column(header, cell, self._text(sum(of(row) or 0 for row in self.rows)))

    def as_json(self) -> dict[str, Any]:
        return {
            "unit": self.unit,
            "answering": self.answering,
            "drivers": self.drivers if self.is_told_apart else None,
            "devices": self.devices if self.is_told_apart else None,
            "steps": self.steps,
            "sentences": list(self.sentences),
        }
