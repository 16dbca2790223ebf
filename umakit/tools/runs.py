# SPDX-License-Identifier: Apache-2.0
"""Runs of a compiled library with input and output files, and settings of measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

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
from umakit.files.outputs import NPZ_RESULTS, TRACE, check_distinct, check_file, check_parent
from umakit.library.metadata import library_files, load_metadata
from umakit.tools.trace import TraceSummary, trace_of_run, write_trace
from umakit.tools.trace.simulated import first_inference

if TYPE_CHECKING:
    from umakit.library.options import ExportOptions


@dataclass(frozen=True)
class Measuring:
    """Settings for compiling and running a network for its figures.

    Attributes:
        inputs: arrays by input name; figures are means over the inferences. None: one inference of
            random numbers.
        cpu_clock: cycles a second of the CPU, as in `umakit.tools.accounting.account`.
        device: name of the device in `umakit.devices.DEVICES`; it must run the code of the CPU.
        inferences: number of consecutive inferences, with the first one measured separately;
            without inputs, each with its own random numbers. None: all together.
        input_shapes, rounding, options: as in `umakit.compile_model`, for models.
        with_size: whether a comparison compiles the code for a measurement of its size.
    """

    inputs: Arrays | None = None
    inputs_name: str = "given inputs"
    seed: int = 0
    cpu_clock: float | None = None
    device: str = HOST.name
    inferences: int | None = None
    input_shapes: Mapping[str, Sequence[int]] | None = None
    rounding: str | None = None
    options: ExportOptions | None = None
    with_size: bool = False


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run of a library.

    Attributes:
        repeat, profile, device, timeout, rtl, cpu: as in `umakit.run_library`.
        inferences: number of inferences to run and report separately, with a profile; None for all
            inferences of the file together.
    """

    repeat: int = 1
    profile: bool = False
    device: str = HOST.name
    timeout: float | None = None
    rtl: Sequence[Design] = ()
    cpu: str = ""
    inferences: int | None = None


@dataclass(frozen=True)
class RunFiles:
    """The files of a run.

    Attributes:
        inputs: arrays by input name (npz), with one more leading dimension for several inferences;
            None for a library without inputs.
        outputs: file for the outputs (npz), which replaces outputs of an earlier run; None to
            discard them.
        trace: file for a trace of the first inference, on the host only; None for none.
        wave: waveform, as in `umakit.run_library`; None for none.
        also_read: further input files, which must not be overwritten.
    """

    inputs: Path | None
    outputs: Path | None = None
    trace: Path | None = None
    wave: WaveFile | None = None
    also_read: Sequence[Path] = ()
    force: bool = False

    def check(self, library: Path, device: str) -> list[Path]:
        """Refuse files that must not be written; return the files that a run reads."""
        inputs = [self.inputs] if self.inputs else []
        read = [*inputs, *self.also_read, *library_files(library)]
        if self.outputs is not None:
            check_parent(self.outputs)
            check_file(self.outputs, NPZ_RESULTS, read, force=self.force)
        if self.wave is not None:
            self.wave.inputs = read
            self.wave.check()
        check_distinct(self.outputs, None if self.wave is None else self.wave.path, self.trace)
        if self.trace is not None:
            if device != HOST.name:
                raise InputError(
                    f"a trace is recorded on {HOST.name}, not on {device}",
                    where="--trace",
                    fix="leave --device or --trace out",
                )
            check_parent(self.trace)
            check_file(self.trace, TRACE, read, force=self.force)
        return read


def run_files(
    library: Path,
    files: RunFiles,
    how: RunSettings,
    progress: Callable[[str], None] = lambda stage: None,
) -> tuple[RunResult, TraceSummary | None]:
    """Run a library with the arrays of a file; return the result, and the trace's summary if
    any."""
    read, wave, trace = files.check(library, how.device), files.wave, files.trace
    progress("building and running" if wave is None else "building and running with a waveform")
    arrays: Arrays = select_inputs(library, load_inputs(files.inputs) if files.inputs else {})
    if how.inferences is not None:
        expected = load_metadata(library)["umakit"]["inputs"]
        arrays = first_inferences(expected, arrays, how.inferences)
    is_plain_host = how.device == HOST.name and not how.rtl
    try:
        result = run_library(
            library,
            arrays,
            repeat=how.repeat,
            profile=how.profile or trace is not None,
            record_commands=trace is not None or (how.profile and is_plain_host),
            device=how.device,
            timeout=how.timeout,
            rtl=how.rtl,
            wave=wave,
            each_inference=how.inferences is not None,
            cpu=how.cpu,
        )
    except DeviceError as error:
        if how.rtl:
            raise
        from umakit.tools.failed_layer import with_layer  # imports TVM

        raise with_layer(error, library, arrays, how.device, how.timeout, how.cpu) from None
    shown = written = None
    if trace is not None:
        first = first_inference(library, arrays, result, how.timeout, how.rtl, how.cpu)
        designs = [design.backend for design in how.rtl]
        shown = trace_of_run(description_for(library, HOST, how.cpu), first, designs)
    if files.outputs is not None:
        save_outputs(files.outputs, result.outputs, read, force=files.force)
    if trace is not None and shown is not None:
        written = write_trace(trace, shown, read, force=files.force, progress=progress)
    return (result if how.profile else replace(result, layers=())), written
