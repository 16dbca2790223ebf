# SPDX-License-Identifier: Apache-2.0
"""The library under test: newly compiled or existing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from umakit import tvm_api
from umakit.backend.base import UMABackend
from umakit.codegen.constants import CONSTANT_ALIGNMENT
from umakit.devices import HOST, Device
from umakit.devices.cpus import description_for
from umakit.errors import InputError, LibraryError
from umakit.frontend import Model
from umakit.library.export import Library
from umakit.library.metadata import load_metadata
from umakit.partition.partitioner import Partitioned
from umakit.partition.report import OffloadReport, OperatorPlacement
from umakit.pipeline import ExportOptions, export_program

MOST_CONSTANTS_IN_C = 4 * 1024 * 1024
"""Maximum size in bytes of constants in C; more would take too long to compile."""


def compiled_library(
    model: Model,
    partitioned: Partitioned,
    backends: Sequence[UMABackend],
    path: Path,
    options: ExportOptions | None,
) -> Library:
    """Compile a partitioned network like `compile_model`.

    Args:
        model: the network with integer operators.
        partitioned: the partitioned network.
        backends: backends in order of priority.
        path: the folder to write.
        options: None for the defaults with large weights in a blob.
    """
    options = options or ExportOptions(weights=form_of_weights(partitioned.module, backends))
    return export_program(model, partitioned, backends, path, options)


def keeps_results(library: Library) -> bool:
    """Whether layers keep results in a scratchpad, where they cannot be compared."""
    traffic = library.metadata["umakit"]["memory"].get("traffic")
    return bool(traffic and traffic["kept"])


def storing(options: ExportOptions | None, library: Library) -> ExportOptions:
    """Return the options of an otherwise equal library whose layers all store their results.

    Args:
        options: options of the library; None for the defaults.
        library: the library compiled with these options.
    """
    options = options or ExportOptions(weights=library.metadata["umakit"]["weights"])
    return replace(options, keep_in_scratchpads=False)


def written_library(path: Path, model: Model, device: Device = HOST) -> Library:
    """Read a library that `uma compile` wrote for a model; select the CPU for the device.

    Raises:
        LibraryError: the library is missing or damaged.
        InputError: the library is of another model or of other input shapes.
    """
    description = description_for(path, device)
    metadata = {**load_metadata(path), "umakit": description}
    if model.fingerprint and description["model_sha256"] != model.fingerprint:
        raise InputError(
            "is the library of another model file", where=str(path), fix="compile this one"
        )
    written = [(item["name"], list(item["shape"])) for item in description["inputs"]]
    wanted = [(item.name, list(item.shape)) for item in model.inputs]
    if written != wanted:
        raise InputError(
            f"was compiled for inputs {_listed(written)}, not {_listed(wanted)}",
            where=str(path),
            fix="give the same --input-shapes",
        )
    try:
        placements = tuple(
            OperatorPlacement(**row, macs=0, shape=(), dtype="") for row in description["operators"]
        )
    except (KeyError, TypeError):
        raise LibraryError("is damaged", where=str(path), fix="export it again") from None
    return Library(path, metadata, OffloadReport(placements))


def _listed(inputs: Sequence[tuple[str, list[int]]]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in inputs)


def form_of_weights(module: Any, backends: Sequence[UMABackend] = ()) -> Literal["c", "blob"]:
    """Return the default form of constants: a blob if they are large and fit a blob."""
    if any(each.configuration.dma.alignment > CONSTANT_ALIGNMENT for each in backends):
        return "c"
    constants = tvm_api.collect(module["main"], tvm_api.GenericConst)
    arrays = [tvm_api.constant_array(constant) for constant in constants]
    size = sum(array.nbytes for array in arrays if array is not None)
    return "blob" if size > MOST_CONSTANTS_IN_C else "c"
