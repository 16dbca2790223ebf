# SPDX-License-Identifier: Apache-2.0
"""Predicts the cycles of a network on an accelerator without writing C.

The stages up to the memory plan run as for `uma compile`, so that layers, tilings and refusals are
the same. Cycles are those of the cost model, as in `uma report`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from umakit.backend.base import UMABackend
from umakit.devices.totals import CycleTotals
from umakit.errors import BackendError, UmakitError
from umakit.library.description import program_identities
from umakit.machine.commands import moved_bytes
from umakit.machine.planner import Prediction, prediction_of
from umakit.machine.tiles import Tiles
from umakit.partition.report import CPU, OffloadReport
from umakit.pipeline import (
    ExportOptions,
    Network,
    PlannedProgram,
    partition_network,
    plan_program,
)
from umakit.program.descriptions import tiles_of
from umakit.program.program import KernelCall, Program
from umakit.registration.code import raised
from umakit.text.identities import LayerIdentity
from umakit.tools.accounting import RunReport
from umakit.tools.columns import view
from umakit.tools.energy import Energy
from umakit.tools.energy.events import CPU_STEPS
from umakit.tools.energy.picojoules import counts_json, layer_energy
from umakit.tools.energy.predicted import counts_of_tiles, predicted_counts
from umakit.tools.inferences.accelerators import Scratchpad, accelerator_inferences
from umakit.tools.inferences.figures import SeveralInferences, predicted_inferences
from umakit.tools.record import LayerRecord

LAYER = (
    "number name where operators macs identity cycles:predicted_cycles moved_bytes:predicted_bytes "
    "bound scratchpad_bytes utilisation"
)


def _layer_json(layer: LayerRecord) -> dict[str, Any]:
    counts = layer.predicted
    events = None if counts is None else counts_json(counts, layer.energy_section)
    return {**view(layer, LAYER), "events": events}


@dataclass(frozen=True)
class PredictedNetwork:
    """A network on an accelerator, as predicted by its cost model.

    Attributes:
        run: steps of the program in execution order, and their totals.
        cells: capacity of the machine in multiply-accumulates per cycle; None if unknown.
        scratchpad_bytes: size of all memories that drivers address by offset.
        has_cost_model: whether the backend cuts layers into tiles, whose cycles are predicted.
        inferences: figures of several consecutive inferences; None if not requested.
    """

    run: RunReport
    report: OffloadReport
    cells: int | None
    scratchpad_bytes: int
    has_cost_model: bool
    notices: tuple[str, ...]
    inferences: SeveralInferences | None = None

    @property
    def layers(self) -> tuple[LayerRecord, ...]:
        return self.run.layers

    @cached_property
    def totals(self) -> CycleTotals:
        return self.run.cycle_totals

    @property
    def cycles(self) -> int | None:
        """The cycles of all layers on the accelerator.

        None without such layers, or if a layer's cycles are unknown.
        """
        return self.run.predicted_cycles

    @property
    def moved_bytes(self) -> int | None:
        """The moved bytes of these layers; None as for `cycles`."""
        return self.run.predicted_bytes

    @property
    def largest_scratchpad_bytes(self) -> int | None:
        """The largest use of scratchpads by one of these layers; None as for `cycles`."""
        found = [each.scratchpad_bytes for each in self.run.offloaded]
        known = [each for each in found if each is not None]
        return max(known) if known and len(known) == len(found) else None

    @property
    def utilisation(self) -> float | None:
        """Multiply-accumulates of these layers relative to all cells' capacity in `cycles`."""
        if self.cycles is None or not self.cells:
            return None
        return sum(each.macs for each in self.run.offloaded) / (self.cycles * self.cells)

    @property
    def energy(self) -> Energy | None:
        """The energy of an inference, with CPU steps marked as missing.

        None if the accelerator's energy is None.
        """
        own = self.accelerator_energy
        if own is None or not self.totals.cpu_layers:
            return own
        return Energy(own.counted, {**own.missing, CPU_STEPS: "not counted"})

    @property
    def accelerator_energy(self) -> Energy | None:
        """The energy of the layers on the accelerator; None without figures, or without layers."""
        energies = [layer_energy(each) for each in self.run.offloaded]
        known = [each for each in energies if each is not None]
        return Energy.sum(known) if known else None

    @property
    def offloaded_share(self) -> float | None:
        """The offloaded fraction of multiply-accumulates, 0 to 1; None if there are none."""
        return (
            self.report.offloaded_macs / self.report.total_macs if self.report.total_macs else None
        )

    def as_json(self) -> dict[str, Any]:
        return {
            **view(self, "cycles moved_bytes utilisation"),
            **view(self.report, "offloaded_macs total_macs"),
            **view(self, "offloaded_share cells scratchpad_bytes largest_scratchpad_bytes"),
            **view(self, "cycle_totals:totals energy notices inferences"),
            "layers": [_layer_json(each) for each in self.layers],
        }


def predict_network(
    network: Network,
    backend: UMABackend,
    options: ExportOptions | None = None,
    progress: Callable[[str], None] = lambda stage: None,
    inferences: int | None = None,
) -> PredictedNetwork:
    """Predict the cycles of a network on an accelerator without writing C.

    Args:
        inferences: number of consecutive inferences to predict as well; None for none.
    """
    options = options or ExportOptions()
    progress("partitioning")
    partitioned = partition_network(network.model, [backend], options, progress)
    planned = plan_program(network.model, partitioned, [backend], options, progress)
    progress("predicting cycles")
    program = planned.program
    identities = program_identities(program, partitioned.report)
    layers = tuple(
        _layer(number, call, identity, program, partitioned.report, backend)
        for number, (call, identity) in enumerate(
            zip(program.calls, identities, strict=True), start=1
        )
    )
    notices = (*network.model.notices, *backend.notices, *partitioned.notices)
    return PredictedNetwork(
        RunReport(layers),
        partitioned.report,
        cells_of(backend),
        scratchpad_bytes_of(backend),
        backend.tiling is not None,
        tuple(dict.fromkeys(notices)),
        None if inferences is None else _inferences(layers, planned, backend, inferences),
    )


def _inferences(
    layers: Iterable[LayerRecord], planned: PlannedProgram, backend: UMABackend, count: int
) -> SeveralInferences:
    figures = [replace(each, identity=None) for each in layers]
    scratchpads = Scratchpad.of_plan(planned.memory)
    bounds = accelerator_inferences(planned.program, scratchpads, [backend], count)
    return predicted_inferences(RunReport(tuple(figures)), count, bounds)


def cells_of(backend: UMABackend) -> int | None:
    """Return a machine's capacity in multiply-accumulates per cycle; None if unknown."""
    if backend.tiling is not None:
        return backend.tiling.machine.macs_per_cycle
    return backend.configuration.cells


def scratchpad_bytes_of(backend: UMABackend) -> int:
    """Return the size in bytes of all memories that drivers address by offset."""
    return sum(memory.size or 0 for memory in backend.configuration.scratchpads)


def _layer(
    number: int,
    call: KernelCall,
    identity: LayerIdentity,
    program: Program,
    report: OffloadReport,
    backend: UMABackend,
) -> LayerRecord:
    plain = LayerRecord(
        "cpu step" if call.target == CPU else "layer", call.label, call.target, identity, "",
        call.macs, None, None, number=number,
        operators=tuple(report.placements[row].operator for row in call.rows),
    )  # fmt: skip
    composite = program.kernels[call.kernel].composite if call.kernel else None
    if call.target != backend.target_name or composite is None:
        return plain
    plain = replace(plain, energy_section=backend.configuration.energy)
    found = _predicted(program, composite, backend)
    if found is None or backend.tiling is None:
        return replace(plain, predicted=predicted_counts(program, call, backend))
    tiles, prediction = found
    cells = cells_of(backend)
    return replace(
        plain,
        predicted_cycles=prediction.cycles,
        predicted_bytes=moved_bytes(tiles),
        bound=max(prediction.bound.compute, prediction.bound.memory),
        scratchpad_bytes=tiles.scratchpad_bytes,
        utilisation=call.macs / (prediction.cycles * cells) if call.macs and cells else None,
        predicted=counts_of_tiles(backend, backend.tiling, tiles, prediction),
    )


def _predicted(
    program: Program, composite: Any, backend: UMABackend
) -> tuple[Tiles, Prediction] | None:
    try:
        tiles = tiles_of(program, composite, backend)
        if tiles is None or backend.tiling is None:
            return None
        return tiles, prediction_of(backend.tiling, tiles)
    except UmakitError:
        raise
    except Exception as error:  # a team's planner may raise anything
        raise BackendError(
            f"its planner failed: {raised(error, backend)}", where=backend.target_name
        ) from error


def without_cost_model(backend: UMABackend) -> str:
    """Return a sentence about a backend that predicts nothing; empty if it predicts."""
    if backend.tiling is not None:
        return ""
    return f"{backend.target_name} predicts no cycles: it registers no planner that cuts layers"
