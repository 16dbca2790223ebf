# SPDX-License-Identifier: Apache-2.0
"""Runs of a compiled library with input and output files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from umakit.devices import HOST
from umakit.devices.designs import Design
from umakit.devices.run import RunResult, load_inputs, run_library, save_outputs, select_inputs
from umakit.errors import DeviceError
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
    rtl: Sequence[Design] = (),
    progress: Callable[[str], None] = lambda stage: None,
) -> RunResult:
    """Run a library with the arrays of a file, and write its outputs to another file.

    Args:
        library: folder or tar file that `uma compile` wrote.
        inputs: arrays by input name (npz), with one more leading dimension for several inferences.
        outputs: file for the outputs (npz), which replaces outputs of an earlier run; None to
            discard them.
        repeat, profile, device, timeout, rtl: as in `umakit.run_library`.
        force: whether a file that umakit did not write is replaced too.
        progress: callback with a description of each stage.

    Raises:
        OutputError: the output file is an input, must not be replaced, or cannot be written.
        DeviceError: the run failed; names the layer if it is found.
        UmakitError: the library or the inputs are wrong, see the subclasses.
    """
    read = [inputs, *library_files(library)]
    if outputs is not None:
        check_parent(outputs)
        check_file(outputs, NPZ_RESULTS, read, force=force)
    progress("building and running")
    arrays = select_inputs(library, load_inputs(inputs))
    try:
        result = run_library(
            library,
            arrays,
            repeat=repeat,
            profile=profile,
            record_commands=profile and device == HOST.name and not rtl,
            device=device,
            timeout=timeout,
            rtl=rtl,
        )
    except DeviceError as error:
        if rtl:
            raise
        from umakit.tools.failed_layer import with_layer  # imports TVM, which runs do not need

        raise with_layer(error, library, arrays, device, timeout) from None
    if outputs is not None:
        save_outputs(outputs, result.outputs, read, force=force)
    return result
