# SPDX-License-Identifier: Apache-2.0
"""Cycles of steps on the CPU, by the costs in the description of the library's CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from umakit.devices.profiles import LayerProfile
from umakit.tools.record import Source


@dataclass(frozen=True)
class CpuCycles:
    """The conversion of the CPU's figures to cycles of the accelerators' clock.

    Attributes:
        per_instruction: cycles of the CPU for an instruction; None if unknown.
        factor: cycles of the accelerators for a cycle of the CPU.
        clocks: source of the factor, as a clause.
    """

    per_instruction: float | None
    factor: float
    clocks: str

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> CpuCycles:
        """Return the conversion of a library; unknown or several clocks count as equal.

        Args:
            description: section `umakit` of the library's `metadata.json`.
        """
        costs = (description.get("cpu") or {}).get("costs") or {}
        own: float | None = costs.get("clock_mhz")
        per_instruction: float | None = costs.get("cycles_per_instruction")
        others = {backend.get("clock_mhz") for backend in description.get("backends", ())}
        clock: float | None = others.pop() if len(others) == 1 else None
        if own is None or clock is None:
            return cls(per_instruction, 1.0, "clocks taken as equal")
        return cls(per_instruction, clock / own, f"clocks of {own:g} and {clock:g} MHz")

    def cycles(self, layer: Mapping[str, Any], profile: LayerProfile) -> tuple[int | None, Source]:
        """Return the cycles of a step that ran, and their source.

        Args:
            layer: the step in the library's metadata.
            profile: measurements of the step.
        """
        if profile.instructions is not None and self.per_instruction is not None:
            return round(profile.instructions * self.per_instruction * self.factor), "counted"
        predicted = self.predicted(layer)
        return predicted, "unknown" if predicted is None else "predicted"

    def predicted(self, layer: Mapping[str, Any]) -> int | None:
        """Return the predicted cycles of a step of the library's metadata; None if unknown."""
        cycles: int | None = layer.get("cpu_cycles")
        return None if cycles is None else round(cycles * self.factor)
