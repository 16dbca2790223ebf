# SPDX-License-Identifier: Apache-2.0
"""From a network to a C library: the whole pipeline, read from top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from umakit.backend.base import UMABackend
from umakit.backend.inputs import input_files
from umakit.codegen.driver_names import names_taken_by
from umakit.errors import LibraryError, LoweringError, MemoryPlanError
from umakit.frontend import Model, import_model, model_files
from umakit.library.export import Library, check_destination, write_library
from umakit.lower import lower
from umakit.lower.use_records import using_records
from umakit.memory import (
    DEFAULT_PLANNER,
    MemoryPool,
    check_planner,
    memory_pools,
    plan_memory,
)
from umakit.memory.validator import validate_plan
from umakit.partition.partitioner import Partitioned, partition
from umakit.program.overlap import Overlap, overlap_with_cpu
from umakit.program.program import Tilings, build_program
from umakit.program.residency import keep_in_scratchpads
from umakit.quantization import quantize_to_integers

Progress = Callable[[str], None]


@dataclass(frozen=True)
class ExportOptions:
    """What a build may choose.

    Attributes:
        planner: of memory, a name of `umakit.memory.PLANNERS`.
        pools: memories of the board in order of preference, after those of the backends.
        weights: `c` puts constants into C; `blob` into one binary file that a loader checks.
        keep_in_scratchpads: whether a result stays in a scratchpad for the next layer where it
            can; else every layer loads and stores its tensors.
        overlap: whether the CPU works while an accelerator does, see `umakit.program.overlap`.
        index_checks: whether the library checks indices that are computed at run time; without,
            an index out of range reads or writes outside of its tensor.
        records: a file of `uma tune`, whose tilings are used; None for the default ones.
        force: whether files of the output folder that were changed since umakit wrote them, or a
            tar file that something else wrote, are replaced too; inputs never are.
    """

    planner: str = DEFAULT_PLANNER
    pools: tuple[MemoryPool, ...] = ()
    weights: Literal["c", "blob"] = "c"
    keep_in_scratchpads: bool = True
    overlap: Overlap = "free"
    records: Path | None = None
    force: bool = False
    index_checks: bool = True

    def reserved_names(self, pools: Sequence[MemoryPool]) -> list[str]:
        """Names of the C interface that no tensor may have.

        Raises:
            MemoryPlanError: a pool has the name of what else the interface takes.
        """
        if self.weights == "blob" and any(pool.name == "weights" for pool in pools):
            raise MemoryPlanError(
                "a memory pool cannot be called 'weights' where the weights are a blob",
                fix="choose another name for it, or --weights c",
            )
        names = [name for pool in pools for name in (pool.name, f"{pool.name}_size")]
        return [*names, "weights"] if self.weights == "blob" else names


def parse_weights(form: str) -> Literal["c", "blob"]:
    """A form of the weights by name.

    Raises:
        LibraryError: there is no such form.
    """
    if form == "c":
        return "c"
    if form == "blob":
        return "blob"
    raise LibraryError(f"weights cannot be written as {form!r}", fix="choose c or blob")


def parse_overlap(when: str) -> Overlap:
    """When the CPU works beside an accelerator, by name.

    Raises:
        LibraryError: there is no such case.
    """
    for known in get_args(Overlap):
        if when == known:
            found: Overlap = known
            return found
    raise LibraryError(
        f"the CPU cannot work beside an accelerator {when!r}",
        fix=f"choose {', '.join(get_args(Overlap))}",
    )


def compile_model(
    source: str | Path | Any,
    backends: Sequence[UMABackend],
    output: str | Path,
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
        output: the folder to write, or the tar file if it ends in `.tar`. Files that umakit wrote
            there earlier are replaced, other ones stay.
        name: of the model in C; default: from the file's name.
        parameters: values of a Relax module's parameters by name.
        input_shapes: shapes by input name, for symbolic dimensions.
        rounding: of a quantized network's integers, `tflm` or `ort`; default: of the format.
        options: planner, memory pools and the form of the weights.
        progress: told what is being done.
        notice: told what was decided on the user's behalf.

    Raises:
        UmakitError: its subclass says which stage refused and why.
    """
    destination, options = Path(output), options or ExportOptions()
    path = source if isinstance(source, (str, Path)) else None
    files = [] if path is None else model_files(path)
    inputs = input_files(options.records, backends=backends, model=files)
    check_destination(destination, inputs, force=options.force)
    check_planner(options.planner)
    progress("importing the network")
    model = import_model(
        source, name=name, parameters=parameters, input_shapes=input_shapes, rounding=rounding
    )
    model = quantize_to_integers(model)
    for sentence in model.notices:
        notice(sentence)
    progress("partitioning")
    partitioned = partition(model.module, backends)
    with _naming(path):
        return export_program(model, partitioned, backends, destination, options, progress, inputs)


@contextmanager
def _naming(path: str | Path | None) -> Iterator[None]:
    """Let errors of lowering name the model's file."""
    try:
        yield
    except LoweringError as error:
        if path is None or str(path) in error.where:
            raise
        where = f"{path}, {error.where}" if error.where else str(path)
        raise LoweringError(error.what, where=where, fix=error.fix) from error


def export_program(
    model: Model,
    partitioned: Partitioned,
    backends: Sequence[UMABackend],
    destination: Path,
    options: ExportOptions | None = None,
    progress: Progress = lambda stage: None,
    inputs: Sequence[Path] = (),
) -> Library:
    """The second half of the pipeline: from a partitioned network to a folder.

    Args:
        model, partitioned, backends, options, progress: as in `compile_model`.
        destination: the folder or tar file to write.
        inputs: files that were read and must stay.

    Raises:
        UmakitError: its subclass says which stage refused and why.
    """
    options = options or ExportOptions()
    progress("lowering to kernels")
    with using_records(options.records, model, backends) as tuned:
        lowered = lower(partitioned, backends, options.index_checks)
    used = {kernel.target for kernel in lowered.kernels.values()}
    by_target = {b.target_name: b for b in backends if b.target_name in used}
    pools = memory_pools(list(by_target.values()), options.pools)
    reserved = [*options.reserved_names(pools), *names_taken_by(by_target)]
    program = build_program(model, lowered, partitioned.report, reserved)
    program = replace(program, index_checks=options.index_checks)
    program = overlap_with_cpu(program, by_target, options.overlap)
    if tuned is not None:
        program = replace(program, tilings=Tilings(len(tuned.layers), len(tuned.tuned)))
    progress("planning memory")
    if options.keep_in_scratchpads:
        program = keep_in_scratchpads(program, by_target, pools, options.planner)
    plan = plan_memory(program, pools, options.planner)
    validate_plan(program, plan)
    progress("writing the library")
    relax_text = partitioned.module.script(show_meta=False)
    return write_library(
        destination, program, plan, partitioned.report, by_target, relax_text, options.weights,
        inputs, options.force,
    )  # fmt: skip
