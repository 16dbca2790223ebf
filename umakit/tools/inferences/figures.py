# SPDX-License-Identifier: Apache-2.0
"""Figures of the first of several inferences, of each later one, and of all together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from umakit.devices.inferences import Measured, Spread
from umakit.devices.run import RunResult
from umakit.tools.accounting import RunReport, account
from umakit.tools.columns import known_sum, view
from umakit.tools.record import LayerRecord

if TYPE_CHECKING:
    from umakit.tools.inferences.accelerators import AcceleratorInferences

UNMEASURED = Spread(None, None)


@dataclass(frozen=True)
class InferenceFigures:
    """The first inference, or each later one. Bytes are bytes of accelerators over the bus.

    Attributes:
        run: layers and totals, for later inferences as means.
        clock_cycles: measured cycles of the accelerators' clocks from begin to end.
        moved_bytes: measured bytes of all layers on accelerators.
    """

    run: RunReport
    clock_cycles: Spread = UNMEASURED
    moved_bytes: Spread = UNMEASURED

    @property
    def accounting(self) -> RunReport | None:
        """The report with owners of cycles; None if not measured."""
        return self.run if self.run.inferences else None

    @property
    def predicted_cycles(self) -> int | None:
        return self.run.predicted_cycles

    @property
    def predicted_bytes(self) -> int | None:
        return self.run.predicted_bytes

    def as_json(self) -> dict[str, Any]:
        return {
            **_spread("clock_cycles", self.clock_cycles),
            "predicted_cycles": self.predicted_cycles,
            **_spread("moved_bytes", self.moved_bytes),
            "predicted_bytes": self.predicted_bytes,
            "layers": [_layer_json(layer) for layer in self.run.layers],
            **view(self, "accounting"),
        }


@dataclass(frozen=True)
class SeveralInferences:
    """Several consecutive inferences in one process.

    Attributes:
        steady: each later inference; None if there is none.
        clock_cycles, moved_bytes: measured totals; None if unknown.
        accelerators: bounds of each accelerator's layers, and weights that could stay in it.
    """

    count: int
    first: InferenceFigures
    steady: InferenceFigures | None
    clock_cycles: int | None = None
    moved_bytes: int | None = None
    accelerators: tuple[AcceleratorInferences, ...] = ()

    @property
    def predicted_cycles(self) -> int | None:
        """The predicted cycles of all inferences together."""
        return self._all(self.first.predicted_cycles, "predicted_cycles")

    @property
    def predicted_bytes(self) -> int | None:
        """The predicted bytes of all inferences together."""
        return self._all(self.first.predicted_bytes, "predicted_bytes")

    def _all(self, first: int | None, figure: str) -> int | None:
        if self.steady is None:
            return first
        later: int | None = getattr(self.steady, figure)
        return None if first is None or later is None else first + (self.count - 1) * later

    def as_json(self) -> dict[str, Any]:
        figures = "clock_cycles predicted_cycles moved_bytes predicted_bytes"
        return {
            **view(self, "count first steady"),
            "all": view(self, figures),
            **view(self, "accelerators"),
        }


def _layer_json(layer: LayerRecord) -> dict[str, Any]:
    return {
        **view(layer, "name where identity"),
        **_spread("clock_cycles", layer.cycle_spread),
        "predicted_cycles": layer.predicted_cycles,
        **_spread("moved_bytes", layer.byte_spread),
        "predicted_bytes": layer.predicted_bytes,
    }


def _spread(name: str, spread: Spread | None) -> dict[str, int | None]:
    spread = spread or UNMEASURED
    return {
        name: spread.least if spread.equal else None,
        f"least_{name}": spread.least,
        f"highest_{name}": spread.highest,
    }


def measured_inferences(
    description: Mapping[str, Any],
    result: RunResult,
    cpu_clock: float | None = None,
    designs: Collection[str] = (),
    predicted_bytes: Sequence[int | None] | None = None,
    accelerators: tuple[AcceleratorInferences, ...] = (),
) -> SeveralInferences:
    """Return the figures of consecutive inferences that ran.

    Args:
        description: section `umakit` of the library's `metadata.json`.
        cpu_clock, designs: as in `umakit.tools.accounting.account`.
        predicted_bytes: predictions of the cost model for each layer; None if not requested.
    """
    found = result.inferences
    if found is None:
        raise ValueError("the run did not tell inferences apart")
    moved = predicted_bytes or [None] * len(found.first.layers)

    def figures(measured: Measured) -> InferenceFigures:
        apart = replace(result, layers=measured.layers, whole=measured.whole)
        run = account(description, apart, cpu_clock, designs)
        spreads = zip(measured.layer_cycles, measured.layer_bytes, moved, strict=True)
        layers = (
            replace(row, cycle_spread=cycles, byte_spread=copied, predicted_bytes=expected)
            for row, (cycles, copied, expected) in zip(run.layers, spreads, strict=True)
        )
        run = replace(run, rows=(*layers, *run.rows[len(run.layers) :]))
        return InferenceFigures(run, measured.clock_cycles, measured.moved_bytes)

    later = None if found.later is None else figures(found.later)
    return SeveralInferences(
        found.count, figures(found.first), later,
        known_sum(found.clock_cycles), known_sum(found.moved_bytes), accelerators,
    )  # fmt: skip


def predicted_inferences(
    run: RunReport,
    count: int,
    accelerators: tuple[AcceleratorInferences, ...] = (),
) -> SeveralInferences:
    """Return the predicted figures of consecutive inferences.

    All inferences are alike: in each inference, the driver of a layer opens the device, loads all
    operands and closes the device, and a cost model has no state.

    Args:
        count: number of inferences, at least 1.
    """
    each = InferenceFigures(run)
    return SeveralInferences(count, each, each if count > 1 else None, accelerators=accelerators)
