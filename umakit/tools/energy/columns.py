# SPDX-License-Identifier: Apache-2.0
"""Counts of events as a table of texts, for terminals and pages alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from umakit.machine.energy import EventCounts
from umakit.tools.columns import UNKNOWN, Column, TextTable, known_count
from umakit.tools.energy.events import network_energy
from umakit.tools.energy.picojoules import Energy, layer_energy
from umakit.tools.record import LayerRecord

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
class EventTable(TextTable):
    """A table of events by layer.

    Attributes:
        note: sentence about gaps in the energy; empty without gaps or figures.
        left_out: sentence about counts in the energy without a column; empty as for `note`.
    """

    note: str = ""
    left_out: str = ""


def event_table(layers: Sequence[LayerRecord]) -> EventTable | None:
    """Return the counts of each layer, preferably measured ones, and its energy.

    Returns:
        None without layers on accelerators.
    """
    own = [layer for layer in layers if not layer.on_cpu]
    if not own:
        return None
    memories = dict.fromkeys(name for layer in own for name in layer.counts.memories or {})
    total = EventCounts.total(layer.counts for layer in own)

    def column(header: str, of: Callable[[EventCounts], int | None]) -> Column:
        return Column(header, lambda layer: known_count(of(layer.counts)), known_count(of(total)))

    def plain(name: str) -> Callable[[EventCounts], int | None]:
        return lambda counts: counts.plain[name]

    def memory(name: str, side: str) -> Callable[[EventCounts], int | None]:
        return lambda counts: getattr((counts.memories or {}).get(name), side, None)

    columns = [column(header, plain(name)) for name, header in PLAIN.items()]
    for name in memories:
        columns.append(column(f"{name} read B", memory(name, "read_bytes")))
        columns.append(column("written B", memory(name, "written_bytes")))
    energy = network_energy(layers)
    if energy is not None:
        columns.append(
            Column(NANOJOULES, lambda each: energy_text(layer_energy(each)), energy_text(energy))
        )
    found = TextTable.of(own, columns, "total")
    return EventTable(
        found.columns, found.lines, found.total, missing_text(energy), _left_out(energy)
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
            parts.append(f"{', '.join(names)} ({said})")
    return f"energy is without {' and '.join(parts)}"
