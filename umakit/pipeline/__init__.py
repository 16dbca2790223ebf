# SPDX-License-Identifier: Apache-2.0
"""The stages from a network to a C library, in the order that every command uses.

::

    frontend    import_model           a file or an object becomes a Relax module
    quantized   quantize_to_integers   quantized operators become integer operators
    partition   partition              accelerators take the matches of their patterns
    lower       lower_to_kernels       all operators become kernels of TIR
    program     build_program,         a list of kernel calls over named tensors
                overlap_with_cpu, keep_in_scratchpads
    memory      plan_memory,           an offset in a pool for each tensor
                validate_plan
    codegen, library    write_library  C sources, metadata and headers as a folder or tar file

`partition_model` is the front half, `export_program` the rest, `compile_model` both.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from umakit import tvm_api
from umakit.cpu.description import GENERIC, cpu_file, find_cpu
from umakit.cpu.several import choices_of, cpu_texts
from umakit.devices.run import Arrays, run_library
from umakit.errors import InputError
from umakit.frontend import Model, import_model, model_files
from umakit.library.export import Destination, Library, write_library
from umakit.library.options import ExportOptions as ExportOptions
from umakit.memory.plan import PlannedProgram as PlannedProgram
from umakit.memory.plan import with_common_pools
from umakit.memory.scratch_limit import within_limit
from umakit.partition.choice import LayerCosts
from umakit.partition.partitioner import Partitioned, partition
from umakit.pipeline import planning
from umakit.pipeline.choose import Stages, choose_by_cycles
from umakit.pipeline.planning import Progress, naming_file_of
from umakit.pipeline.unused import with_advice
from umakit.quantized import quantize_to_integers
from umakit.records.choices import check_choices, is_of_another, read_choices
from umakit.records.tilings import read_tilings
from umakit.registration.backend import Backend
from umakit.registration.sources.tree import input_files
from umakit.text.escaping import shown


@dataclass(frozen=True)
class Network:
    """An imported network.

    Attributes:
        imported: network of the file, with quantize and dequantize operators.
        model: network with integer operators instead of quantized ones, for compilation.
    """

    imported: Model
    model: Model


@tvm_api.one_at_a_time
def import_network(
    source: str | os.PathLike[str] | Any,
    *,
    name: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    rounding: str | None = None,
) -> Network:
    """Run the first two stages, `frontend` and `quantized`: from a file to integer operators.

    Raises:
        ModelError: the source cannot be read, imported or computed in integers.
    """
    imported = import_model(
        source, name=name, parameters=parameters, input_shapes=input_shapes, rounding=rounding
    )
    return Network(imported, quantize_to_integers(imported))


@tvm_api.one_at_a_time
def partition_model(
    source: str | os.PathLike[str] | Any,
    backends: Sequence[Backend],
    *,
    name: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    rounding: str | None = None,
    keep_layout: bool = False,
    options: ExportOptions | None = None,
    progress: Progress = lambda stage: None,
    notice: Progress = lambda sentence: None,
) -> tuple[Network, Partitioned]:
    """Run the front half, `frontend`, `quantized` and `partition`.

    Args:
        options: options of the compilation, of which `choose` and `keep_layout` apply; default:
            `ExportOptions()`.

    Raises:
        UmakitError: a stage refused the network; the subclass tells the stage.
    """
    progress("importing the network")
    network = import_network(
        source, name=name, parameters=parameters, input_shapes=input_shapes, rounding=rounding
    )
    notices = (*network.model.notices, *(each for one in backends for each in one.notices))
    network = replace(network, model=replace(network.model, notices=notices))
    for sentence in notices:
        notice(sentence)
    progress("partitioning")
    options = options or ExportOptions(keep_layout=keep_layout)
    partitioned = partition_network(network.model, backends, options, progress)
    for sentence in partitioned.notices:
        notice(sentence)
    model = replace(network.model, notices=(*network.model.notices, *partitioned.notices))
    return replace(network, model=model), partitioned


@tvm_api.one_at_a_time
def partition_network(
    model: Model,
    backends: Sequence[Backend],
    options: ExportOptions,
    progress: Progress = lambda stage: None,
) -> Partitioned:
    """Run the stage `partition`. With `choose="cycles"`, also run all other stages to count
    cycles."""

    def stage(order: Sequence[Backend], costs: LayerCosts | None = None) -> Partitioned:
        return partition(
            model.module, order, keep_layout=options.keep_layout, costs=costs, cpu=cpu
        )  # fmt: skip

    def advised(partitioned: Partitioned) -> Partitioned:
        return with_advice(partitioned, model, backends, options)

    cpu = find_cpu(options.cpu)
    fewest = 2 if cpu.costs is None else 1
    if options.choose == "order" or len({each.target_name for each in backends}) < fewest:
        return advised(stage(backends))
    given = replace(options, choose="order")
    if options.records is not None:
        tilings = read_tilings(Path(options.records), model, backends)
        choices = read_choices(Path(options.records), model, cpu)
        given = replace(
            given, records=None, tilings={**options.tilings, **tilings},
            choices={**options.choices, **choices},
        )  # fmt: skip

    def export(partitioned: Partitioned, folder: Path) -> Library:
        chosen = given
        if partitioned.report.offloaded and cpu.missing_here():
            # Cycles of accelerators do not depend on the CPU, and the library has to run here.
            chosen = replace(given, cpu=GENERIC)
        return export_program(model, partitioned, backends, folder, chosen)

    return advised(choose_by_cycles(backends, Stages(stage, export, _run), progress, cpu))


def _run(library: Path, inputs: Arrays) -> list[int | None]:
    """Return the device's cycles of each layer of a library in one inference on this machine."""
    return [layer.clock_cycles for layer in run_library(library, inputs, profile=True).layers]


def compile_model(
    source: str | os.PathLike[str] | Any,
    backends: Sequence[Backend],
    output: str | os.PathLike[str],
    *,
    name: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    rounding: str | None = None,
    options: ExportOptions | None = None,
    progress: Progress = lambda stage: None,
    notice: Progress = lambda sentence: None,
) -> Library:
    """Compile a network to a standalone C library.

    Args:
        source: path of an ONNX, TensorFlow Lite or PyTorch (`.pt2`) file or of a Relax module in
            JSON, a `torch.export.ExportedProgram`, or a Relax module.
        backends: accelerators in order of priority; none means CPU only.
        output: folder to write, or tar file with the suffix `.tar`. Earlier files of umakit are
            replaced, other files stay.
        name: name of the model in C; default: derived from the file's name.
        parameters: values of a Relax module's parameters by name.
        input_shapes: shapes by input name, for symbolic dimensions.
        rounding: rounding of integers in quantized networks, `tflm` or `ort`; default: the rounding
            of the file format.
        options: options of the compilation, such as planner, memory pools and form of the weights.
        progress: callback with a description of each stage.
        notice: callback with each decision made on the user's behalf.

    Raises:
        InputError: an argument has the wrong type.
        UmakitError: a stage refused the network; the subclass tells the stage.
    """
    _check_types(backends, output, options)
    options = options or ExportOptions()
    files = model_files(source) if isinstance(source, (str, os.PathLike)) else []
    records = None if options.records is None else Path(options.records)
    own = map(cpu_file, cpu_texts(options.cpu))
    inputs = input_files(records, *own, backends=backends, model=files)
    destination = Destination(Path(output), inputs, options.force)
    destination.check()
    first = replace(options, cpu=next(iter(options.cpus)))
    network, partitioned = partition_model(
        source, backends, name=name, parameters=parameters, input_shapes=input_shapes,
        rounding=rounding, options=first, progress=progress, notice=notice,
    )  # fmt: skip
    export = _export_for_cpus if len(options.cpus) > 1 else export_program
    library = export(network.model, partitioned, backends, destination, options, progress)
    for sentence in library.metadata["umakit"]["notices"][len(network.model.notices) :]:
        notice(sentence)
    return library


def _check_types(backends: object, output: object, options: object) -> None:
    """Refuse arguments of `compile_model` with wrong types, which scripts may pass."""
    if isinstance(backends, Backend | str | os.PathLike) or not isinstance(backends, Sequence):
        raise InputError(
            "backends is not a list of backends", fix='write [umakit.find_backend("NAME")]'
        )
    for backend in backends:
        if not isinstance(backend, Backend):
            raise InputError(
                f"backends hold {shown(str(backend), 60)!r}, which is not a backend",
                fix='write umakit.find_backend("NAME"), where NAME may be the path of a folder',
            )
    if not isinstance(output, str | os.PathLike):
        raise InputError("output is not a path", fix="name the folder or tar file to write")
    if not isinstance(options, ExportOptions | None):
        raise InputError("options are not ExportOptions", fix="write umakit.ExportOptions(...)")


@tvm_api.one_at_a_time
def export_program(
    model: Model,
    partitioned: Partitioned,
    backends: Sequence[Backend],
    destination: Path | Destination,
    options: ExportOptions | None = None,
    progress: Progress = lambda stage: None,
) -> Library:
    """Run the second half, `lower`, `program`, `memory`, `codegen` and `library`.

    Args:
        destination: the folder or tar file to write.

    Raises:
        UmakitError: a stage refused the network; the subclass tells the stage.
    """
    options = options or ExportOptions()
    planned = plan_program(model, partitioned, backends, options, progress)
    planned = planning.with_parts(planned, backends, options)
    with naming_file_of(model):
        progress("writing the library")
        if isinstance(destination, Path):
            destination = Destination(destination, force=options.force)
        return write_library([planned], planned.backends, destination, options.weights)


def _export_for_cpus(
    model: Model,
    partitioned: Partitioned,
    backends: Sequence[Backend],
    destination: Destination,
    options: ExportOptions,
    progress: Progress,
) -> Library:
    """Write one library for several CPUs."""
    partitioned_for = {next(iter(options.cpus)): partitioned}
    texts = {cpu.name: text for text, cpu in options.cpus.items()}
    planned: dict[str, PlannedProgram] = {}
    generic: PlannedProgram | None = None
    for text, cpu in sorted(options.cpus.items(), key=lambda item: item[1].name != GENERIC):
        progress(f"compiling for {cpu.name}")
        own = replace(options, cpu=text)
        if options.records is not None:
            names = [each.name for each in options.cpus.values()]
            if is_of_another(Path(options.records), cpu, names):
                own = replace(own, records=None)
        network = partitioned_for.get(text) or partition_network(model, backends, own, progress)
        planned[text] = plan_program(model, network, backends, own, progress, generic)
        generic = planned[text] if cpu.name == GENERIC else generic
        planned[text] = planning.with_parts(planned[text], backends, own)
    networks = with_common_pools(
        [
            replace(planned[texts[choice.cpu.name]], choice=choice)
            for choice in choices_of(list(options.cpus.values()))
        ]
    )
    used = {name: each for found in planned.values() for name, each in found.backends.items()}
    with naming_file_of(model):
        progress("writing the library")
        return write_library(networks, used, destination, options.weights)


@tvm_api.one_at_a_time
def plan_program(
    model: Model,
    partitioned: Partitioned,
    backends: Sequence[Backend],
    options: ExportOptions,
    progress: Progress = lambda stage: None,
    generic: PlannedProgram | None = None,
) -> PlannedProgram:
    """Run the stages `lower`, `program` and `memory`, for a CPU within the limit of the arena.

    The reference of the limit is `generic`, planned here by default. The limit may forbid the
    layout of the CPU: the result has the partitioned network in use.
    """
    cpu = find_cpu(options.cpu)
    records = None if options.records is None else Path(options.records)
    choices = {} if records is None else read_choices(records, model, cpu)
    options = replace(options, choices={**options.choices, **choices})
    if not cpu.is_scheduled_for:
        return planning.plan_program(model, partitioned, backends, options, progress)
    if generic is None:
        for_any = replace(options, cpu=GENERIC, choices={})
        network = partitioned
        if (
            options.choose == "order" or cpu.costs is None
        ):  # otherwise layers that the CPU won would move
            network = partition_network(model, backends, for_any, progress)
        generic = planning.plan_program(model, network, backends, for_any, progress)
    in_layout_of_model = generic.partitioned

    def plan(generic_rows: frozenset[int], keeps_layout: bool) -> PlannedProgram:
        network = in_layout_of_model if keeps_layout else partitioned
        found = planning.plan_program(model, network, backends, options, progress, generic_rows)
        if records is not None and choices and not generic_rows and not keeps_layout:
            check_choices(records, choices, found.program.choices, cpu, bool(backends))
        return found

    planned, scratch = within_limit(generic, options.scratch_limit, plan)
    program = replace(planned.program, cpu=cpu if cpu.is_described else None)
    return replace(planned, program=program, memory=replace(planned.memory, scratch=scratch))
