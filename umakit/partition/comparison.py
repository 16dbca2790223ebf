# SPDX-License-Identifier: Apache-2.0
"""Comparison of a network's total cost in several assignments to accelerators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

EACH_LAYER = "fewest cycles for each layer"


@dataclass(frozen=True)
class Whole:
    """The cost of a network on accelerators.

    Attributes:
        name: assignment of layers to accelerators, such as `order strawberry, chocolate`.
        cycles: sum of the known cycles of layers on accelerators, in cycles of the first
            accelerator if all clocks are known and the CPU is a candidate; else clocks count as
            equal.
        measured, predicted, unknown: numbers of layers by source of their cycles.
        transposed: elements moved by added transposes; 1 cycle each.
        on_cpu: assumed CPU cycles of operators that an accelerator could take: the prediction if
            the CPU has costs, else multiply-accumulates, or elements of the result if these are
            more.
        uncounted: operators without known cycles in this way, among the operators without cycles in
            some way.
        failed: reason of a failed compilation; empty otherwise.
        is_each_layer: whether each layer went to the accelerator with its fewest cycles.
    """

    name: str
    cycles: int = 0
    measured: int = 0
    predicted: int = 0
    unknown: int = 0
    transposed: int = 0
    on_cpu: int = 0
    uncounted: int = 0
    failed: str = ""
    is_each_layer: bool = False

    @property
    def cost(self) -> int:
        """Known cycles on accelerators, with the cycles counted for transposes and the CPU."""
        return self.cycles + self.transposed + self.on_cpu

    @property
    def is_known(self) -> bool:
        """Whether cycles of any layer are known, or no layer is on an accelerator."""
        return bool(self.measured or self.predicted or not self.unknown)

    @property
    def title(self) -> str:
        """The name, and whether each layer went to the accelerator with its fewest cycles."""
        if not self.is_each_layer or self.name == EACH_LAYER:
            return self.name
        return f"{self.name} ({EACH_LAYER})"

    @property
    def sources(self) -> str:
        """The sources of the cycles of all layers, such as `3 measured, 1 unknown`."""
        counts = (f"{count} {name}" for name, count in self._layers().items() if count)
        return ", ".join(counts) or "none"

    def _layers(self) -> dict[str, int]:
        return {"measured": self.measured, "predicted": self.predicted, "unknown": self.unknown}

    def as_json(self) -> dict[str, Any]:
        """Return all figures by name; keys are stable."""
        known = self.is_known and not self.failed
        return {
            "name": self.name,
            "cost": self.cost if known else None,
            "cycles": self.cycles if known else None,
            "layers": self._layers(),
            "transposed_elements": self.transposed,
            "on_cpu": self.on_cpu,
            "failed": self.failed,
            "is_each_layer": self.is_each_layer,
        }


@dataclass(frozen=True)
class Comparison:
    """The compared ways.

    Attributes:
        ways: all ways, the user's order first.
        taken: index of the way taken.
    """

    ways: tuple[Whole, ...]
    taken: int

    @property
    def best(self) -> Whole:
        return self.ways[self.taken]

    @property
    def saved(self) -> int | None:
        """Cycles saved against the user's order; None if not comparable."""
        given, best = self.ways[0], self.best
        if given.failed or given.uncounted != best.uncounted:
            return None
        return given.cost - best.cost

    def __str__(self) -> str:
        given, best = self.ways[0], self.best
        each = next((way for way in self.ways if way.is_each_layer), None)
        text = f"chosen by cycles: {best.title}, {_figures(best)}"
        if best is not given:
            text += f"; {given.name}: {_figures(given)}"
        if self.saved is None:
            text += "; not comparable, since different layers have no known cycles"
        elif best is not given:
            share = f" ({100 * self.saved / given.cost:.1f} %)" if given.cost else ""
            text += f"; saves {self.saved:,} cycles{share}"
        else:
            text += "; saves nothing against the order given"
        if each is not None and each is not best:
            text += f"; {each.name} would take {_figures(each)} as a whole"
        return text

    def as_json(self) -> dict[str, Any]:
        """Return `taken`, `saved_cycles` and the list `ways`; keys are stable."""
        ways = [way.as_json() for way in self.ways]
        return {"taken": self.best.name, "saved_cycles": self.saved, "ways": ways}


def _figures(way: Whole) -> str:
    if way.failed:
        return f"not compiled ({way.failed})"
    text = f"{way.cost:,} cycles" if way.is_known else "cycles unknown"
    parts = [f"{way.transposed:,} for transposes"] if way.transposed else []
    parts += [f"{way.on_cpu:,} for operators left to the CPU"] if way.on_cpu else []
    counted = f", with {' and '.join(parts)}" if parts else ""
    return f"{text}{counted} (layers: {way.sources})"
