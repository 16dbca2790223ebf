# SPDX-License-Identifier: Apache-2.0
"""`uma run`: runs a compiled library with arrays from a file."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from umakit.cli import tables
from umakit.cli.console import print_json, print_whole, progress, say, say_notices, say_wrapped
from umakit.cli.inference_tables import print_inferences
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
from umakit.cli.owner_tables import print_owners, profile_table
from umakit.cli.tables import print_energy
from umakit.cli.traces import say_trace

from umakit.devices import find_device
from umakit.devices.catalogue import device_file
from umakit.devices.totals import CycleTotals
from umakit.errors import InputError
from umakit.machine.cpu import GENERIC, NATIVE

if TYPE_CHECKING:
    from umakit.devices.run import LayerProfile, RunResult
    from umakit.devices.waveforms import WrittenWave
    from umakit.tools.accounting import Accounting
    from umakit.tools.energy import NetworkEvents
    from umakit.tools.inferences.figures import SeveralInferences
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
    from umakit.tools.model_or_library import library_of, unused_backends

    device = device_of_library(device, library)
    if print_time and not find_device(device).has_time:
        raise InputError(
            f"{find_device(device).name} has no time of its own", fix="leave --print-time out"
        )
    check_wave(wave, bool(rtl))
    if wave_layer and wave is None:
        raise InputError("--wave-layer is of a waveform", fix="add --wave FILE.fst")
    _check_cpu_clock(cpu_clock, profile, device)
    _check_inferences(inferences, profile, repeat)
    designs = find_designs(rtl)
    own = () if (board := device_file(device)) is None else (board,)
    file = None if wave is None else WaveFile(wave, wave_layer, force)
    traced: list[TraceSummary] = []
    default = NATIVE if find_device(device).is_host else GENERIC
    with (
        said_when_it_fails(file),
        progress() as tell,
        library_of(library, cpu, default, tell) as given,
    ):
        from umakit.devices.cpus import description_for
        from umakit.library.cpu_sections import names_of_cpus
        from umakit.tools.runs import run_files

        if require_offload:
            unused_backends(given.library, required=True)
        result = run_files(
            given.library,
            inputs,
            outputs,
            repeat=repeat,
            profile=profile,
            device=device,
            timeout=timeout,
            rtl=designs,
            trace=trace,
            inferences=inferences,
            cpu=given.cpu,
            also_read=(*given.read, *own),
            force=force,
            wave=file,
            progress=tell,
            traced=traced.append,
        )
        unused = unused_backends(given.library)
        description = description_for(given.library, find_device(device), given.cpu)
    say_notices([*given.notices, *map(str, unused)])
    figures = _Figures()
    if profile:
        names = [each.backend for each in designs]
        figures = _figures(description, result, cpu_clock, names, inferences is not None)
    accounting, several, events = figures.accounting, figures.several, figures.events
    if as_json:
        written = None if file is None else file.written
        shown = _run_json(result, accounting, events, several, written)
        shown["cpu"] = names_of_cpus(description)[0]
        shown["unused_backends"] = [each.as_json() for each in unused]
        print_json(shown | ({"trace": traced[0].as_json()} if traced else {}))
        return
    for output_name, array in result.outputs.items():
        say(f"{output_name}: {array.dtype}{list(array.shape)}")
    if outputs is not None:
        say(f"Wrote {outputs}")
    if file is not None:
        say(file.sentence)
    for each in traced:
        say_trace(trace, each)
    if accounting is not None:
        _print_profile(result.layers, accounting)
    if several is not None:
        print_inferences(several)
    if events is not None:
        print_energy(events)
    if print_time:
        print_whole(tables.time_table(result.times))


@dataclass(frozen=True)
class _Figures:
    """The figures from a profile; None for a run without a profile."""

    accounting: Accounting | None = None
    events: NetworkEvents | None = None
    several: SeveralInferences | None = None


def _figures(
    description: dict[str, Any],
    result: RunResult,
    cpu_clock: float | None,
    designs: Sequence[str],
    of_inferences: bool,
) -> _Figures:
    from umakit.tools.accounting import account
    from umakit.tools.energy import NetworkEvents
    from umakit.tools.inferences.collect import measured_inferences

    several = None
    if of_inferences:
        several = measured_inferences(description, result, cpu_clock, designs)
    accounting = account(description, result, cpu_clock, designs)
    return _Figures(accounting, NetworkEvents.of(accounting.rows), several)


def _check_cpu_clock(cpu_clock: float | None, profile: bool, device: str) -> None:
    """Refuse a CPU clock if no step is measured in host time.

    Raises:
        InputError: there is no profile, or the device is emulated.
    """
    if cpu_clock is not None and not profile:
        raise InputError("--cpu-clock scales layers of a profile", fix="add --profile")
    if cpu_clock is not None and not find_device(device).has_time:
        raise InputError(
            f"{find_device(device).name} has no time of its own", fix="leave --cpu-clock out"
        )


def _check_inferences(inferences: int | None, profile: bool, repeat: int) -> None:
    """Refuse inferences that cannot be distinguished.

    Raises:
        InputError: there is no profile, or each inference is repeated.
    """
    if inferences is not None and not profile:
        raise InputError("--inferences tells inferences of a profile apart", fix="add --profile")
    if inferences is not None and repeat != 1:
        raise InputError(
            "--repeat runs an inference again, --inferences the next one",
            fix="leave one of them out",
        )


def _print_profile(layers: Sequence[LayerProfile], accounting: Accounting) -> None:
    print_whole(profile_table(accounting))
    print_owners(accounting)
    say_wrapped(accounting.headline)
    for sentence in accounting.host.sentences:
        say_wrapped(sentence)
    predictions = tables.prediction_table(layers)
    if predictions is not None:
        say("")
        print_whole(predictions)


def _run_json(
    result: RunResult,
    accounting: Accounting | None,
    events: NetworkEvents | None,
    several: SeveralInferences | None,
    wave: WrittenWave | None,
) -> dict[str, Any]:
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
        cycles = [layer.measured_and_predicted for layer in result.layers]
        report["totals"] = CycleTotals.of(cycles).as_json()
    if accounting is not None:
        report["accounting"] = accounting.as_json()
    report["inferences"] = None if several is None else several.as_json()
    if events is not None:
        report["events"] = events.as_json()
    report["wave"] = None if wave is None else wave.as_json()
    return report


def _layer_json(layer: LayerProfile) -> dict[str, Any]:
    """Return a layer's measurements; null if not measured, missing host figures omitted."""
    figures = {
        "name": layer.name,
        "where": layer.where,
        "identity": None if layer.identity is None else layer.identity.as_json(),
        "macs": layer.macs,
        "device_macs": layer.device_macs,
        "clock_cycles": layer.clock_cycles,
        "predicted_cycles": layer.predicted_cycles,
        "difference_percent": layer.measured_and_predicted.difference_percent,
        "source": layer.measured_and_predicted.source,
        "cycles": layer.cycles,
        "array_cycles": layer.array_cycles,
        "dma_cycles": layer.dma_cycles,
        "moved_bytes": layer.moved_bytes,
        "register_reads": layer.register_reads,
        "register_writes": layer.register_writes,
        "seconds": layer.seconds,
        "cpu_seconds": layer.cpu_seconds,
        "device_seconds": layer.device_seconds,
        "instructions": layer.instructions,
        "cpu_instructions": layer.cpu_instructions,
        "device_instructions": layer.device_instructions,
    }
    host = [key for key in figures if key.endswith(("seconds", "instructions"))]
    return {key: value for key, value in figures.items() if value is not None or key not in host}
