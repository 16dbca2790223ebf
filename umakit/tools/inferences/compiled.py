# SPDX-License-Identifier: Apache-2.0
"""Figures of inferences of a just compiled library, with bounds and predicted bytes."""

from __future__ import annotations

from collections.abc import Sequence

from umakit.backend.base import UMABackend
from umakit.devices.run import RunResult
from umakit.library.export import Library
from umakit.tools.inferences.accelerators import (
    Scratchpad,
    accelerator_inferences,
    predicted_bytes,
)
from umakit.tools.inferences.collect import measured_inferences
from umakit.tools.inferences.figures import SeveralInferences


def inferences_of_library(
    library: Library,
    backends: Sequence[UMABackend],
    result: RunResult,
    cpu_clock: float | None = None,
) -> SeveralInferences | None:
    """Return the figures of inferences of a library that was compiled and run, with bounds.

    Args:
        library: the compiled library, with its program.
        backends: backends of the compilation.
        result: run of the library.
        cpu_clock: as in `umakit.tools.accounting.account`.

    Returns:
        None if the run did not separate inferences.
    """
    program, description = library.program, library.metadata["umakit"]
    if result.inferences is None or program is None:
        return None
    scratchpads = Scratchpad.of_library(description["memory"])
    count = result.inferences.count
    return measured_inferences(
        description, result, cpu_clock,
        predicted_bytes=predicted_bytes(program, backends),
        accelerators=accelerator_inferences(program, scratchpads, backends, count),
    )  # fmt: skip
