# SPDX-License-Identifier: Apache-2.0
"""The run of the single inference that a trace shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from umakit.devices.designs import Design
from umakit.devices.inputs import check_inputs
from umakit.devices.run import Arrays, RunResult, run_library
from umakit.errors import InputError
from umakit.library.metadata import load_metadata


def first_inference(
    library: Path,
    arrays: Arrays,
    result: RunResult,
    timeout: float | None = None,
    rtl: Sequence[Design] = (),
    cpu: str = "",
) -> RunResult:
    """Return the run of the first inference alone, on the host, with recorded commands.

    Profiles of several inferences are means, which do not match the times of one inference.

    Args:
        arrays: inputs by name, of one inference or several.
        result: the run of all of them, with a profile and recorded commands.
        timeout, rtl, cpu: as in `umakit.run_library`.

    Raises:
        InputError: there is no inference.
    """
    if result.runs == 1:
        return result
    expected = load_metadata(library)["umakit"]["inputs"]
    count, _, checked = check_inputs(expected, arrays)
    if count == 0:
        raise InputError("the inputs hold no inference to trace")
    first = {item["name"]: array[:1] for item, array in zip(expected, checked, strict=True)}
    return run_library(
        library, first, profile=True, record_commands=True, timeout=timeout, rtl=rtl, cpu=cpu
    )
