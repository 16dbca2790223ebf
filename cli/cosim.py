# SPDX-License-Identifier: Apache-2.0
"""`uma cosim`: runs a network on the model of an accelerator and on its RTL, side by side."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from umakit.cli import cosim_text
from umakit.cli.console import console, print_json, progress, say, say_notices
from umakit.cli.options import (
    BackendOption,
    ForceOption,
    JsonOption,
    ModelArgument,
    RoundingOption,
    ShapesOption,
    find_backends,
    parse_shapes,
    repeated_options,
)

from umakit.text.escaping import shell_word

if TYPE_CHECKING:
    from umakit.tools.cosim import CosimDifference, CosimResult

HELP = """Run a network on the model of an accelerator and on its RTL, side by side.

The network is compiled, and its library runs once with each register access of the driver going \
to the C model and to the design of `\\[rtl]` in accel.toml, which Verilator compiles. What the \
driver reads is compared, and the memory that both wrote, at each completion. The first \
difference ends the run: layer, tile, command, address, expected and found, with a waveform (FST) \
of that window.

Cycles are those of both clocks. Registers that count or measure (`volatile` in registers.toml or \
in `\\[rtl.registers]`) are not compared.

Exit code: 0 if all agrees; 1 for a difference; 2 for a mistake of the call or the design."""

EPILOG = """Examples:  uma cosim digits_int8.onnx --backend strawberry_accelerator

uma cosim resnet8.tflite --backend ./my_npu --layers conv1,conv2 --json

uma cosim mobilenet.tflite --backend ./my_npu --sample 4 --jobs 2"""

InputsOption = Annotated[
    Path | None,
    typer.Option(
        "--inputs",
        "-i",
        help="Arrays by input name (npz), one more leading dimension for several inferences; "
        "default: random ones, the same every time.",
        show_default=False,
    ),
]
LayersOption = Annotated[
    str | None,
    typer.Option(
        help="Names of the layers in which the RTL takes part, separated by commas; default: all.",
        show_default=False,
    ),
]
SampleOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Tiles of each layer in which the RTL takes part, for designs that simulate slowly; "
        "default: all.",
        show_default=False,
    ),
]
JobsOption = Annotated[
    int, typer.Option("--jobs", "-j", min=1, max=256, help="Processes, each with some layers.")
]
MostOption = Annotated[int, typer.Option(min=1, help="Inferences to run at most.")]
CorruptOption = Annotated[
    str | None,
    typer.Option(
        help="Name of a layer in which a byte that is expected is changed: a check of the "
        "comparison, which has to end with a difference there.",
        show_default=False,
    ),
]
PausesOption = Annotated[
    int,
    typer.Option(
        min=0,
        help="Seed of pauses of the memory bus in a quarter of the cycles, which no result may "
        "depend on; 0: none.",
    ),
]
PatienceOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=0xFFFFFFFF,
        metavar="CYCLES",
        help="Cycles of the RTL after which a command that the model has ended is given up, or 4 "
        "times what the model took if that is more; default: 1,000 times that, and 1,000,000 at "
        "least.",
        show_default=False,
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Folder for the waveform and the inputs of a difference; default: MODEL_cosim, "
        "written if something differs.",
        show_default=False,
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        min=0.001, help="Processor time in seconds that each run may take; default: no limit."
    ),
]


def cosim(
    context: typer.Context,
    model: ModelArgument,
    backend: BackendOption = None,
    inputs: InputsOption = None,
    layers: LayersOption = None,
    sample: SampleOption = None,
    jobs: JobsOption = 1,
    most: MostOption = 1,
    corrupt: CorruptOption = None,
    pauses: PausesOption = 0,
    patience: PatienceOption = None,
    output: OutputOption = None,
    input_shapes: ShapesOption = None,
    rounding: RoundingOption = None,
    timeout: TimeoutOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> int:
    """Registered with the help text above."""
    shapes = parse_shapes(input_shapes)
    folder = output or Path(f"{model.stem}_cosim")
    with progress() as tell:
        tell("loading TVM")
        from umakit.devices.run import load_inputs
        from umakit.frontend import model_files
        from umakit.registration.sources.tree import input_files
        from umakit.tools.cosim import CosimFiles, CosimSettings, cosim_model

        found = find_backends(backend)
        read = input_files(backends=found, model=model_files(model))
        files = CosimFiles(folder, inputs, read, force)
        files.check()
        settings = CosimSettings(
            None if inputs is None else load_inputs(inputs),
            [name.strip() for name in (layers or "").split(",") if name.strip()],
            sample, jobs, corrupt, pauses, patience, most, shapes, rounding,
            files=files, timeout=timeout,
        )  # fmt: skip
        result = cosim_model(model, found, settings, progress=tell)
    say_notices(result.notices, as_json)
    if as_json:
        print_json(result.as_json())
    else:
        _print(result, context)
    return 1 if result.difference is not None else 0


def _print(result: CosimResult, context: typer.Context) -> None:
    out = console()
    if result.layers:
        out.print(cosim_text.layer_table(result, out.width))
    for line in cosim_text.verdict(result):
        say(line)
    difference = result.difference
    if difference is None:
        return
    if difference.wave:
        say(cosim_text.wave_sentence(difference))
    for line in _next(context, difference):
        say(line)


NOT_REPEATED = ("inputs", "layers", "output", "jobs", "most", "force", "as_json")
"""Options that do not affect the comparison, or that a repetition sets itself."""

NOT_OF_DIFF = ("sample", "corrupt", "pauses", "patience", "timeout")
"""Options that `uma diff` lacks, or defines differently."""


def _next(context: typer.Context, difference: CosimDifference) -> list[str]:
    """Return commands that repeat the difference, show signals, and compare with a reference."""
    model = shell_word(str(context.params["model"]))
    words = [*repeated_options(context, NOT_REPEATED), "--layers", difference.layer]
    lines = [f"Again:  uma cosim {model} {shlex.join([*words, '--inputs', difference.inputs])}"]
    if difference.wave:
        lines.append(f"Signals:  gtkwave {shlex.quote(difference.wave)}")
    words = repeated_options(context, (*NOT_REPEATED, *NOT_OF_DIFF))
    words += ["--rtl", "--inputs", difference.inputs]
    return [*lines, f"Against the reference:  uma diff {model} {shlex.join(words)}"]
