# SPDX-License-Identifier: Apache-2.0
"""The trace of `uma report`: what was simulated, and beside it what was predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from umakit.backend.base import UMABackend
from umakit.devices.run import RunResult
from umakit.library.export import Library
from umakit.tools.trace.first import first_inference
from umakit.tools.trace.model import Trace
from umakit.tools.trace.predicted import Plans
from umakit.tools.trace.simulated import trace_of_run


def trace_of_report(
    backends: Sequence[UMABackend],
    folder: Path,
    library: Library,
    arrays: Mapping[str, npt.NDArray[Any]],
    result: RunResult,
) -> Trace:
    """Return the trace of the first inference of a library that was compiled and run.

    Args:
        backends: backends that the library was compiled for.
        folder: the library's folder.
        library: the library, with its program.
        arrays: inputs by name.
        result: the run, with a profile and recorded commands.

    Raises:
        InputError: the cycles of no layer are known, neither simulated nor predicted.
    """
    first = first_inference(folder, arrays, result)
    plans = Plans(library, {backend.target_name: backend.tiling for backend in backends})
    return trace_of_run(
        library.metadata["umakit"], first, predicted=plans.process(), details=plans.details
    )
