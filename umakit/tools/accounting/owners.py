# SPDX-License-Identifier: Apache-2.0
"""Cycles of an inference by their owners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from umakit.devices.totals import included
from umakit.tools.accounting.host import Answering, Host
from umakit.tools.columns import view
from umakit.tools.record import LayerRecord, Parts, Source

CPU_SOURCES: Mapping[Source, str] = {
    "scaled": "scaled from host time at {:,.0f} Hz",
    "counted": "of counted instructions",
    "predicted": "predicted",
}
"""Phrases of totals about the cycles of CPU steps."""


@dataclass(frozen=True)
class Accounting:
    """All cycles of an inference by their owners, as means of several inferences.

    Attributes:
        rows: layers and steps in execution order, then the row between them.
        inferences: number of inferences.
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
    inferences: int
    clock_cycles: int | None
    is_whole: bool
    cpu_clock: float | None = None
    clocks: str = ""
    answering: Answering = "simulator"
    programs: tuple[str, ...] = ()

    @property
    def host(self) -> Host:
        """Processor time, or instructions, of the inference on the host."""
        return Host.of(self.rows, self.answering, self.programs, self.inferences)

    @property
    def layers(self) -> tuple[LayerRecord, ...]:
        return tuple(row for row in self.rows if row.owner == "layer")

    @property
    def cpu_steps(self) -> tuple[LayerRecord, ...]:
        return tuple(row for row in self.rows if row.owner == "cpu step")

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
        return sum(row.clock_cycles is None for row in self.layers)

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
        for row in self.layers:
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
        own = sum(row.macs for row in self.layers)
        share = f"{100 * own / total:.1f} % of {total:,} MACs" if total else "no MACs"
        return f"{share} on accelerators; {self.cpu_summary}"

    @property
    def total_text(self) -> str:
        """The total of cycles and its gaps; empty without layers on accelerators."""
        layers, steps = len(self.layers), len(self.cpu_steps)
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
        return {
            **view(self, "inferences clock_cycles measured_from_begin_to_end:is_whole"),
            "unknown_layers": self.unknown_layers,
            "cpu_steps": len(self.cpu_steps),
            **view(self, "cpu_clock_hz:cpu_clock cpu_cycles cpu_sources clocks cycles"),
            **view(self, "by_accelerator headline host parts rows"),
        }


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
