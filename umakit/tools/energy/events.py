# SPDX-License-Identifier: Apache-2.0
"""Counts of events and energy of an inference, by layer. Imports neither TVM nor the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from umakit.devices.run import LayerProfile
from umakit.library.identities import cpu_step_kind
from umakit.machine.counts.events import EventCounts
from umakit.machine.energy_config import EnergySection
from umakit.text.identities import LayerIdentity
from umakit.tools.energy.picojoules import Energy, counts_json, energy_of, figures_from_json

CPU = "cpu"

CPU_STEPS = "CPU steps"
"""Name of the missing part of an energy if steps run on the CPU."""


@dataclass(frozen=True)
class LayerEvents:
    """The events of a layer on an accelerator in an inference.

    Attributes:
        name, where, identity: name, backend and identity of the layer.
        predicted: counts by the cost model; None without a prediction.
        measured: counts by the simulator; None if the layer was not run.
        figures: picojoules of the events on its accelerator; None if its `accel.toml` has none.
    """

    name: str
    where: str
    identity: LayerIdentity | None
    predicted: EventCounts | None
    measured: EventCounts | None
    figures: EnergySection | None

    @property
    def counts(self) -> EventCounts:
        """The measured counts, else the predicted counts."""
        return self.measured or self.predicted or EventCounts()

    @property
    def energy(self) -> Energy | None:
        """The energy of `counts`; None without figures."""
        return None if self.figures is None else energy_of(self.counts, self.figures)

    def as_json(self) -> dict[str, Any]:
        """Return all figures by name; keys are stable."""
        return {
            "name": self.name,
            "where": self.where,
            "identity": None if self.identity is None else self.identity.as_json(),
            **_sides(self.predicted, self.measured, self.figures),
        }


@dataclass(frozen=True)
class NetworkEvents:
    """The events of an inference.

    Attributes:
        layers: the layers on accelerators, in execution order.
        cpu_steps: kinds of the CPU steps, whose events are not counted.
    """

    layers: tuple[LayerEvents, ...]
    cpu_steps: tuple[str, ...]

    @property
    def energy(self) -> Energy | None:
        """The energy of all layers without CPU steps.

        None if no accelerator has figures.
        """
        energies = [each.energy for each in self.layers]
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
            "layers": [each.as_json() for each in self.layers],
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
        return {"layers": len(own), **_sides(predicted, measured, own[0].figures)}


def events_of_run(
    description: Mapping[str, Any],
    layers: Sequence[LayerProfile],
    predicted: Sequence[EventCounts | None] | None = None,
) -> NetworkEvents:
    """Return the events of a run with a profile.

    Args:
        description: section `umakit` of the library's `metadata.json`.
        layers: measurements of all layers.
        predicted: predicted counts of all layers; default: none.
    """
    figures = {
        each["name"]: figures_from_json(each.get("energy")) for each in description["backends"]
    }
    expected = predicted or [None] * len(layers)
    own = tuple(
        LayerEvents(
            each.name, each.where, each.identity, counts, counts_of(each), figures[each.where]
        )
        for each, counts in zip(layers, expected, strict=True)
        if each.where != CPU
    )
    steps = tuple(
        cpu_step_kind(layer, description["operators"])
        for layer in description["layers"]
        if layer["where"] == CPU
    )
    return NetworkEvents(own, steps)


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
