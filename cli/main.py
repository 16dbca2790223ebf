# SPDX-License-Identifier: Apache-2.0
"""`uma`: make a backend, see what it takes of a network, compile, run."""

from __future__ import annotations

import functools
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from umakit.cli import diff as diff_command
from umakit.cli import report as report_command
from umakit.cli import sim as sim_command
from umakit.cli import size as size_command
from umakit.cli import tables
from umakit.cli import tune as tune_command
from umakit.cli.console import console, progress, say, say_wrapped
from umakit.cli.faults import answered
from umakit.cli.options import (
    BackendOption,
    DeviceOption,
    ForceOption,
    IndexChecksOption,
    JsonOption,
    ModelArgument,
    OverlapOption,
    PlannerOption,
    PoolOption,
    RecordsOption,
    RoundingOption,
    ShapesOption,
    WeightsOption,
    export_options,
    find_backends,
    parse_shapes,
)
from umakit.cli.package import EXAMPLES as PACKAGE_EXAMPLES
from umakit.cli.package import package

from umakit.devices import find_device
from umakit.errors import InputError
from umakit.files.outputs import (
    MEMORY_MAP,
    NPZ_RESULTS,
    check_distinct,
    check_file,
    check_parent,
)
from umakit.text.escaping import shell_word
from umakit.version import __version__

app = typer.Typer(
    name="uma",
    help="From an accelerator to a C library that runs real networks on it.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"umakit {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """From an accelerator to a C library that runs real networks on it."""


@app.command(epilog="Example:  uma new vanilla_accelerator --tutorial vanilla")
def new(
    name: Annotated[str, typer.Argument(help="Name of the accelerator, such as my_npu.")],
    tutorial: Annotated[
        str | None,
        typer.Option(
            help="Start from a finished mock accelerator: vanilla (float32, the CPU's memory), "
            "strawberry (int8, scratchpad, DMA) or chocolate (int8, tiles, DMA beside compute).",
            show_default=False,
        ),
    ] = None,
    directory: Annotated[
        Path, typer.Option("--directory", "-d", help="Where the backend's folder is made.")
    ] = Path(),
) -> None:
    """Write a new backend: patterns, TIR passes, C codegen, driver, tests."""
    from umakit.tools.scaffold import new_backend

    written = new_backend(name, directory, tutorial)
    say(f"Wrote {written.folder}:")
    for file_name in written.files:
        say(f"  {file_name}")
    if tutorial:
        say(f"Next: python {shell_word(str(written.folder / 'run.py'))}")
    else:
        say(f"Next: python {shell_word(str(written.folder / 'run.py'))} says what to decide first")


@app.command(epilog="Example:  uma backends --json")
def backends(as_json: JsonOption = False) -> None:
    """List the accelerators that can be given by name."""
    from umakit.backend.registry import list_backends

    sources = list_backends()
    if as_json:
        _print_json([{"name": s.name, "origin": s.origin, "location": s.location} for s in sources])
    else:
        console().print(tables.backend_table(sources))


@app.command(epilog="Example:  uma partition digits.onnx --backend vanilla_accelerator")
def partition(
    model: ModelArgument,
    backend: BackendOption = None,
    input_shapes: ShapesOption = None,
    rounding: RoundingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what an accelerator takes of a network, and why not the rest."""
    shapes = parse_shapes(input_shapes)
    with progress() as tell:
        tell("loading TVM")
        from umakit.pipeline import partition_model

        network, partitioned = partition_model(
            model,
            find_backends(backend),
            input_shapes=shapes,
            rounding=rounding,
            progress=tell,
        )
    report = partitioned.report
    for notice in network.model.notices:
        say(f"note: {notice}", error=True)
    if as_json:
        _print_json(report.as_json())
    else:
        console().print(tables.offload_table(report.placements))
        say_wrapped(tables.offload_summary(report))


@app.command(
    name="compile",
    epilog="Example:  uma compile digits.onnx --backend vanilla_accelerator -o digits_library",
)
def compile_(
    model: ModelArgument,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="The folder, or FILE.tar, to write. Of an earlier library, the files that umakit "
            "wrote are replaced; your own stay.",
            show_default=False,
        ),
    ],
    backend: BackendOption = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the model in C; default: the file's.", show_default=False),
    ] = None,
    input_shapes: ShapesOption = None,
    rounding: RoundingOption = None,
    pool: PoolOption = None,
    planner: PlannerOption = "optimal",
    weights: WeightsOption = "c",
    records: RecordsOption = None,
    overlap: OverlapOption = "free",
    index_checks: IndexChecksOption = True,
    memory_map: Annotated[
        Path | None,
        typer.Option(help="Draw the memory plan to this .svg or .png file.", show_default=False),
    ] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compile a network to a standalone C library in Model Library Format."""
    shapes = parse_shapes(input_shapes)
    check_distinct(output, memory_map)
    notices: list[str] = []
    with progress() as tell:
        tell("loading TVM")
        from umakit.backend.inputs import input_files
        from umakit.frontend import model_files
        from umakit.pipeline import compile_model

        options = export_options(pool, planner, weights, records, overlap, force, index_checks)
        found = find_backends(backend)
        inputs = input_files(records, backends=found, model=model_files(model))
        if memory_map is not None:
            _check_memory_map(memory_map, inputs, force)
        library = compile_model(
            model,
            found,
            output,
            name=name,
            input_shapes=shapes,
            rounding=rounding,
            options=options,
            progress=tell,
            notice=notices.append,
        )
        if memory_map is not None:
            from umakit.tools.memory_map import draw_memory_map

            tell("drawing the memory map")
            draw_memory_map(library.metadata["umakit"], memory_map, inputs, force=force)
    for notice in notices:
        say(f"note: {notice}", error=True)
    if as_json:
        _print_json({"output": str(output), **library.metadata["umakit"]})
        return
    say_wrapped(tables.offload_summary(library.report))
    for line in tables.memory_summary(library.metadata["umakit"]["memory"]):
        say_wrapped(line)
    if records is not None:
        say_wrapped(tables.tilings_summary(library.metadata["umakit"]["tilings"]))
    say(f"Wrote {output}")
    if memory_map is not None:
        say(f"Wrote {memory_map}")
    say(f"Next: uma run {shell_word(str(output))} --inputs in.npz --profile")


@app.command(epilog="Example:  uma run digits_library --inputs held_out.npz --profile")
def run(
    library: Annotated[Path, typer.Argument(help="What `uma compile` wrote.", show_default=False)],
    inputs: Annotated[
        Path,
        typer.Option(
            "--inputs",
            "-i",
            help="Arrays by input name (npz); one more leading dimension runs "
            "that many inferences.",
            show_default=False,
        ),
    ],
    outputs: Annotated[
        Path | None,
        typer.Option(
            "--outputs",
            "-o",
            help="Where to write the results (npz); those of an earlier run are replaced.",
            show_default=False,
        ),
    ] = None,
    print_time: Annotated[bool, typer.Option("--print-time", help="Print host time.")] = False,
    repeat: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Runs of each inference, for timing.")
    ] = 1,
    profile: Annotated[
        bool, typer.Option("--profile", help="Print MACs and cycles of each layer.")
    ] = False,
    device: DeviceOption = "host",
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            max=10_000_000,
            help="Seconds that the run may take; default: 600 under emulation.",
            show_default=False,
        ),
    ] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a compiled library on this machine or an emulated one; accelerators are simulated."""
    from umakit.devices.run import load_inputs, run_library, save_outputs, select_inputs
    from umakit.library.metadata import library_files

    if print_time and not find_device(device).has_time:
        raise InputError(
            f"{device} is emulated and has no time of its own", fix="leave --print-time out"
        )
    read = [inputs, *library_files(library)]
    if outputs is not None:
        check_parent(outputs)
        check_file(outputs, NPZ_RESULTS, read, force=force)
    with progress() as tell:
        tell("building and running")
        arrays = select_inputs(library, load_inputs(inputs))
        result = run_library(
            library, arrays, repeat=repeat, profile=profile, device=device, timeout=timeout
        )
    if outputs is not None:
        save_outputs(outputs, result.outputs, read, force=force)
    if as_json:
        _print_json(_run_json(result))
        return
    for output_name, array in result.outputs.items():
        say(f"{output_name}: {array.dtype}{list(array.shape)}")
    if outputs is not None:
        say(f"Wrote {outputs}")
    if profile:
        console().print(tables.profile_table(result.layers))
    if print_time:
        console().print(tables.time_table(result.times))


app.command(epilog=PACKAGE_EXAMPLES)(package)
app.command(help=diff_command.HELP, epilog=diff_command.EPILOG)(diff_command.diff)
app.command(help=report_command.HELP, epilog=report_command.EPILOG)(report_command.report)
app.command(help=sim_command.HELP, epilog=sim_command.EPILOG)(sim_command.sim)
app.command(help=tune_command.HELP, epilog=tune_command.EPILOG)(tune_command.tune)
app.command(help=size_command.HELP, epilog="Example:  uma size digits_library")(size_command.size)


def _check_memory_map(path: Path, inputs: list[Path], force: bool) -> None:
    """Say what is wrong with a file name before anything is compiled."""
    from umakit.tools.memory_map import check_format

    check_format(path)
    check_parent(path)
    check_file(path, MEMORY_MAP, inputs, force=force)


def _run_json(result: Any) -> dict[str, Any]:
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
    return report


def _layer_json(layer: Any) -> dict[str, Any]:
    """What was measured: null where nothing counted; host figures that it lacks are left out."""
    figures = {
        "name": layer.name,
        "where": layer.where,
        "macs": layer.macs,
        "device_macs": layer.device_macs,
        "clock_cycles": layer.clock_cycles,
        "cycles": layer.cycles,
        "array_cycles": layer.array_cycles,
        "dma_cycles": layer.dma_cycles,
        "moved_bytes": layer.moved_bytes,
        "seconds": layer.seconds,
        "instructions": layer.instructions,
    }
    host = ("seconds", "instructions")
    return {key: value for key, value in figures.items() if value is not None or key not in host}


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def run_command(arguments: list[str] | None = None) -> int:
    """Run `uma` and return its exit code; what goes wrong is one sentence, never a traceback."""
    return answered(lambda: _run(sys.argv[1:] if arguments is None else arguments))


def _run(arguments: list[str]) -> int:
    if "_UMA_COMPLETE" in os.environ:  # a shell asks what may come next
        app(args=arguments, prog_name="uma")
    with _command().make_context("uma", list(arguments)) as context:
        result = _command().invoke(context)
    return result if isinstance(result, int) else 0


@functools.cache
def _command() -> typer.core.TyperGroup:
    """All commands: made of the signatures once, for callers that run many."""
    return typer.main.get_group(app)


def console_script() -> None:
    """Entry point of the console script."""
    sys.exit(run_command())


if __name__ == "__main__":
    console_script()
