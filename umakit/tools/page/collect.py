# SPDX-License-Identifier: Apache-2.0
"""Compiles and runs a network, and collects the figures of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from umakit import patterns, sim
from umakit.backend.base import UMABackend
from umakit.codegen.driver_names import kit_simulator
from umakit.devices.inputs import first_inferences
from umakit.devices.run import Arrays, RunResult, run_library, select_inputs
from umakit.errors import DeviceError
from umakit.files.staging import temporary_folder
from umakit.library.export import Library
from umakit.machine import TilePlanner
from umakit.machine.planner import prediction_of
from umakit.pipeline import ExportOptions, export_program, partition_model
from umakit.program.program import KernelCall, Program
from umakit.tools.accounting import account
from umakit.tools.energy.predicted import predicted_counts
from umakit.tools.failed_layer import with_layer
from umakit.tools.inferences.accelerators import (
    Scratchpad,
    accelerator_inferences,
    predicted_bytes,
)
from umakit.tools.inferences.figures import SeveralInferences, measured_inferences
from umakit.tools.inputs import random_inputs
from umakit.tools.page.bounds import accelerator_bounds, tiled_layer
from umakit.tools.page.engines import Engines
from umakit.tools.page.figures import NEAR_THE_BOUND, Accelerator, Page
from umakit.tools.record import LayerRecord, Spent
from umakit.tools.runs import Measuring


def make_page(
    source: Any,
    backends: Sequence[UMABackend],
    *,
    measuring: Measuring | None = None,
    inputs: Arrays | None = None,
    options: ExportOptions | None = None,
    progress: Callable[[str], None] = lambda stage: None,
    observe: Callable[[Path, Library, Arrays, RunResult], None] = lambda *run: None,
) -> Page:
    """Compile a network, run it on simulated accelerators, and collect its figures.

    Args:
        source: the network, as in `umakit.compile_model`.
        backends: accelerators in order of priority.
        measuring: settings of the compilation and the run.
        inputs, options: as in `measuring`, which then may be left out.
        progress: as in `umakit.compile_model`.
        observe: called with the folder of the library, the library, the inputs and the run.

    Raises:
        BuildError: the device does not run the code of the CPU, or a program is missing.
        DeviceError: the run failed; names the layer if it is found.
        UmakitError: the subclass names the other stage that refused.
    """
    how = measuring or Measuring(inputs=inputs, options=options)
    network, partitioned = partition_model(
        source, backends, input_shapes=how.input_shapes, rounding=how.rounding,
        options=how.options, progress=progress,
    )  # fmt: skip
    with temporary_folder("umakit-report-") as temporary:
        folder = Path(temporary) / "library"
        library = export_program(
            network.model, partitioned, backends, folder, how.options, progress
        )
        progress("building and running")
        given, inputs_name, count = how.inputs, how.inputs_name, how.inferences
        if given is None:
            given, inputs_name = random_inputs(network.imported, how.seed, count or 1)
        arrays: Arrays = select_inputs(folder, given)
        if count is not None:
            arrays = first_inferences(library.metadata["umakit"]["inputs"], arrays, count)
        try:
            result = run_library(
                folder, arrays, profile=True, record_commands=True, device=how.device,
                each_inference=count is not None,
            )  # fmt: skip
        except DeviceError as error:
            raise with_layer(error, folder, arrays, how.device, None) from None
        observe(folder, library, arrays, result)
    progress("predicting cycles")
    file_name = Path(source).name if isinstance(source, (str, Path)) else network.model.name
    return page_of(file_name, library, backends, result, inputs_name, how.cpu_clock)


def page_of(
    file_name: str,
    library: Library,
    backends: Sequence[UMABackend],
    result: RunResult,
    inputs_name: str,
    cpu_clock: float | None = None,
) -> Page:
    """Collect the figures of a library that was compiled and run with a profile.

    Args:
        library: the compiled library, with its program.
        cpu_clock: as in `umakit.tools.accounting.account`.
    """
    description, program = library.metadata["umakit"], library.program
    if program is None:
        raise ValueError("the library was read, not compiled")
    known = {backend.target_name: backend for backend in backends}
    accounting = account(description, result, cpu_clock)
    layers = tuple(
        _planned(record, call, program, known)
        for record, call in zip(accounting.layers, program.calls, strict=True)
    )
    accounting = replace(accounting, rows=(*layers, *accounting.rows[len(layers) :]))
    return Page(
        model=file_name,
        name=program.name,
        fingerprint=description["model_sha256"],
        umakit_version=description["version"],
        inputs=inputs_name,
        tilings=_tilings(description["tilings"], (backend.tiling for backend in backends)),
        notices=program.notices,
        accelerators=tuple(map(_accelerator, known.values())),
        offload=library.report,
        accounting=accounting,
        memory=description["memory"],
        buffers=_buffer_names(program),
        bounds=accelerator_bounds(
            program, library.report.total_macs, backends, accounting.offloaded
        ),
        inferences=_inferences(library, program, backends, result, cpu_clock),
    )


def _tilings(tuned: Mapping[str, int] | None, planners: Iterable[TilePlanner | None]) -> str:
    if not any(planner is not None for planner in planners):
        return ""
    if tuned is None:
        return "each layer's own choice"
    return f"tuned for {tuned['tuned']} of {tuned['layers']} layers"


def _accelerator(backend: UMABackend) -> Accelerator:
    configuration, planner = backend.configuration, backend.tiling
    array, kind = configuration.array, kit_simulator(backend)
    has_dma = sim.KINDS[kind].has_dma if kind else configuration.has_dma
    width = configuration.dma.bytes_per_cycle if has_dma else None
    return Accelerator(
        backend.target_name,
        configuration.accelerator.description,
        array.rows if configuration.has_array else None,
        array.columns if configuration.has_array else None,
        width if planner is None else planner.machine.bytes_per_cycle,
        planner is not None,
        configuration.cells if planner is None else planner.machine.macs_per_cycle or None,
        _calibrated(planner),
        None if planner is None else Engines.of(planner.described),
    )


def _calibrated(planner: TilePlanner | None) -> str:
    """Return date and place of the measurement of a planner's costs; empty if not measured."""
    calibration = None if planner is None else planner.calibration
    if calibration is None:
        return ""
    return f"{calibration.measured:%Y-%m-%d %H:%M:%S} UTC on the device {calibration.device}"


def _inferences(
    library: Library,
    program: Program,
    backends: Sequence[UMABackend],
    result: RunResult,
    cpu_clock: float | None,
) -> SeveralInferences | None:
    """Return the figures of consecutive inferences; None if the run did not separate them."""
    if result.inferences is None:
        return None
    description, count = library.metadata["umakit"], result.inferences.count
    scratchpads = Scratchpad.of_library(description["memory"])
    return measured_inferences(
        description, result, cpu_clock,
        predicted_bytes=predicted_bytes(program, backends),
        accelerators=accelerator_inferences(program, scratchpads, backends, count),
    )  # fmt: skip


def _planned(
    record: LayerRecord, call: KernelCall, program: Program, backends: Mapping[str, UMABackend]
) -> LayerRecord:
    """Return a measured layer with the plan and the predictions of its backend."""
    number, backend = record.number, backends.get(call.target)
    found = replace(
        record,
        concurrent_steps=tuple(range(number + 1, number + 1 + call.overlapped)),
        predicted_cycles=None,
        predicted=None if backend is None else predicted_counts(program, call, backend),
    )
    composite = program.kernels[call.kernel].composite if call.kernel else None
    if not record.on_cpu:
        found = replace(found, kind=layer_kind(composite))
    planner = None if backend is None else backend.tiling
    if composite is None or planner is None:
        return found
    tiles = planner.tiles_of(composite, program.planned[call.target].tilings)
    tiled = tiled_layer(planner, tiles, prediction_of(planner, tiles), record.clock_cycles)
    found = replace(
        found, tiled=tiled, tiling=tiled.tiling, predicted_cycles=tiled.predicted_cycles,
        bound=tiled.bound,
    )  # fmt: skip
    peak, engines = planner.machine.macs_per_cycle, Engines.of(planner.described)
    return replace(found, explanation=describe_bottleneck(found, peak, engines))


def _buffer_names(program: Program) -> dict[str, str]:
    names: dict[str, str] = {}
    for call in program.calls:
        if call.kernel:
            scratch = program.kernels[call.kernel].scratch
            for name, parameter in zip(call.scratch, scratch, strict=True):
                names.setdefault(name, str(parameter.variable.name))
    return names


def layer_kind(composite: patterns.Composite | None) -> str:
    """Return the kind of a layer, for example `depthwise convolution`; empty if unknown."""
    kinds = {
        patterns.QDepthwise: "depthwise convolution",
        patterns.QConv2dAdd: "convolution with a sum",
        patterns.QConv2d: "convolution",
        patterns.QConv2dTranspose: "transposed convolution",
        patterns.QDense: "fully connected",
        patterns.QMaxPool2d: "max pool",
        patterns.QAveragePool2d: "average pool",
    }
    return next((name for kind, name in kinds.items() if isinstance(composite, kind)), "")


def describe_bottleneck(layer: LayerRecord, cells: int, engines: Engines | None) -> str:
    """Describe the bottleneck of a layer above `NEAR_THE_BOUND` times its bound; else empty.

    Args:
        cells: number of cells of the accelerator's array, or its multiply-accumulates in a cycle.
        engines: engines of a machine described by the backend; None for umakit's systolic array.
    """
    ratio = layer.ratio
    spent = layer.tiled.spent if layer.tiled else None
    if layer.tiled is None or spent is None or ratio is None or ratio <= NEAR_THE_BOUND:
        return ""
    if engines is not None:
        return _of_engines(spent, layer.tiled.waits, layer, cells, engines)
    return f"{spent.bottleneck}: {_details(spent, layer, cells)}"


def _of_engines(
    spent: Spent, waits: Mapping[str, int], layer: LayerRecord, peak: int, engines: Engines
) -> str:
    computing = engines.computing
    if spent.bottleneck == "array":
        working = spent.full_array + spent.partial_array
        if not layer.macs:
            return f"{computing}: it works for {working:,} cycles"
        share = 100 * layer.macs / (working * peak)
        return f"{computing}: {share:.0f} % of its peak in {working:,} cycles of work"
    if spent.bottleneck == "drain":
        return f"drain: for {spent.drain:,} cycles results leave {computing} and nothing enters"
    if spent.bottleneck == "driver":
        return f"driver: {computing} waits {spent.driver:,} cycles for register accesses"
    stores = spent.bottleneck == "stores"
    tensors = ("result",) if stores else _loaded(layer.kind)
    name, copied, cycles = engines.awaited(waits, tensors)
    copied = "the result" if stores else copied
    total = spent.stores if stores else spent.loads
    of_total = f", of {total:,} for all {spent.bottleneck}" if cycles < total else ""
    return f"{name}: {computing} waits {cycles:,} cycles for {copied}{of_total}"


def _loaded(kind: str) -> tuple[str, ...]:
    """Return the tensors that are loaded for layers of a kind of `layer_kind`."""
    if kind.endswith("pool"):
        return ("data",)
    addend = ("addend",) if kind == "convolution with a sum" else ()
    return ("data", "weights", "parameters", *addend)


def _details(spent: Spent, layer: LayerRecord, cells: int) -> str:
    working = spent.full_array + spent.partial_array
    if spent.bottleneck == "array":
        if not layer.macs:
            return f"the pooling stage works for {working:,} cycles"
        share = 100 * layer.macs / (working * cells)
        return f"{share:.0f} % of its cells have work in {working:,} cycles"
    return {
        "drain": f"for {spent.drain:,} cycles results leave the array and nothing enters",
        "loads": f"the array waits {spent.loads:,} cycles for data",
        "stores": f"the array waits {spent.stores:,} cycles for results to leave the scratchpad",
        "driver": f"the array waits {spent.driver:,} cycles for register accesses",
    }[spent.bottleneck]
