# SPDX-License-Identifier: Apache-2.0
"""Energy of counted events, from the figures of `[energy]` in `accel.toml`.

Energy is the sum over kinds of events of their number times the picojoules of one. Only kinds with
both are added up; the others are listed with the missing part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from umakit.machine.energy import EnergySection, EventCounts, MemoryCounts, MemoryEnergy
from umakit.tools.columns import view
from umakit.tools.record import LayerRecord

Missing = Literal["no figure", "not counted"]
"""Reasons for omitting events: `[energy]` has no figure, or their number is unknown."""

FIGURES = {
    "macs": "mac",
    "wasted_macs": "wasted_mac",
    "bus_read_bytes": "bus_read_byte",
    "bus_written_bytes": "bus_written_byte",
    "register_accesses": "register_access",
    "cycles": "cycle",
    "idle_cycles": "idle_cycle",
}
"""Key of `[energy]` by name of the count."""

SIDES = (
    {"reads": "read", "read_bytes": "read_byte"},
    {"writes": "write", "written_bytes": "written_byte"},
)
"""Keys of `[energy.memory.NAME]` by name of the count: one of each side is enough."""


@dataclass(frozen=True)
class Energy:
    """Energy of events in picojoules.

    Attributes:
        counted: picojoules by kind of events, such as `macs` or `memory.scratchpad.reads`.
        missing: omitted kinds, with the reason.
    """

    counted: Mapping[str, float]
    missing: Mapping[str, Missing]

    @property
    def at_least(self) -> float:
        """The sum of the counted energy, a lower bound."""
        return math.fsum(self.counted.values())

    @property
    def total(self) -> float | None:
        """The energy; None if anything is missing."""
        return None if self.missing else self.at_least

    @classmethod
    def sum(cls, energies: Iterable[Energy]) -> Energy:
        """Return the sum; a kind that one of them lacks counts for the others, and as missing."""
        counted: dict[str, list[float]] = {}
        missing: dict[str, Missing] = {}
        for each in energies:
            for name, value in each.counted.items():
                counted.setdefault(name, []).append(value)
            missing |= each.missing
        return cls({name: math.fsum(values) for name, values in counted.items()}, missing)

    def as_json(self) -> dict[str, Any]:
        names = "total_picojoules:total at_least_picojoules:at_least counted not_counted:missing"
        return view(self, names)


def energy_of(counts: EventCounts, section: EnergySection) -> Energy:
    """Return the energy of counted events.

    Events that do not happen need no figure. `idle_cycle` is on top of `cycle` and may be omitted.
    Of a memory's reads, and of its writes, either the accesses or their bytes need a figure.
    """
    counted: dict[str, float] = {}
    missing: dict[str, Missing] = {}
    for name, count in counts.plain.items():
        figure = getattr(section, FIGURES[name])
        if figure is None and (name == "idle_cycles" or count == 0):
            continue
        _add(name, count, figure, counted, missing)
    for name, memory, figures in _memories(counts, section):
        if figures is None and memory is None:
            missing[name] = "no figure"
            continue
        accesses, known = memory or MemoryCounts(), figures or MemoryEnergy()
        for side in SIDES:
            _add_side(name, side, accesses, known, counted, missing)
    return Energy(counted, missing)


def layer_energy(layer: LayerRecord) -> Energy | None:
    """Return the energy of a layer's `counts`; None without counts or picojoules."""
    if layer.energy_section is None or (layer.measured or layer.predicted) is None:
        return None
    return energy_of(layer.counts, layer.energy_section)


def _memories(
    counts: EventCounts, section: EnergySection
) -> Iterator[tuple[str, MemoryCounts | None, MemoryEnergy | None]]:
    """Yield the memories with counts or figures, by name of their events."""
    known = counts.memories or {}
    for name in dict.fromkeys([*known, *section.memory]):
        yield f"memory.{name}", known.get(name), section.memory.get(name)
    if counts.memories is None and not section.memory:
        yield "memory", None, None


def _add_side(
    name: str,
    side: Mapping[str, str],
    accesses: MemoryCounts,
    figures: MemoryEnergy,
    counted: dict[str, float],
    missing: dict[str, Missing],
) -> None:
    counts = {key: getattr(accesses, key) for key in side}
    given = {key: getattr(figures, one) for key, one in side.items()}
    if all(each is None for each in given.values()):
        if 0 not in counts.values():
            missing[f"{name}.{next(iter(side))}"] = "no figure"
        return
    for key, figure in given.items():
        if figure is not None:
            _add(f"{name}.{key}", counts[key], figure, counted, missing)


def _add(
    name: str,
    count: int | None,
    figure: float | None,
    counted: dict[str, float],
    missing: dict[str, Missing],
) -> None:
    if figure is None:
        missing[name] = "no figure"
    elif count is None:
        missing[name] = "not counted"
    else:
        counted[name] = count * figure


def counts_json(counts: EventCounts, section: EnergySection | None) -> dict[str, Any]:
    """Return counts with their energy, which is null without figures."""
    energy = None if section is None else energy_of(counts, section).as_json()
    return {**counts.as_json(), "energy": energy}
