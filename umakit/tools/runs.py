# SPDX-License-Identifier: Apache-2.0
"""Runs of a compiled library whose inputs and results are files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from umakit.devices import HOST
from umakit.devices.run import RunResult, load_inputs, run_library, save_outputs, select_inputs
from umakit.files.outputs import NPZ_RESULTS, check_file, check_parent
from umakit.library.metadata import library_files


def run_files(
    library: Path,
    inputs: Path,
    outputs: Path | None = None,
    *,
    repeat: int = 1,
    profile: bool = False,
    device: str = HOST.name,
    timeout: float | None = None,
    force: bool = False,
    progress: Callable[[str], None] = lambda stage: None,
) -> RunResult:
    """Run a library with the arrays of a file, and write its results to another one.

    Args:
        library: what `uma compile` wrote.
        inputs: arrays by input name (npz), with one more leading dimension for several inferences.
        outputs: file for the results (npz); None for none. Results of an earlier run are replaced.
        repeat, profile, device, timeout: as of `umakit.run_library`.
        force: whether a file that something else wrote is replaced too.
        progress: told what is being done.

    Raises:
        OutputError: the file of the results is an input, not ours to write, or cannot be written.
        UmakitError: its subclass says what is wrong with the library, the inputs or the run.
    """
    read = [inputs, *library_files(library)]
    if outputs is not None:
        check_parent(outputs)
        check_file(outputs, NPZ_RESULTS, read, force=force)
    progress("building and running")
    arrays = select_inputs(library, load_inputs(inputs))
    result = run_library(
        library, arrays, repeat=repeat, profile=profile, device=device, timeout=timeout
    )
    if outputs is not None:
        save_outputs(outputs, result.outputs, read, force=force)
    return result
