# SPDX-License-Identifier: Apache-2.0
"""Running an exported library on a device. Imports neither TVM nor the pipeline."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.devices import HOST, Device, check_memory, execute, find_device
from umakit.devices.build import RunnerOptions, build_runner
from umakit.devices.cpus import description_for
from umakit.devices.designs import Design, check_designs
from umakit.devices.execution import (
    cause_of,
    default_limit,
    idle_limit,
    simulator_failed,
    stop_error,
    stopped,
)
from umakit.devices.inferences import MOST_INFERENCES, Inferences, inferences_of
from umakit.devices.inputs import check_inputs, write_inputs
from umakit.devices.profiles import CommandTimes, InferenceProfile, LayerProfile, profiles_of
from umakit.devices.waveforms import WaveFile, wave_of, written_wave
from umakit.errors import DeviceError, InputError, LibraryError
from umakit.files.npz import npz_bytes, read_npz
from umakit.files.outputs import NPZ_RESULTS, check_parent
from umakit.files.staging import temporary_folder, write_file
from umakit.library.metadata import load_metadata

__all__ = [
    "CommandTimes",
    "InferenceProfile",
    "LayerProfile",
    "RunResult",
    "load_inputs",
    "run_library",
    "save_outputs",
    "select_inputs",
]

INPUTS, OUTPUTS = "inputs.bin", "outputs.bin"

MOST_REPEATS = 1_000_000
"""Maximum number of repetitions: the program counts in a C long, which may have 32 bits."""

Arrays = Mapping[str, npt.NDArray[Any]]

MOST_COMMANDS = 65_536
"""Maximum number of commands per layer that are recorded."""

MOST_EMULATED_COMMANDS = 1024
"""Maximum on an emulated device, whose memory holds the records."""


@dataclass(frozen=True)
class RunResult:
    """Outputs and measurements of a run.

    Attributes:
        outputs: arrays by output name; with a leading dimension if the inputs had one.
        times: seconds of each inference, in order; empty on devices without meaningful times.
        layers: measurements per layer, averaged over the inferences; empty without profiling.
        instructions: instructions of each inference, in order; empty if not counted.
        runs: number of inferences, including repetitions.
        whole: measurements of an inference from begin to end; None without profiling.
        inferences: separate measurements of the first and the later inferences; None if not
            requested.
    """

    outputs: dict[str, npt.NDArray[Any]]
    times: tuple[float, ...]
    layers: tuple[LayerProfile, ...]
    instructions: tuple[int, ...]
    runs: int
    whole: InferenceProfile | None = None
    inferences: Inferences | None = None


def load_inputs(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of an npz file by name."""
    return read_npz(path)


def select_inputs(library: Path, arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
    """Select the arrays that are inputs of the network; a data set may contain labels too.

    A single array is selected whatever its name.
    """
    expected = load_metadata(library)["umakit"]["inputs"]
    names = {item[key] for item in expected for key in ("name", "c_name")}
    chosen = {name: array for name, array in arrays.items() if name in names}
    return chosen or dict(arrays)


def save_outputs(
    path: Path, outputs: Arrays, inputs: Iterable[Path] = (), *, force: bool = False
) -> None:
    """Write outputs as an npz file, atomically.

    Args:
        path: path of the file; earlier results of umakit are replaced.
        outputs: arrays by name.
        inputs: input files and folders, which must not be overwritten.
        force: whether a file that umakit did not write is replaced too.

    Raises:
        OutputError: umakit must not replace the file, or cannot write it.
    """
    check_parent(path)
    content = npz_bytes(outputs, NPZ_RESULTS.mark)
    write_file(path, content, NPZ_RESULTS, inputs, force=force)


def run_library(
    library: str | os.PathLike[str],
    inputs: Arrays,
    *,
    repeat: int = 1,
    profile: bool = False,
    record_commands: bool | int = False,
    device: str | os.PathLike[str] | Device = HOST.name,
    timeout: float | None = None,
    rtl: Sequence[Design] = (),
    wave: WaveFile | None = None,
    each_inference: bool = False,
    cpu: str = "",
) -> RunResult:
    """Run inferences on a device; accelerators are simulated.

    Args:
        library: folder or tar file of an exported library.
        inputs: one array for each input; a single-input model takes any key. Arrays with one more
            leading dimension run that many inferences. States may be omitted, see `check_inputs`.
        repeat: number of runs of each inference, for timing.
        profile: whether each layer is measured.
        record_commands: whether the times of commands are recorded for layers on simulated
            accelerators that report them; needs `profile`. A number is the maximum for each layer;
            the default maximum depends on the device.
        device: name of a device in `umakit.devices.DEVICES`, the path of a device's TOML file, or a
            device.
        timeout: limit in seconds of processor time, on remote machines of silence; default: the
            device's limit, 600 under emulation, and on the host 600 for each inference of a library
            with an accelerator.
        rtl: designs that replace the simulators of their backends, on the host.
        wave: file for the waveform of a design, written also for a failed run.
        each_inference: whether the first inference is measured separately from all later ones;
            needs `profile`, and inputs that are not repeated.
        cpu: CPU whose code runs, for a library for several CPUs; default: the first CPU that the
            device supports.

    Raises:
        LibraryError: the library is missing or damaged, or its program is from an older version of
            umakit and cannot separate inferences.
        InputError: a design belongs to no accelerator of the library, an input has a wrong name,
            shape or dtype, or the device is unknown.
        BuildError: the C compiler or emulator is missing, the compiler reported an error, or the
            program is too large for the device.
        DeviceError: the run failed or exceeded the time limit; carries the driver's status.
    """
    machine, most = find_device(device), int(record_commands) if profile else 0
    if record_commands is True and profile:
        most = MOST_COMMANDS if machine.is_host else MOST_EMULATED_COMMANDS
    options = RunnerOptions(profile, most, each_inference, rtl, wave is not None, cpu)
    return _run(Path(library), inputs, machine, options, repeat, timeout, wave)


def _run(
    library: Path,
    inputs: Arrays,
    machine: Device,
    options: RunnerOptions,
    repeat: int,
    timeout: float | None,
    wave: WaveFile | None,
) -> RunResult:
    if not 1 <= repeat <= MOST_REPEATS:
        raise InputError(f"repeat is {repeat}, it must be from 1 to {MOST_REPEATS}")
    description = description_for(library, machine, options.cpu)
    count, batched, arrays = check_inputs(description["inputs"], inputs)
    if options.each_inference:
        _check_each(options.profile, repeat, count)
    machine.check_emulator()
    if machine.is_host:
        check_memory(_memory_of(description))
    check_designs(options.designs, description, machine)
    asked = None if wave is None else wave_of(description, options.designs, wave.layer)
    if timeout is None:
        timeout = default_limit(machine, description, count * repeat)
    runner = build_runner(library, description["interface"], machine, options)
    with temporary_folder("umakit-run-") as folder:
        # A state that is passed on has only the first inference's value.
        parts = (array[index : index + 1] for index in range(count) for array in arrays)
        write_inputs(folder / INPUTS, library, description, parts)
        arguments = [INPUTS, OUTPUTS, str(count), str(repeat)]
        arguments += _states_argument(description["inputs"], arrays, count)
        with written_wave(wave, asked, folder) as environment:
            ended = execute(
                machine, runner, arguments, folder, timeout, idle=idle_limit(description),
                runs_designs=bool(options.designs), environment=environment,
            )  # fmt: skip
        lines = ended.stdout.splitlines()
        report = _report(machine, runner, description, lines, ended.stderr)
        data = (folder / OUTPUTS).read_bytes()
        outputs = _read_outputs(description["outputs"], data, count, batched)
    runs = [line.split() for line in lines if line.startswith("run ")]
    layers: tuple[LayerProfile, ...] = ()
    whole, inferences = None, None
    if options.profile:
        layers, whole = profiles_of(machine, description, report, count * repeat, lines)
    if options.each_inference:
        inferences = inferences_of(machine, description, report, lines)
    return RunResult(
        outputs,
        times=tuple(int(run[1]) / 1e9 for run in runs) if machine.has_time else (),
        layers=layers,
        instructions=tuple(int(run[2]) for run in runs) if machine.counts_instructions else (),
        runs=len(runs),
        whole=whole,
        inferences=inferences,
    )


def _check_each(profile: bool, repeat: int, count: int) -> None:
    """Refuse impossible separate measurements of inferences."""
    if not profile:
        raise InputError("inferences are told apart in a profile only", fix="profile the run")
    if repeat != 1:
        raise InputError(
            f"repeat is {repeat}, inferences that are told apart have inputs of their own",
            fix="leave repeat out",
        )
    if count > MOST_INFERENCES:
        raise InputError(
            f"{count:,} inferences cannot be told apart", fix=f"run at most {MOST_INFERENCES:,}"
        )


def _states_argument(
    expected: Sequence[Mapping[str, Any]], arrays: Sequence[npt.NDArray[Any]], count: int
) -> list[str]:
    """Return the argument STATES: per state 1 if every inference has a value, else 0."""
    states = [array for item, array in zip(expected, arrays, strict=True) if item.get("next_state")]
    return ["".join("1" if len(array) == count else "0" for array in states)] if states else []


def _memory_of(description: Mapping[str, Any]) -> int:
    """Return the static memory of a library's program in bytes: arena, constants and tensors."""
    tensors = (*description["inputs"], *description["outputs"])
    memory = description["memory"]
    kept: int = memory["arena_bytes"] + memory["constants_bytes"]
    return kept + sum(int(item["size_bytes"]) for item in tensors)


def _report(
    device: Device,
    runner: Path,
    description: Mapping[str, Any],
    lines: Sequence[str],
    messages: str,
) -> dict[str, Any]:
    where = f"{device.name}: {runner.name}" if device.is_emulated_or_remote else runner.name
    try:
        report: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, json.JSONDecodeError):
        detail = messages.strip() or "it printed nothing"
        raise DeviceError(f"the program failed: {detail}", where=where) from None
    if report["status"] == 0:
        return report
    status, said, number = int(report["status"]), report["message"], int(report["inference"])
    if "simulator" in report:
        sentence = simulator_failed(report["simulator"], said)
    else:
        sentence, status = stopped(description, status, said)
    cause = cause_of(said, int(report["status"]))
    where = f"inference {number}"
    raise stop_error(sentence, cause, where=where, fix=cause.value, status=status, inference=number)


def _read_outputs(
    expected: Sequence[Mapping[str, Any]], data: bytes, count: int, batched: bool
) -> dict[str, npt.NDArray[Any]]:
    size = sum(int(item["size_bytes"]) for item in expected)
    if len(data) != size * count:
        raise LibraryError("the run wrote fewer outputs than metadata.json promises")
    rows = np.frombuffer(data, dtype=np.uint8).reshape(count, size)
    outputs: dict[str, npt.NDArray[Any]] = {}
    start = 0
    for item in expected:
        end = start + int(item["size_bytes"])
        values = np.ascontiguousarray(rows[:, start:end]).view(np.dtype(item["dtype"]))
        array = values.reshape(count, *item["shape"])
        outputs[item["name"]] = array if batched else array[0]
        start = end
    return outputs
