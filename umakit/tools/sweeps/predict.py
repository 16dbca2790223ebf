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
from umakit.devices.totals import CycleTotals, LayerCycles
from umakit.errors import BackendError, UmakitError
from umakit.library.description import program_identities
from umakit.machine.commands import moved_bytes
from umakit.machine.counts import EventCounts
from umakit.machine.energy_config import EnergySection
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
from umakit.tools.energy import Energy, energy_of
from umakit.tools.energy.events import CPU_STEPS
from umakit.tools.energy.picojoules import counts_json
from umakit.tools.energy.predicted import counts_of_tiles, predicted_counts
from umakit.tools.inferences.accelerators import Scratchpad, accelerator_inferences
from umakit.tools.inferences.collect import predicted_inferences
from umakit.tools.inferences.figures import LayerFigures, SeveralInferences


@dataclass(frozen=True)
class PredictedLayer:
    """A step of the program.

    Attributes:
        number: number of the step in execution order, from 1.
        name: name of the layer in the user's model.
        where: `cpu` or the name of the backend.
        operators: operators of the step, by their names in Relax.
        macs: multiply-accumulates computed from the shapes.
        cycles: cycles of the device's clock by the cost model; None on the CPU and for layers that
            the backend does not cut into tiles.
        moved_bytes: bytes over the bus in both directions; None as for `cycles`.
        bound: lower bound of the cycles of all tilings; None as for `cycles`.
        scratchpad_bytes: use of the accelerator's memories by the tiles; None as for `cycles`.
        utilisation: multiply-accumulates relative to the capacity of all cells in these cycles, 0
            to 1; None as for `cycles`, and for layers without multiply-accumulates.
        identity: identity of the step in terms of the model.
        counts: counts of events that take energy; None on the CPU.
        figures: picojoules of these events; None if `accel.toml` has none.
    """

    number: int
    name: str
    where: str
    operators: tuple[str, ...]
    macs: int
    identity: LayerIdentity | None = None
    cycles: int | None = None
    moved_bytes: int | None = None
    bound: int | None = None
    scratchpad_bytes: int | None = None
    utilisation: float | None = None
    counts: EventCounts | None = None
    figures: EnergySection | None = None

    @property
    def energy(self) -> Energy | None:
        """The energy of `counts`; None without counts or figures."""
        if self.counts is None or self.figures is None:
            return None
        return energy_of(self.counts, self.figures)

    @property
    def on_cpu(self) -> bool:
        return self.where == CPU

    def as_json(self) -> dict[str, Any]:
        plain = {k: v for k, v in vars(self).items() if k not in ("counts", "figures")}
        plain["identity"] = None if self.identity is None else self.identity.as_json()
        events = None if self.counts is None else counts_json(self.counts, self.figures)
        return {**plain, "operators": list(self.operators), "events": events}


@dataclass(frozen=True)
class PredictedNetwork:
    """A network on an accelerator, as predicted by its cost model.

    Attributes:
        layers: steps of the program in execution order.
        report: placement of each operator.
        cells: capacity of the machine in multiply-accumulates per cycle; None if unknown.
        scratchpad_bytes: size of all memories that drivers address by offset.
        has_cost_model: whether the backend cuts layers into tiles, whose cycles are predicted.
        notices: notices of network and backend, one sentence each.
        inferences: figures of several consecutive inferences; None if not requested.
    """

    layers: tuple[PredictedLayer, ...]
    report: OffloadReport
    cells: int | None
    scratchpad_bytes: int
    has_cost_model: bool
    notices: tuple[str, ...]
    inferences: SeveralInferences | None = None

    @cached_property
    def totals(self) -> CycleTotals:
        """The sum of predicted cycles, and the number of included layers."""
        return CycleTotals.of(LayerCycles(each.on_cpu, None, each.cycles) for each in self.layers)

    @property
    def offloaded(self) -> tuple[PredictedLayer, ...]:
        return tuple(each for each in self.layers if not each.on_cpu)

    @property
    def cycles(self) -> int | None:
        """The cycles of all layers on the accelerator.

        None without such layers, or if a layer's cycles are unknown.
        """
        return _sum(each.cycles for each in self.offloaded)

    @property
    def moved_bytes(self) -> int | None:
        """The moved bytes of these layers; None as for `cycles`."""
        return _sum(each.moved_bytes for each in self.offloaded)

    @property
    def largest_scratchpad_bytes(self) -> int | None:
        """The largest use of scratchpads by one of these layers; None as for `cycles`."""
        found = [each.scratchpad_bytes for each in self.offloaded]
        known = [each for each in found if each is not None]
        return max(known) if known and len(known) == len(found) else None

    @property
    def utilisation(self) -> float | None:
        """Multiply-accumulates of these layers relative to all cells' capacity in `cycles`."""
        if self.cycles is None or not self.cells:
            return None
        return sum(each.macs for each in self.offloaded) / (self.cycles * self.cells)

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
        energies = [each.energy for each in self.offloaded]
        known = [each for each in energies if each is not None]
        return Energy.sum(known) if known else None

    @property
    def offloaded_share(self) -> float | None:
        """The offloaded fraction of multiply-accumulates, 0 to 1; None if there are none."""
        return (
            self.report.offloaded_macs / self.report.total_macs if self.report.total_macs else None
        )

    def as_json(self) -> dict[str, Any]:
        """Return all figures by name; keys are stable."""
        return {
            "cycles": self.cycles,
            "moved_bytes": self.moved_bytes,
            "utilisation": self.utilisation,
            "offloaded_macs": self.report.offloaded_macs,
            "total_macs": self.report.total_macs,
            "offloaded_share": self.offloaded_share,
            "cells": self.cells,
            "scratchpad_bytes": self.scratchpad_bytes,
            "largest_scratchpad_bytes": self.largest_scratchpad_bytes,
            "cycle_totals": self.totals.as_json(),
            "energy": None if self.energy is None else self.energy.as_json(),
            "notices": list(self.notices),
            "inferences": None if self.inferences is None else self.inferences.as_json(),
            "layers": [each.as_json() for each in self.layers],
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
        network: a network of `umakit.pipeline.import_network`.
        backend: the accelerator.
        options: options of the compilation; default: those of `umakit.ExportOptions`.
        progress: callback with a description of each stage.
        inferences: number of consecutive inferences to predict as well; None for none.

    Raises:
        BackendError: the backend's Python failed.
        UmakitError: the network cannot be compiled for the accelerator, as in
            `umakit.compile_model`.
    """
    options = options or ExportOptions()
    progress("partitioning")
    partitioned = partition_network(network.model, [backend], options, progress)
    planned = plan_program(network.model, partitioned, [backend], options, progress)
    progress("predicting cycles")
    program = planned.program
    identities = program_identities(program, partitioned.report)
    layers = tuple(
        replace(
            _layer(number, call, program, partitioned.report, backend),
            identity=identities[number - 1],
        )
        for number, call in enumerate(program.calls, start=1)
    )
    notices = (*network.model.notices, *backend.notices, *partitioned.notices)
    return PredictedNetwork(
        layers,
        partitioned.report,
        cells_of(backend),
        scratchpad_bytes_of(backend),
        backend.tiling is not None,
        tuple(dict.fromkeys(notices)),
        None if inferences is None else _inferences(layers, planned, backend, inferences),
    )


def _inferences(
    layers: Iterable[PredictedLayer], planned: PlannedProgram, backend: UMABackend, count: int
) -> SeveralInferences:
    figures = [
        LayerFigures(
            each.name, each.where, None, predicted_cycles=each.cycles,
            predicted_bytes=each.moved_bytes,
        )
        for each in layers
    ]  # fmt: skip
    scratchpads = Scratchpad.of_plan(planned.memory)
    bounds = accelerator_inferences(planned.program, scratchpads, [backend], count)
    return predicted_inferences(figures, count, bounds)


def cells_of(backend: UMABackend) -> int | None:
    """Return a machine's capacity in multiply-accumulates per cycle; None if unknown."""
    if backend.tiling is not None:
        return backend.tiling.machine.macs_per_cycle
    configuration = backend.configuration
    array = configuration.array
    return array.rows * array.columns if configuration.has_array else None


def scratchpad_bytes_of(backend: UMABackend) -> int:
    """Return the size in bytes of all memories that drivers address by offset."""
    return sum(memory.size or 0 for memory in backend.configuration.scratchpads)


def _layer(
    number: int, call: KernelCall, program: Program, report: OffloadReport, backend: UMABackend
) -> PredictedLayer:
    operators = tuple(report.placements[row].operator for row in call.rows)
    plain = PredictedLayer(number, call.label, call.target, operators, call.macs)
    figures = backend.configuration.energy
    composite = program.kernels[call.kernel].composite if call.kernel else None
    if call.target != backend.target_name or composite is None:
        return plain
    found = _predicted(program, composite, backend)
    if found is None or backend.tiling is None:
        return replace(plain, counts=predicted_counts(program, call, backend), figures=figures)
    tiles, prediction = found
    cells = cells_of(backend)
    return PredictedLayer(
        number, call.label, call.target, operators, call.macs,
        cycles=prediction.cycles,
        moved_bytes=moved_bytes(tiles),
        bound=max(prediction.bound.compute, prediction.bound.memory),
        scratchpad_bytes=tiles.scratchpad_bytes,
        utilisation=call.macs / (prediction.cycles * cells) if call.macs and cells else None,
        counts=counts_of_tiles(backend, backend.tiling, tiles, prediction),
        figures=figures,
    )  # fmt: skip


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


def _sum(figures: Iterable[int | None]) -> int | None:
    """Return the sum of figures; None without figures, or if one is unknown."""
    values = list(figures)
    known = [each for each in values if each is not None]
    return sum(known) if known and len(known) == len(values) else None


def without_cost_model(backend: UMABackend) -> str:
    """Return a sentence about a backend that predicts nothing; empty if it predicts."""
    if backend.tiling is not None:
        return ""
    return f"{backend.target_name} predicts no cycles: it registers no planner that cuts layers"
