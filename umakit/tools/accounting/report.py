# SPDX-License-Identifier: Apache-2.0
"""The report of an inference: its layers, the network's totals, and the settings of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from umakit.devices.totals import CycleTotals, included
from umakit.tools.accounting.host import Answering, Host
from umakit.tools.columns import known_sum, view
from umakit.tools.energy.events import events_json, network_energy
from umakit.tools.energy.picojoules import Energy
from umakit.tools.record import LayerRecord, Parts, Source

CPU_SOURCES: Mapping[Source, str] = {
    "scaled": "scaled from host time at {:,.0f} Hz",
    "counted": "of counted instructions",
    "predicted": "predicted",
}
"""Phrases of totals about the cycles of CPU steps."""


@dataclass(frozen=True)
class RunReport:
    """The layers of an inference, measured as means of several inferences, predicted, or both.

    Attributes:
        rows: layers and steps in execution order; of a run, then the row between them.
        inferences: number of measured inferences; 0 for a prediction.
        clock_cycles: cycles of the accelerators' clocks from begin to end of the inference, as
            counted by their simulators: the sum of the `clock_cycles` of `rows`. Libraries of older
            versions provide only this sum. None if nothing was measured.
        is_whole: whether `clock_cycles` was measured from begin to end.
        cpu_clock: cycles a second by which CPU steps are scaled; None if they are not.
        clocks: conversion of the CPU's cycles to the accelerators' clock, as a clause; empty
            without CPU cycles, or if they are scaled.
        answering: source of the answers to accelerator layers.
        programs: accelerators whose simulators are separate processes.
    """

    rows: tuple[LayerRecord, ...]
    inferences: int = 0
    clock_cycles: int | None = None
    is_whole: bool = False
    cpu_clock: float | None = None
    clocks: str = ""
    answering: Answering = "simulator"
    programs: tuple[str, ...] = ()

    @property
    def host(self) -> Host:
        return Host.of(self.layers, self.answering, self.programs, self.inferences)

    @property
    def layers(self) -> tuple[LayerRecord, ...]:
        """The layers on accelerators and the CPU steps."""
        return tuple(row for row in self.rows if row.owner != "between layers")

    @property
    def offloaded(self) -> tuple[LayerRecord, ...]:
        return tuple(row for row in self.rows if row.owner == "layer")

    @property
    def cpu_steps(self) -> tuple[LayerRecord, ...]:
        return tuple(row for row in self.rows if row.on_cpu)

    # --- totals of accelerators -------------------------------------------------------------------

    @property
    def cycle_totals(self) -> CycleTotals:
        """Sums of measured and of predicted cycles, with the numbers of included layers."""
        return CycleTotals.of(self.layers)

    @property
    def predicted_cycles(self) -> int | None:
        """The predicted cycles of all layers on accelerators; None without, or if one has none."""
        return known_sum(layer.predicted_cycles for layer in self.offloaded)

    @property
    def predicted_bytes(self) -> int | None:
        """The predicted bytes over the bus of these layers; None as for `predicted_cycles`."""
        return known_sum(layer.predicted_bytes for layer in self.offloaded)

    @property
    def moved_bytes(self) -> int | None:
        """The measured bytes over the bus of these layers; None as for `predicted_cycles`."""
        return known_sum(layer.moved_bytes for layer in self.offloaded)

    @property
    def energy(self) -> Energy | None:
        """The energy of all layers, CPU steps missing; None if no accelerator has figures."""
        return network_energy(self.layers)

    @property
    def events(self) -> dict[str, Any]:
        return events_json(self.layers)

    # --- cycles by owner --------------------------------------------------------------------------

    @property
    def parts(self) -> Parts | None:
        """The sums of the parts of all rows; None if nothing was measured."""
        known = [row.parts for row in self.rows if row.parts is not None]
        return None if self.clock_cycles is None else Parts.total(known)

    @property
    def cpu_cycles(self) -> int | None:
        """The cycles of all CPU steps; None if unknown."""
        cycles = [row.cpu_cycles for row in self.cpu_steps]
        return None if None in cycles else sum(each or 0 for each in cycles)

    @property
    def cpu_sources(self) -> tuple[Source, ...]:
        """The sources of the cycles of the CPU steps, without repetition."""
        return tuple(dict.fromkeys(row.cpu_source or "unknown" for row in self.cpu_steps))

    @property
    def unknown_layers(self) -> int:
        """The number of unmeasured layers on accelerators."""
        return sum(row.clock_cycles is None for row in self.offloaded)

    @property
    def cycles(self) -> int | None:
        """The cycles of the inference, including the CPU's; None if a part is unknown."""
        if self.clock_cycles is None or self.cpu_cycles is None or self.unknown_layers:
            return None
        return self.clock_cycles + self.cpu_cycles

    @property
    def by_accelerator(self) -> dict[str, int | None]:
        """The clock cycles of the layers of each accelerator; None if a layer's are unknown."""
        found: dict[str, int | None] = {}
        for row in self.offloaded:
            before = found.get(row.where, 0)
            unknown = before is None or row.clock_cycles is None
            found[row.where] = None if unknown else (before or 0) + (row.clock_cycles or 0)
        return found

    @property
    def cpu_summary(self) -> str:
        """The CPU steps, as `3 steps on the CPU: 2 x quantize, transpose`."""
        steps = self.cpu_steps
        if not steps:
            return "no steps on the CPU"
        kinds = Counter(row.kind for row in steps)
        names = (f"{count} x {kind}" if count > 1 else kind for kind, count in kinds.items())
        return f"{_counted(len(steps), 'step')} on the CPU: {', '.join(names)}"

    @property
    def headline(self) -> str:
        """The share of multiply-accumulates on accelerators, and the CPU steps."""
        total = sum(row.macs for row in self.rows)
        own = sum(row.macs for row in self.offloaded)
        share = f"{100 * own / total:.1f} % of {total:,} MACs" if total else "no MACs"
        return f"{share} on accelerators; {self.cpu_summary}"

    @property
    def total_text(self) -> str:
        """The total of cycles and its gaps; empty without layers on accelerators."""
        layers, steps = len(self.offloaded), len(self.cpu_steps)
        if not layers:
            return ""
        known = "unknown" if self.clock_cycles is None else f"{self.clock_cycles:,} cycles"
        said = included(layers - self.unknown_layers, layers, 0)
        text = f"total: {known} ({said})"
        if not steps:
            return text
        if self.cpu_cycles is None:
            return f"{text} + {_counted(steps, 'CPU step')}, unknown"
        whole = "" if self.cycles is None else f"; {self.cycles:,} cycles in all"
        own = f"{self.cpu_cycles:,} of {_counted(steps, 'CPU step')}, {self._cpu_text}"
        return f"{text} + {own}{whole}"

    @property
    def _cpu_text(self) -> str:
        """The sources of the cycles of the CPU steps, as a clause."""
        said = [CPU_SOURCES[each].format(self.cpu_clock or 0) for each in self.cpu_sources]
        return ", ".join([" and ".join(said), *([self.clocks] if self.clocks else [])])

    def as_json(self) -> dict[str, Any]:
        """Return the owners of cycles; keys are stable."""
        return {
            **view(self, "inferences clock_cycles measured_from_begin_to_end:is_whole"),
            "unknown_layers": self.unknown_layers,
            "cpu_steps": len(self.cpu_steps),
            **view(self, "cpu_clock_hz:cpu_clock cpu_cycles cpu_sources clocks cycles"),
            **view(self, "by_accelerator headline host parts rows"),
        }


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
