# SPDX-License-Identifier: Apache-2.0
"""Counts of events as a table of texts, for terminals and pages alike."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from umakit.machine.counts.events import EventCounts
from umakit.tools.energy.events import NetworkEvents
from umakit.tools.energy.picojoules import Energy, layer_energy

UNKNOWN = "-"
"""Text for a figure that is not known."""

PLAIN = {
    "macs": "MACs",
    "wasted_macs": "wasted",
    "bus_read_bytes": "bus read B",
    "bus_written_bytes": "written B",
    "register_accesses": "registers",
}
"""Headers of columns by name of the count."""

NANOJOULES = "nJ"


@dataclass(frozen=True)
class EventTable:
    """A table of events by layer.

    Attributes:
        headers: headers of the columns after the layer's name.
        lines: name and figures of each layer.
        total: the sums of all layers.
        note: sentence about gaps in the energy; empty without gaps or figures.
        left_out: sentence about counts in the energy without a column; empty as for `note`.
    """

    headers: tuple[str, ...]
    lines: tuple[tuple[str, tuple[str, ...]], ...]
    total: tuple[str, ...]
    note: str
    left_out: str


def event_table(events: NetworkEvents) -> EventTable | None:
    """Return the counts of each layer, preferably measured ones, and its energy.

    Returns:
        None without layers on accelerators.
    """
    if not events.layers:
        return None
    memories = list(
        dict.fromkeys(name for layer in events.layers for name in layer.counts.memories or {})
    )
    has_energy = events.energy is not None
    headers = [*PLAIN.values()]
    for name in memories:
        headers += [f"{name} read B", "written B"]
    headers += [NANOJOULES] if has_energy else []

    def cells(counts: EventCounts, energy: Energy | None) -> tuple[str, ...]:
        found = [_count(counts.plain[name]) for name in PLAIN]
        for name in memories:
            memory = (counts.memories or {}).get(name)
            found += [
                _count(None if memory is None else memory.read_bytes),
                _count(None if memory is None else memory.written_bytes),
            ]
        return (*found, *([energy_text(energy)] if has_energy else []))

    total = EventCounts.total(layer.counts for layer in events.layers)
    return EventTable(
        tuple(headers),
        tuple((layer.name, cells(layer.counts, layer_energy(layer))) for layer in events.layers),
        cells(total, events.energy),
        missing_text(events.energy),
        _left_out(events.energy),
    )


def _left_out(energy: Energy | None) -> str:
    """Return a sentence about an energy's counts without a column; empty without any."""
    shown = ("read_bytes", "written_bytes")
    names = [] if energy is None else [
        name for name in energy.counted if name not in PLAIN and not name.endswith(shown)
    ]  # fmt: skip
    if not names:
        return ""
    return f"{NANOJOULES} includes counts without a column, which --json has: {', '.join(names)}"


def energy_text(energy: Energy | None) -> str:
    """Return an energy in nanojoules; with `>=` in front if something is missing."""
    if energy is None or not energy.counted:
        return UNKNOWN
    text = f"{energy.at_least / 1000:,.3f}"
    return text if energy.total is not None else f">= {text}"


def missing_text(energy: Energy | None) -> str:
    """Return a sentence about the gaps of an energy; empty without gaps."""
    if energy is None or not energy.missing:
        return ""
    parts = []
    for why, said in (
        ("no figure", "without a figure in [energy]"),
        ("not counted", "not counted"),
    ):
        names = [name for name, reason in energy.missing.items() if reason == why]
        if names:
            parts.append(f"{_listed(names)} ({said})")
    return f"energy is without {' and '.join(parts)}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _count(count: int | None) -> str:
    return UNKNOWN if count is None else f"{count:,}"
