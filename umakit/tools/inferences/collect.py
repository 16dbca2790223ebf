# SPDX-License-Identifier: Apache-2.0
"""Collects the figures of several inferences from a run, or from predictions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from umakit.devices.inferences import Measured
from umakit.devices.run import RunResult
from umakit.tools.accounting import account
from umakit.tools.columns import known_sum
from umakit.tools.inferences.figures import InferenceFigures, SeveralInferences
from umakit.tools.record import LayerRecord

if TYPE_CHECKING:
    from umakit.tools.inferences.accelerators import AcceleratorInferences


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
        result: a run of the library with separate inferences.
        cpu_clock, designs: as in `umakit.tools.accounting.account`.
        predicted_bytes: predictions of the cost model for each layer; None if not requested.
        accelerators: bounds of these inferences.

    Raises:
        InputError: as `account` does.
        ValueError: the run did not separate inferences.
    """
    found = result.inferences
    if found is None:
        raise ValueError("the run did not tell inferences apart")
    moved = predicted_bytes or [None] * len(found.first.layers)

    def figures(measured: Measured) -> InferenceFigures:
        apart = replace(result, layers=measured.layers, whole=measured.whole)
        accounting = account(description, apart, cpu_clock, designs)
        spreads = zip(measured.layer_cycles, measured.layer_bytes, moved, strict=True)
        layers = tuple(
            replace(row, cycle_spread=cycles, byte_spread=copied, predicted_bytes=expected)
            for row, (cycles, copied, expected) in zip(accounting.rows, spreads, strict=False)
        )
        return InferenceFigures(layers, measured.clock_cycles, measured.moved_bytes, accounting)

    later = None if found.later is None else figures(found.later)
    return SeveralInferences(
        found.count, figures(found.first), later,
        known_sum(found.clock_cycles), known_sum(found.moved_bytes), accelerators,
    )  # fmt: skip


def predicted_inferences(
    layers: Sequence[LayerRecord],
    count: int,
    accelerators: tuple[AcceleratorInferences, ...] = (),
) -> SeveralInferences:
    """Return the predicted figures of consecutive inferences.

    All inferences are alike: in each inference, the driver of a layer opens the device, loads all
    operands and closes the device, and a cost model has no state.

    Args:
        layers: layers and steps of the program, with their predictions.
        count: number of inferences, at least 1.
        accelerators: bounds of these inferences.
    """
    each = InferenceFigures(tuple(layers))
    return SeveralInferences(count, each, each if count > 1 else None, accelerators=accelerators)
