# SPDX-License-Identifier: Apache-2.0
"""`uma run`: runs a compiled library with arrays from a file."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from umakit.cli import tables
from umakit.cli.console import print_json, print_whole, progress, say, say_notices, say_wrapped
from umakit.cli.options import (
    ChosenCpuOption,
    CpuClockOption,
    DeviceOption,
    ForceOption,
    InferencesOption,
    JsonOption,
    RequireOffloadOption,
    TraceOption,
    WaveOption,
    check_wave,
    device_of_library,
    find_designs,
    said_when_it_fails,
)

from umakit.cpu.description import GENERIC, NATIVE
from umakit.devices import find_device
from umakit.devices.catalogue import device_file
from umakit.devices.totals import CycleTotals, difference_percent, source_of
from umakit.errors import InputError
from umakit.tools.columns import view

if TYPE_CHECKING:
    from umakit.devices.run import LayerProfile, RunResult
    from umakit.devices.waveforms import WrittenWave
    from umakit.partition.report import UnusedBackend
    from umakit.tools.accounting import RunReport
    from umakit.tools.inferences.figures import SeveralInferences
    from umakit.tools.runs import RunFiles, RunSettings
    from umakit.tools.trace import TraceSummary

EPILOG = """Examples:  uma run digits_library --inputs held_out.npz --profile

           uma run digits_library --inputs held_out.npz --profile --inferences 10

           uma run digits_library --inputs held_out.npz --profile --rtl ./my_accelerator

           uma run digits_library --inputs held_out.npz --rtl ./my_accelerator --wave conv1.fst \
--wave-layer conv1
           uma run digits_library --inputs held_out.npz --trace trace.json

           uma run digits.onnx --inputs held_out.npz --cpu native --print-time"""

LibraryArgument = Annotated[
    Path,
    typer.Argument(
        help="What `uma compile` wrote, or a model, which is compiled without accelerators for the "
        "CPU of this machine.",
        show_default=False,
    ),
]
InputsOption = Annotated[
    Path | None,
    typer.Option(
        "--inputs",
        "-i",
        help="Arrays by input name (npz), any name for a single input; one more leading dimension "
        "runs that many inferences.",
        show_default=False,
    ),
]
OutputsOption = Annotated[
    Path | None,
    typer.Option(
        "--outputs",
        "-o",
        help="Where to write the results (npz); those of an earlier run are replaced.",
        show_default=False,
    ),
]
PrintTimeOption = Annotated[bool, typer.Option("--print-time", help="Print host time.")]
RepeatOption = Annotated[
    int, typer.Option(min=1, max=1_000_000, help="Runs of each inference, for timing.")
]
ProfileOption = Annotated[
    bool, typer.Option("--profile", help="Print MACs and cycles of each layer.")
]
RtlOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rtl",
        help="A backend whose design (\\[rtl] of its accel.toml) answers in place of its "
        "simulator: name or folder; may be repeated.",
        show_default=False,
    ),
]
WaveLayerOption = Annotated[
    str | None,
    typer.Option(
        help="Name of the layer that the waveform is of, in its first run; default: all cycles.",
        show_default=False,
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        max=10_000_000,
        help="Processor time in seconds that the run may take; default: 600 under emulation, 600 "
        "for each inference with an accelerator on the host.",
        show_default=False,
    ),
]


def run(
    library: LibraryArgument,
    inputs: InputsOption = None,
    outputs: OutputsOption = None,
    print_time: PrintTimeOption = False,
    repeat: RepeatOption = 1,
    profile: ProfileOption = False,
    inferences: InferencesOption = None,
    device: DeviceOption = "host",
    cpu: ChosenCpuOption = None,
    timeout: TimeoutOption = None,
    rtl: RtlOption = None,
    wave: WaveOption = None,
    wave_layer: WaveLayerOption = None,
    trace: TraceOption = None,
    cpu_clock: CpuClockOption = None,
    require_offload: RequireOffloadOption = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a compiled library on this machine or an emulated one; accelerators are simulated."""
    from umakit.devices.waveforms import WaveFile
    from umakit.tools.runs import RunFiles, RunSettings

    device = device_of_library(device, library)
    if print_time:
        _check_time(device, "--print-time")
    check_wave(wave, bool(rtl))
    if wave_layer and wave is None:
        raise InputError("--wave-layer is of a waveform", fix="add --wave FILE.fst")
    if cpu_clock is not None and not profile:
        raise InputError("--cpu-clock scales layers of a profile", fix="add --profile")
    if cpu_clock is not None:
        _check_time(device, "--cpu-clock")
    _check_inferences(inferences, profile, repeat)
    file = None if wave is None else WaveFile(wave, wave_layer, force)
    files = RunFiles(inputs, outputs, trace, file, force=force)
    how = RunSettings(repeat, profile, device, timeout, find_designs(rtl), inferences=inferences)
    done = _run(library, cpu, files, how, cpu_clock, require_offload)
    if as_json:
        print_json(_run_json(done, None if file is None else file.written))
        return
    for output_name, array in done.result.outputs.items():
        say(f"{output_name}: {array.dtype}{list(array.shape)}")
    if outputs is not None:
        say(f"Wrote {outputs}")
    if file is not None:
        say(file.sentence)
    if done.trace is not None:
        tables.say_trace(trace, done.trace)
    if done.accounting is not None:
        _print_profile(done.result.layers, done.accounting)
    if done.several is not None:
        tables.print_inferences(done.several)
    if done.accounting is not None:
        tables.print_energy(done.accounting)
    if print_time:
        print_whole(tables.time_table(done.result.times))


@dataclass(frozen=True)
class _Done:
    """A finished run; figures are None without a profile, `several` also without `--inferences`."""

    result: RunResult
    cpu: str
    unused: Sequence[UnusedBackend]
    trace: TraceSummary | None
    accounting: RunReport | None = None
    several: SeveralInferences | None = None


def _run(
    library: Path,
    cpu: str | None,
    files: RunFiles,
    how: RunSettings,
    cpu_clock: float | None,
    require_offload: bool,
) -> _Done:
    """Run a library, or a model that is compiled first, and print its notices."""
    from umakit.tools.model_or_library import library_of, unused_backends

    device, board = find_device(how.device), device_file(how.device)
    default = NATIVE if device.is_host else GENERIC
    with (
        said_when_it_fails(files.wave),
        progress() as tell,
        library_of(library, cpu, default, tell) as given,
    ):
        from umakit.devices.cpus import description_for
        from umakit.library.cpu_sections import names_of_cpus
        from umakit.tools.runs import run_files

        if require_offload:
            unused_backends(given.library, required=True)
        own = () if board is None else (board,)
        files = replace(files, also_read=(*given.read, *own))
        result, trace = run_files(given.library, files, replace(how, cpu=given.cpu), tell)
        unused = unused_backends(given.library)
        description = description_for(given.library, device, given.cpu)
    say_notices([*given.notices, *map(str, unused)])
    done = _Done(result, names_of_cpus(description)[0], unused, trace)
    if not how.profile:
        return done
    from umakit.tools.accounting import account
    from umakit.tools.inferences.figures import measured_inferences

    designs = [each.backend for each in how.rtl]
    if how.inferences is not None:
        several = measured_inferences(description, result, cpu_clock, designs)
        done = replace(done, several=several)
    return replace(done, accounting=account(description, result, cpu_clock, designs))


def _check_time(device: str, option: str) -> None:
    """Refuse an option about host time for an emulated device."""
    found = find_device(device)
    if not found.has_time:
        raise InputError(f"{found.name} has no time of its own", fix=f"leave {option} out")


def _check_inferences(inferences: int | None, profile: bool, repeat: int) -> None:
    """Refuse inferences that cannot be distinguished."""
    if inferences is not None and not profile:
        raise InputError("--inferences tells inferences of a profile apart", fix="add --profile")
    if inferences is not None and repeat != 1:
        raise InputError(
            "--repeat runs an inference again, --inferences the next one",
            fix="leave one of them out",
        )


def _print_profile(layers: Sequence[LayerProfile], accounting: RunReport) -> None:
    print_whole(tables.profile_table(accounting))
    tables.print_owners(accounting)
    say_wrapped(accounting.headline)
    for sentence in accounting.host.sentences:
        say_wrapped(sentence)
    predictions = tables.prediction_table(layers)
    if predictions is not None:
        say("")
        print_whole(predictions)


def _run_json(done: _Done, wave: WrittenWave | None) -> dict[str, Any]:
    result = done.result
    report: dict[str, Any] = {
        "outputs": {
            n: {"shape": list(a.shape), "dtype": str(a.dtype)} for n, a in result.outputs.items()
        },
    }
    if result.times:
        report["mean_seconds"] = statistics.fmean(result.times)
    if result.instructions:
        report["mean_instructions"] = statistics.fmean(result.instructions)
    report["runs"] = result.runs
    report["layers"] = [_layer_json(layer) for layer in result.layers]
    if result.layers:
        report["totals"] = CycleTotals.of(result.layers).as_json()
    if done.accounting is not None:
        report["accounting"] = done.accounting.as_json()
    report["inferences"] = None if done.several is None else done.several.as_json()
    if done.accounting is not None:
        report["events"] = done.accounting.events
    report["wave"] = None if wave is None else wave.as_json()
    report["cpu"] = done.cpu
    report["unused_backends"] = [each.as_json() for each in done.unused]
    return report | ({} if done.trace is None else {"trace": done.trace.as_json()})


MEASURED = (
    "cycles array_cycles dma_cycles moved_bytes register_reads register_writes seconds cpu_seconds "
    "device_seconds instructions cpu_instructions device_instructions"
)


def _layer_json(layer: LayerProfile) -> dict[str, Any]:
    """Return a layer's measurements; null if not measured, missing host figures omitted."""
    figures = {
        **view(layer, "name where identity macs device_macs clock_cycles predicted_cycles"),
        "difference_percent": difference_percent(layer),
        "source": source_of(layer),
        **view(layer, MEASURED),
    }
    host = [key for key in figures if key.endswith(("seconds", "instructions"))]
    return {key: value for key, value in figures.items() if value is not None or key not in host}
