# SPDX-License-Identifier: Apache-2.0
"""Counts of events predicted by cost models."""

from __future__ import annotations

from umakit import sim
from umakit.backend.base import UMABackend
from umakit.codegen.driver_names import kit_simulator
from umakit.errors import AcceleratorConfigError
from umakit.machine.costs import TileSizes
from umakit.machine.counts import tiled_counts
from umakit.machine.energy import EventCounts
from umakit.machine.hardware import Hardware
from umakit.machine.layer import Layer
from umakit.machine.planner import Prediction, TilePlanner, prediction_of
from umakit.machine.systolic import Dataflow
from umakit.machine.tiles import Tiles
from umakit.patterns import Composite
from umakit.program.descriptions import tiles_of
from umakit.program.program import KernelCall, Program


def predicted_counts(program: Program, call: KernelCall, backend: UMABackend) -> EventCounts | None:
    """Return the predicted counts of a layer.

    For layers that the backend's planner cuts into tiles, these are all counts of its machine. For
    other layers, these are the multiply-accumulates; for whole layers on umakit's systolic array,
    also the wasted ones.

    Returns:
        None for a step of another backend or of the CPU.
    """
    if call.target != backend.target_name:
        return None
    composite = program.kernels[call.kernel].composite if call.kernel else None
    tiles = None if composite is None else tiles_of(program, composite, backend)
    if tiles is None or backend.tiling is None:
        return EventCounts(macs=call.macs, wasted_macs=_wasted(composite, backend))
    return counts_of_tiles(backend, backend.tiling, tiles, prediction_of(backend.tiling, tiles))


def counts_of_tiles(
    backend: UMABackend, planner: TilePlanner, tiles: Tiles, prediction: Prediction
) -> EventCounts:
    scratchpads = backend.configuration.scratchpads
    name = scratchpads[0].name if _is_array(backend) and len(scratchpads) == 1 else None
    return tiled_counts(planner, tiles, prediction, name)


def _is_array(backend: UMABackend) -> bool:
    """Whether the array of `Hardware` answers, as one of umakit's simulators."""
    kind = kit_simulator(backend)
    return kind is not None and sim.KINDS[kind].counts_accesses


def _wasted(composite: Composite | None, backend: UMABackend) -> int | None:
    """Return the wasted multiply-accumulates of a layer in one job for each image.

    They are computed in closed form; None if unknown.
    """
    if composite is None or not _is_array(backend):
        return None
    try:
        layer = Layer.of(composite)
        hardware = Hardware.of(backend.configuration)
    except (TypeError, AcceleratorConfigError):
        return None
    rows, columns = layer.output_size
    dataflow = Dataflow(backend.configuration.array.dataflow)
    sizes = TileSizes(layer, dataflow, rows, columns, layer.output_channels, layer.input_channels)
    return layer.images * hardware.wasted_macs(sizes)
