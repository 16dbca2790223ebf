# SPDX-License-Identifier: Apache-2.0
"""The reference for layers with an accelerator's own rounding.

Patterns with `rounding="own:FUNCTION"` or `"float32"` replace the model's rounding. Their reference
is umakit's CPU kernels with that rounding, in C, because LLVM lacks the backend's functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.devices.probe import Probe
from umakit.frontend import import_model
from umakit.library.options import ExportOptions
from umakit.operators.offload.rounding import call_rounded_by
from umakit.operators.registry import operator_of
from umakit.partition.partitioner import partition
from umakit.pipeline import export_program
from umakit.registration.backend import Backend

Array = npt.NDArray[Any]


def rounded(call: tvm_api.Expr, rounding: str) -> tvm_api.Expr:
    """Return a call of an integer operator with an accelerator's own rounding.

    Args:
        rounding: rounding as named in offload reports; empty for the model's.
    """
    if not rounding or not isinstance(call, tvm_api.Call):
        return call
    operator = operator_of(call)
    if operator is None or operator.parameters is None:
        return call
    return call_rounded_by(call, operator.parameters, rounding)


def results_of_kernels(
    module: tvm_api.IRModule,
    inputs: Mapping[str, Array],
    backends: Sequence[Backend],
    folder: Path,
) -> list[Array]:
    """Return the results of a network by umakit's CPU kernels, in order.

    Args:
        module: the network.
        inputs: arrays by name.
        backends: backends whose C functions the kernels call to round.
        folder: folder for files.

    Raises:
        UmakitError: a stage refused the network, or the C compiler refused the library.
    """
    folder.mkdir(parents=True)
    model = import_model(module, name="reference")
    library = export_program(
        model, partition(model.module, []), backends, folder / "library", ExportOptions()
    )
    description = library.metadata["umakit"]
    probe = Probe(description, library.path, folder / "program", flags=("-O1",))
    raw = {name: data for run in probe.run(inputs, {}) for name, data in run.outputs.items()}
    return [
        raw[output["c_name"]].view(np.dtype(output["dtype"])).reshape(output["shape"])
        for output in description["outputs"]
    ]
