# SPDX-License-Identifier: Apache-2.0
"""`uma`: make a backend, see what it takes of a network, compile, run."""

from __future__ import annotations

import functools
import os
import sys
from typing import Annotated

import typer
from umakit.cli import calibrate as calibrate_command
from umakit.cli import check as check_command
from umakit.cli import compile as compile_command
from umakit.cli import cosim as cosim_command
from umakit.cli import diff as diff_command
from umakit.cli import doctor as doctor_command
from umakit.cli import new as new_command
from umakit.cli import report as report_command
from umakit.cli import run as run_library_command
from umakit.cli import sim as sim_command
from umakit.cli import size as size_command
from umakit.cli import tables
from umakit.cli import tune as tune_command
from umakit.cli.console import console, print_json, progress, say_notices, say_wrapped
from umakit.cli.faults import answered
from umakit.cli.options import (
    BackendOption,
    ChooseOption,
    CpuOption,
    JsonOption,
    KeepLayoutOption,
    ModelArgument,
    RoundingOption,
    ShapesOption,
    find_backends,
    parse_shapes,
)
from umakit.cli.package import EXAMPLES as PACKAGE_EXAMPLES
from umakit.cli.package import package

from umakit.version import __version__

app = typer.Typer(
    name="uma",
    help="From an accelerator to a C library that runs real networks on it.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            help="With --version: also those of Python, packages, compilers and emulators, for "
            "reports of bugs.",
        ),
    ] = False,
) -> None:
    """From an accelerator to a C library that runs real networks on it."""
    if version:
        print(f"umakit {__version__}")
        if verbose:
            from umakit.tools.versions import versions

            for name, found in list(versions().items())[1:]:
                print(f"{name}  {found}")
        raise typer.Exit
    if verbose:
        raise typer.BadParameter("has no effect without --version", param_hint="--verbose")


app.command(help=new_command.HELP, epilog=new_command.EPILOG)(new_command.new)


@app.command(epilog="Example:  uma backends --json")
def backends(as_json: JsonOption = False) -> None:
    """List the accelerators that can be given by name."""
    from umakit.backend.registry import list_backends

    sources = list_backends()
    if as_json:
        print_json([{"name": s.name, "origin": s.origin, "location": s.location} for s in sources])
    else:
        console().print(tables.backend_table(sources))


@app.command(epilog="Example:  uma partition digits.onnx --backend vanilla_accelerator")
def partition(
    model: ModelArgument,
    backend: BackendOption = None,
    input_shapes: ShapesOption = None,
    rounding: RoundingOption = None,
    keep_layout: KeepLayoutOption = False,
    choose: ChooseOption = "order",
    cpu: CpuOption = "generic",
    as_json: JsonOption = False,
) -> None:
    """Show what an accelerator takes of a network, and why not the rest."""
    shapes = parse_shapes(input_shapes)
    with progress() as tell:
        tell("loading TVM")
        from umakit.library.options import parse_choose
        from umakit.pipeline import ExportOptions, partition_model

        network, partitioned = partition_model(
            model,
            find_backends(backend),
            input_shapes=shapes,
            rounding=rounding,
            options=ExportOptions(keep_layout=keep_layout, choose=parse_choose(choose), cpu=cpu),
            progress=tell,
        )
    report = partitioned.report
    say_notices(network.model.notices)
    if as_json:
        print_json(report.with_decisions_as_json())
    else:
        console().print(tables.offload_table(report.placements))
        say_wrapped(tables.offload_summary(report))


app.command(name="compile", epilog=compile_command.EPILOG)(compile_command.compile_)
app.command(epilog=run_library_command.EPILOG)(run_library_command.run)
app.command(epilog=PACKAGE_EXAMPLES)(package)
app.command(help=diff_command.HELP, epilog=diff_command.EPILOG)(diff_command.diff)
app.command(help=cosim_command.HELP, epilog=cosim_command.EPILOG)(cosim_command.cosim)
app.command(help=calibrate_command.HELP, epilog=calibrate_command.EPILOG)(
    calibrate_command.calibrate
)
app.command(help=doctor_command.HELP, epilog=doctor_command.EPILOG)(doctor_command.doctor)
app.command(help=report_command.HELP, epilog=report_command.EPILOG)(report_command.report)
app.command(help=sim_command.HELP, epilog=sim_command.EPILOG)(sim_command.sim)
app.command(help=tune_command.HELP, epilog=tune_command.EPILOG)(tune_command.tune)
app.command(help=check_command.HELP, epilog=check_command.EPILOG)(check_command.check)
app.command(help=size_command.HELP, epilog="Example:  uma size digits_library")(size_command.size)


def run_command(arguments: list[str] | None = None) -> int:
    """Run `uma` and return its exit code; print errors as one sentence without a traceback."""
    return answered(lambda: _run(sys.argv[1:] if arguments is None else arguments))


def _run(arguments: list[str]) -> int:
    if "_UMA_COMPLETE" in os.environ:  # a shell asks for completions
        app(args=arguments, prog_name="uma")
    with _command().make_context("uma", list(arguments)) as context:
        result = _command().invoke(context)
    return result if isinstance(result, int) else 0


@functools.cache
def _command() -> typer.core.TyperGroup:
    return typer.main.get_group(app)


def console_script() -> None:
    sys.exit(run_command())


if __name__ == "__main__":
    console_script()
