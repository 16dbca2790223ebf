# SPDX-License-Identifier: Apache-2.0
"""Counts of events and energy of an inference, by layer. Imports neither TVM nor the pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from umakit.devices.run import LayerProfile
from umakit.machine.energy import EnergySection, EventCounts
from umakit.tools.columns import view
from umakit.tools.energy.picojoules import Energy, counts_json, layer_energy
from umakit.tools.record import LayerRecord

CPU_STEPS = "CPU steps"
"""Name of the missing part of an energy if steps run on the CPU."""


@dataclass(frozen=True)
class NetworkEvents:
    """The events of an inference.

    Attributes:
        layers: the layers on accelerators, in execution order.
        cpu_steps: kinds of the CPU steps, whose events are not counted.
    """

    layers: tuple[LayerRecord, ...]
    cpu_steps: tuple[str, ...]

    @classmethod
    def of(cls, records: Iterable[LayerRecord]) -> NetworkEvents:
        """Return the events of the layers of a run."""
        found = list(records)
        own = tuple(each for each in found if each.owner == "layer")
        return cls(own, tuple(each.kind for each in found if each.on_cpu))

    @property
    def energy(self) -> Energy | None:
        """The energy of all layers without CPU steps.

        None if no accelerator has figures.
        """
        energies = [layer_energy(each) for each in self.layers]
        known = [each for each in energies if each is not None]
        if not known:
            return None
        total = Energy.sum(known)
        missing = dict(total.missing)
        if len(known) < len(energies):
            missing["accelerators without [energy]"] = "no figure"
        if self.cpu_steps:
            missing[CPU_STEPS] = "not counted"
        return Energy(total.counted, missing)

    @property
    def total_predicted(self) -> EventCounts | None:
        """The sums of predicted counts; None if nothing is predicted for a layer."""
        return _total([each.predicted for each in self.layers])

    @property
    def total_measured(self) -> EventCounts | None:
        """The sums of measured counts; None if the layers were not run."""
        return _total([each.measured for each in self.layers])

    def as_json(self) -> dict[str, Any]:
        """Return all figures by name; keys are stable."""
        return {
            "layers": [
                view(each, "name where identity")
                | _sides(each.predicted, each.measured, each.energy_section)
                for each in self.layers
            ],
            "accelerators": {name: self._accelerator(name) for name in self.accelerators},
            "cpu_steps": list(self.cpu_steps),
            "energy": None if self.energy is None else self.energy.as_json(),
        }

    @property
    def accelerators(self) -> tuple[str, ...]:
        """The accelerators of the layers, in order of first use."""
        return tuple(dict.fromkeys(each.where for each in self.layers))

    def _accelerator(self, name: str) -> dict[str, Any]:
        own = [each for each in self.layers if each.where == name]
        predicted = _total([each.predicted for each in own])
        measured = _total([each.measured for each in own])
        return {"layers": len(own), **_sides(predicted, measured, own[0].energy_section)}


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
