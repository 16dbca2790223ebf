# SPDX-License-Identifier: Apache-2.0
"""Totals over measured, predicted and unknown layers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

Source = Literal["measured", "predicted", "unknown", "cpu"]
"""Sources of a layer's cycles. Cycles of the CPU are neither simulated nor predicted."""


class Layer(Protocol):
    """A layer with measured and predicted cycles of an accelerator's clock; None if unknown."""

    @property
    def on_cpu(self) -> bool: ...
    @property
    def clock_cycles(self) -> int | None: ...
    @property
    def predicted_cycles(self) -> int | None: ...


def source_of(layer: Layer) -> Source:
    """Return the source of a layer's cycles; measured cycles take precedence."""
    if layer.on_cpu:
        return "cpu"
    if layer.clock_cycles is not None:
        return "measured"
    return "unknown" if layer.predicted_cycles is None else "predicted"


def difference_percent(layer: Layer) -> float | None:
    """Return the excess of predicted over measured cycles in percent; None on the CPU."""
    return None if layer.on_cpu else percent_above(layer.predicted_cycles, layer.clock_cycles)


def percent_above(predicted: int | None, measured: int | None) -> float | None:
    """Return the excess of predicted over measured cycles in percent; None if unknown."""
    return 100 * (predicted / measured - 1) if measured and predicted is not None else None


@dataclass(frozen=True)
class CycleTotals:
    """Sums of the cycles of layers, with the numbers of included layers.

    Attributes:
        layers: number of layers on accelerators.
        cpu_layers: number of layers on the CPU, whose cycles are in no sum.
        measured_layers: number of layers that `clock_cycles` includes.
        clock_cycles: sum of the measured cycles; None if nothing was measured.
        predicted_layers: number of layers that `predicted_cycles` includes.
        predicted_cycles: sum of the predicted cycles; None if nothing was predicted.
        compared_layers: number of layers with both measured and predicted cycles.
        difference_percent: excess of predicted over measured cycles, summed over these layers.
    """

    layers: int
    cpu_layers: int
    measured_layers: int
    clock_cycles: int | None
    predicted_layers: int
    predicted_cycles: int | None
    compared_layers: int
    difference_percent: float | None

    @classmethod
    def of(cls, layers: Iterable[Layer]) -> CycleTotals:
        found = list(layers)
        own = [each for each in found if not each.on_cpu]
        measured = [each.clock_cycles for each in own if each.clock_cycles is not None]
        predicted = [each.predicted_cycles for each in own if each.predicted_cycles is not None]
        both = [
            (each.predicted_cycles, each.clock_cycles)
            for each in own
            if each.predicted_cycles is not None and each.clock_cycles is not None
        ]
        sums = (sum(one for one, _ in both), sum(other for _, other in both))
        return cls(
            layers=len(own),
            cpu_layers=len(found) - len(own),
            measured_layers=len(measured),
            clock_cycles=sum(measured) if measured else None,
            predicted_layers=len(predicted),
            predicted_cycles=sum(predicted) if predicted else None,
            compared_layers=len(both),
            difference_percent=percent_above(*sums) if both else None,
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def included(measured: int, layers: int, cpu_layers: int) -> str:
    """Return a clause about the layers in a total; empty without layers on accelerators."""
    if not layers:
        return ""
    text = f"{measured} of {_layers(layers)} on accelerators measured"
    return f"{text}, {_layers(cpu_layers)} on the CPU not included" if cpu_layers else text


def _layers(count: int) -> str:
    return "1 layer" if count == 1 else f"{count} layers"
