# SPDX-License-Identifier: Apache-2.0
"""The differences of two reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from umakit.tools.columns import view
from umakit.tools.comparison.figures import (
    FIGURES,
    MEASURED,
    PREDICTED,
    TIMES,
    Figure,
    total,
    waits_of,
)
from umakit.tools.comparison.lines import Change, Line, lines_of
from umakit.tools.comparison.saved import Report
from umakit.tools.record import LayerRecord
from umakit.version import __version__

FORMAT = "umakit comparison"
VERSION = 1


@dataclass(frozen=True)
class Compared(Change):
    """A figure of two networks.

    Attributes:
        unknown: reason for a missing change, as a clause; empty if there is a change.
    """

    figure: Figure
    unknown: str = ""

    @property
    def change(self) -> int | None:
        """Increase from A to B; None if both cannot be compared."""
        return None if self.unknown else super().change

    def as_json(self) -> dict[str, Any]:
        return view(self.figure, "name unit") | view(self, "a b change percent unknown")


@dataclass(frozen=True)
class Comparison:
    """Two reports side by side.

    Attributes:
        a, b: the reports; changes are from A to B.
    """

    a: Report
    b: Report
    names: tuple[str, str] = ("A", "B")

    @cached_property
    def basis(self) -> Figure:
        """The figure that layers are compared by.

        These are measured cycles, or predicted cycles if the networks have only these in common.
        """
        measured = self.compared(MEASURED)
        predicted = self.compared(PREDICTED)
        only = measured.change is None and predicted.change is not None
        return PREDICTED if only else MEASURED

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """All layers: first those moved to the CPU, then by the change of their cycles."""
        return tuple(sorted(lines_of(self.a, self.b), key=self._order))

    @cached_property
    def figures(self) -> tuple[Compared, ...]:
        """All figures that one of the networks has, with single waits after their sum."""
        found = []
        for figure in FIGURES:
            found.append(self.compared(figure))
            if figure.name == "waits":
                found += [self.compared(each) for each in waits_of(self.a, self.b)]
        return (*found, *map(self.compared, TIMES))

    def compared(self, figure: Figure) -> Compared:
        """Return a figure of both networks, and the reason if it cannot be compared."""
        a, b = figure.of(self.a), figure.of(self.b)
        missing = [name for name, value in (("A", a), ("B", b)) if value is None]
        unknown = f"{' and '.join(missing)}: {figure.unknown[0]}" if missing else ""
        if not missing and figure.same(self.a) != figure.same(self.b):
            unknown = f"A has it for {figure.same(self.a)}, B for {figure.same(self.b)}"
        return Compared(a, b, figure, unknown)

    @property
    def moved_to_cpu(self) -> tuple[Line, ...]:
        """Layers with parts on an accelerator in A and on the CPU in B."""
        return tuple(line for line in self.lines if line.move == "to the CPU")

    @property
    def changed(self) -> tuple[Line, ...]:
        return tuple(line for line in self.lines if self.is_changed(line))

    def is_changed(self, line: Line) -> bool:
        """Whether a layer differs: networks, place, tiling, number of steps, or a figure."""
        if line.status != "both" or line.move or line.is_cut_otherwise:
            return True
        if line.where[0] != line.where[1] and not self.is_of_machines(line):
            return True
        if len(line.a) != len(line.b):
            return True
        layered = [figure for figure in FIGURES if figure.of_step is not None]
        changes = [line.of(figure) for figure in layered]
        return any(change.a != change.b for change in changes)

    def is_of_machines(self, line: Line) -> bool:
        """Whether a layer runs on the only accelerator of A, and on the only one of B."""
        sides = zip((self.a, self.b), line.where, strict=True)
        return all([each.name for each in side.accelerators] == [where] for side, where in sides)

    @property
    def cut_otherwise(self) -> int | None:
        """The number of layers whose tilings differ; None if a tiling is unknown."""
        return total(line.is_cut_otherwise for line in self.lines)

    def between(self, figure: Figure) -> Change:
        a, b = (
            0 if row is None else figure.between(row) for row in (self.a.between, self.b.between)
        )
        return Change(a, b)

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the two networks for a reader, a sentence each."""
        found = []
        if self.a.model_sha256 != self.b.model_sha256:
            found.append("A and B are different models; layers are matched by operators' names")
        if self.a.umakit_version != self.b.umakit_version:
            versions = f"umakit {self.a.umakit_version}, B of {self.b.umakit_version}"
            found.append(f"A is of {versions}")
        if self.a.inputs != self.b.inputs:
            found.append(f"inputs differ: {self.a.inputs} in A, {self.b.inputs} in B")
        if self.basis is PREDICTED:
            found.append("cycles of layers are predicted ones: not all of both were measured")
        elif self.compared(MEASURED).change is None:
            found.append("cycles in all are not compared: measured and predicted ones never are")
        return tuple(found)

    def as_json(self) -> dict[str, Any]:
        """Return all differences by name, with stable keys; unknown values are null."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "umakit_version": __version__,
            "a": _side(self.a, self.names[0]),
            "b": _side(self.b, self.names[1]),
            "notes": list(self.notes),
            "moved_to_cpu": [line.key for line in self.moved_to_cpu],
            "moved_from_cpu": [line.key for line in self.lines if line.move == "from the CPU"],
            "changed_tilings": self.cut_otherwise,
            "changed_layers": len(self.changed),
            "figures": [each.as_json() for each in self.figures],
            "basis": self.basis.name,
            "layers": [self._line(line) for line in self.lines],
            "between_layers": _figures(self.between),
        }

    def _line(self, line: Line) -> dict[str, Any]:
        return {
            "key": line.key,
            "status": line.status,
            "changed": self.is_changed(line),
            "moved": line.move,
            "reasons": list(line.reasons),
            "a": _steps(line.a, line.where[0], line.tilings[0]),
            "b": _steps(line.b, line.where[1], line.tilings[1]),
            "tiling_changed": line.is_cut_otherwise,
            "figures": _figures(line.of),
        }

    def _order(self, line: Line) -> tuple[int, int]:
        """Return a sort key: moved to the CPU, unknown changes, then large changes first."""
        change = line.of(self.basis).change
        if line.move == "to the CPU":
            return (0, 0)
        return (1, 0) if change is None else (2, -abs(change))


def _side(report: Report, name: str) -> dict[str, Any]:
    return {
        "name": name,
        **view(report, "model model_sha256 umakit_version"),
        "accelerators": [each.name for each in report.accelerators],
        "inputs": report.inputs,
    }


def _steps(
    steps: Sequence[LayerRecord], where: str, tilings: Sequence[str] | None
) -> dict[str, Any]:
    return {
        "layers": [step.known_identity.as_json() for step in steps],
        "where": where,
        "tilings": None if tilings is None else list(tilings),
    }


def _figures(of: Any) -> dict[str, Any]:
    return {
        figure.name: view(of(figure), "a b change percent")
        for figure in FIGURES
        if figure.of_step is not None
    }
