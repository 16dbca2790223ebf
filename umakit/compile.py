# SPDX-License-Identifier: Apache-2.0
"""From a network to a C library: the whole pipeline, read from top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from umakit.backend import UMABackend
from umakit.frontend import Model, import_model
from umakit.library import Library, check_destination, write_library
from umakit.lower import lower
from umakit.memory import plan_memory
from umakit.memory_validator import validate_plan
from umakit.partitioner import Partitioned, partition
from umakit.program import build_program
from umakit.quantization import quantize_to_integers

Progress = Callable[[str], None]


def compile_model(
    source: str | Path | Any,
    backends: Sequence[UMABackend],
    output: str | Path,
    *,
    name: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    progress: Progress = lambda stage: None,
    notice: Progress = lambda sentence: None,
) -> Library:
    """Compile a network to a standalone C library.

    Args:
        source: path of an ONNX or TensorFlow Lite file, or a Relax module.
        backends: accelerators in order of priority; none means CPU only.
        output: the folder to write.
        name: of the model in C; default: from the file's name.
        parameters: values of a Relax module's parameters by name.
        input_shapes: shapes by input name, for symbolic dimensions.
        progress: told what is being done.
        notice: told what was decided on the user's behalf.

    Raises:
        UmakitError: its subclass says which stage refused and why.
    """
    destination = Path(output)
    check_destination(destination)
    progress("importing the network")
    model = import_model(source, name=name, parameters=parameters, input_shapes=input_shapes)
    model = quantize_to_integers(model)
    for sentence in model.notices:
        notice(sentence)
    progress("partitioning")
    partitioned = partition(model.module, backends)
    return export_program(model, partitioned, backends, destination, progress)


def export_program(
    model: Model,
    partitioned: Partitioned,
    backends: Sequence[UMABackend],
    destination: Path,
    progress: Progress = lambda stage: None,
) -> Library:
    """The second half of the pipeline: from a partitioned network to a folder.

    Raises:
        UmakitError: its subclass says which stage refused and why.
    """
    progress("lowering to kernels")
    lowered = lower(partitioned, backends)
    program = build_program(model, lowered, partitioned.report)
    progress("planning memory")
    plan = plan_memory(program)
    validate_plan(program, plan)
    progress("writing the library")
    used = {call.target for call in program.calls}
    by_target = {b.target_name: b for b in backends if b.target_name in used}
    relax_text = partitioned.module.script(show_meta=False)
    return write_library(destination, program, plan, partitioned.report, by_target, relax_text)
