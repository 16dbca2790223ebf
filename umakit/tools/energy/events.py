# SPDX-License-Identifier: Apache-2.0
"""Counts of events and energy of an inference, by layer. Imports neither TVM nor the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from umakit.devices.run import LayerProfile
from umakit.machine.energy import EnergySection, EventCounts
from umakit.tools.columns import view
from umakit.tools.energy.picojoules import Energy, counts_json, layer_energy
from umakit.tools.record import LayerRecord

CPU_STEPS = "CPU steps"
"""Name of the missing part of an energy if steps run on the CPU."""


def network_energy(layers: Sequence[LayerRecord]) -> Energy | None:
    """Return the energy of all layers; None if no accelerator has figures."""
    energies = [layer_energy(each) for each in layers if not each.on_cpu]
    known = [each for each in energies if each is not None]
    if not known:
        return None
    total = Energy.sum(known)
    missing = dict(total.missing)
    if len(known) < len(energies):
        missing["accelerators without [energy]"] = "no figure"
    if any(each.on_cpu for each in layers):
        missing[CPU_STEPS] = "not counted"
    return Energy(total.counted, missing)


def events_json(layers: Sequence[LayerRecord]) -> dict[str, Any]:
    """Return the events of an inference; keys are stable."""
    own = [each for each in layers if not each.on_cpu]
    by_accelerator = {
        name: [each for each in own if each.where == name]
        for name in dict.fromkeys(each.where for each in own)
    }
    energy = network_energy(layers)
    return {
        "layers": [
            view(each, "name where identity")
            | _sides(each.predicted, each.measured, each.energy_section)
            for each in own
        ],
        "accelerators": {
            name: {
                "layers": len(found),
                **_sides(
                    _total([each.predicted for each in found]),
                    _total([each.measured for each in found]),
                    found[0].energy_section,
                ),
            }
            for name, found in by_accelerator.items()
        },
        "cpu_steps": [each.kind for each in layers if each.on_cpu],
        "energy": None if energy is None else energy.as_json(),
    }


def energy_sections(description: Mapping[str, Any]) -> dict[str, EnergySection | None]:
    """Return the picojoules of events on each backend of a library; None without figures.

    Args:
        description: section `umakit` of the library's `metadata.json`.
    """
    views = ((each["name"], each.get("energy")) for each in description["backends"])
    return {
        name: None if view is None else EnergySection.model_validate(view) for name, view in views
    }


def _sides(
    predicted: EventCounts | None, measured: EventCounts | None, figures: EnergySection | None
) -> dict[str, Any]:
    sides = {"predicted": predicted, "measured": measured}
    return {
        name: None if counts is None else counts_json(counts, figures)
        for name, counts in sides.items()
    }


def _total(counts: Sequence[EventCounts | None]) -> EventCounts | None:
    known = [each for each in counts if each is not None]
    return EventCounts.total(known) if known and len(known) == len(counts) else None


def counts_of(layer: LayerProfile) -> EventCounts:
    """Return the measured counts of a layer on an accelerator in an inference.

    Args:
        layer: profile of the layer. Counts that its simulator lacks stay unknown.
    """
    accesses = (layer.register_reads, layer.register_writes)
    return EventCounts(
        macs=layer.macs if layer.device_macs is None else layer.device_macs,
        wasted_macs=_difference(layer.array_macs, layer.device_macs),
        bus_read_bytes=_difference(layer.moved_bytes, layer.written_bytes),
        bus_written_bytes=layer.written_bytes,
        register_accesses=sum(each or 0 for each in accesses) if None not in accesses else None,
        cycles=layer.clock_cycles,
        idle_cycles=_difference(layer.clock_cycles, layer.cycles),
        memories=layer.memories,
    )


def _difference(whole: int | None, part: int | None) -> int | None:
    return None if whole is None or part is None or part > whole else whole - part
