# SPDX-License-Identifier: Apache-2.0
"""Runs of a compiled library with input and output files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from umakit.devices import HOST
from umakit.devices.cpus import description_for
from umakit.devices.designs import Design
from umakit.devices.inputs import first_inferences
from umakit.devices.run import (
    Arrays,
    RunResult,
    load_inputs,
    run_library,
    save_outputs,
    select_inputs,
)
from umakit.devices.waveforms import WaveFile
from umakit.errors import DeviceError, InputError
from umakit.files.outputs import NPZ_RESULTS, check_distinct, check_file, check_parent
from umakit.library.metadata import library_files, load_metadata
from umakit.tools.trace import Trace, TraceSummary, trace_of_run, write_trace
from umakit.tools.trace.simulated import first_inference
from umakit.tools.trace.writing import check_trace


def run_files(
    library: Path,
    inputs: Path | None,
    outputs: Path | None = None,
    *,
    repeat: int = 1,
    profile: bool = False,
    device: str = HOST.name,
    timeout: float | None = None,
    force: bool = False,
    rtl: Sequence[Design] = (),
    wave: WaveFile | None = None,
    trace: Path | None = None,
    inferences: int | None = None,
    cpu: str = "",
    also_read: Sequence[Path] = (),
    progress: Callable[[str], None] = lambda stage: None,
    traced: Callable[[TraceSummary], None] = lambda summary: None,
) -> RunResult:
    """Run a library with the arrays of a file, and write its outputs to another file.

    Args:
        library: folder or tar file that `uma compile` wrote.
        inputs: arrays by input name (npz), with one more leading dimension for several inferences;
            None for a library without inputs.
        outputs: file for the outputs (npz), which replaces outputs of an earlier run; None to
            discard them.
        repeat, profile, device, timeout, rtl, wave, cpu: as in `umakit.run_library`.
        force: whether a file that umakit did not write is replaced too.
        trace: file for a trace of the first inference, on the host only; None for none.
        inferences: number of inferences to run and report separately, with a profile; None for all
            inferences of the file together.
        also_read: further input files, which must not be overwritten.
        progress: callback with a description of each stage.
        traced: callback with the trace's content and gaps.

    Raises:
        InputError: a trace is requested and there is nothing to trace; no file is written then.
        OutputError: the output file is an input, must not be replaced, or cannot be written.
        DeviceError: the run failed; names the layer if it is found.
        UmakitError: the library or the inputs are wrong, see the subclasses.
    """
    read = [*([inputs] if inputs else []), *also_read, *library_files(library)]
    if outputs is not None:
        check_parent(outputs)
        check_file(outputs, NPZ_RESULTS, read, force=force)
    if wave is not None:
        wave.inputs = read
        wave.check()
    check_distinct(outputs, None if wave is None else wave.path, trace)
    if trace is not None:
        if device != HOST.name:
            raise InputError(
                f"a trace is recorded on {HOST.name}, not on {device}",
                where="--trace",
                fix="leave --device or --trace out",
            )
        check_trace(trace, read, force=force)
    progress("building and running" if wave is None else "building and running with a waveform")
    arrays: Arrays = select_inputs(library, load_inputs(inputs) if inputs else {})
    if inferences is not None:
        expected = load_metadata(library)["umakit"]["inputs"]
        arrays = first_inferences(expected, arrays, inferences)
    try:
        result = run_library(
            library,
            arrays,
            repeat=repeat,
            profile=profile or trace is not None,
            record_commands=trace is not None or (profile and device == HOST.name and not rtl),
            device=device,
            timeout=timeout,
            rtl=rtl,
            wave=wave,
            each_inference=inferences is not None,
            cpu=cpu,
        )
    except DeviceError as error:
        if rtl:
            raise
        from umakit.tools.failed_layer import with_layer  # imports TVM

        raise with_layer(error, library, arrays, device, timeout, cpu) from None
    shown = None if trace is None else _trace(library, arrays, result, timeout, rtl, cpu)
    if outputs is not None:
        save_outputs(outputs, result.outputs, read, force=force)
    if trace is not None and shown is not None:
        traced(write_trace(trace, shown, read, force=force, progress=progress))
    return result if profile else replace(result, layers=())


def _trace(
    library: Path,
    arrays: Arrays,
    result: RunResult,
    timeout: float | None,
    rtl: Sequence[Design],
    cpu: str,
) -> Trace:
    first = first_inference(library, arrays, result, timeout, rtl, cpu)
    designs = [design.backend for design in rtl]
    return trace_of_run(description_for(library, HOST, cpu), first, designs)
