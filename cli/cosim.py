# SPDX-License-Identifier: Apache-2.0
"""`uma cosim`: runs a network on the model of an accelerator and on its RTL, side by side."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
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
from umakit.cli.tables import new_table

from umakit.text.escaping import shell_word
from umakit.tools.columns import known_count, known_percent, known_sum

if TYPE_CHECKING:
    from umakit.tools.cosim import CosimDifference, CosimLayer, CosimResult

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
        out.print(layer_table(result, out.width))
    for line in verdict(result):
        say(line)
    difference = result.difference
    if difference is None:
        return
    if difference.wave:
        say(wave_sentence(difference))
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


LEAST_NAME = 12
"""Minimum width of names of layers in columns."""

IN_SCRATCHPAD = "in scratchpad"
"""In place of the compared bytes of a layer that stores nothing."""

STAYS = (
    f"{IN_SCRATCHPAD}: a layer stores nothing there, and is compared with what a later one stores; "
    "--sample and --layers let each store its result."
)


PARTS = (
    "accesses, cycles and bytes: accesses are those of the whole layer, cycles those of its first "
    "tiles, in which the RTL took part, and bytes those of the buffers that these were compared in."
)


def layer_table(result: CosimResult, width: int) -> Any:
    """Return a table of the layers: cycles of model and RTL, and numbers of compared items.

    Args:
        width: columns of the terminal; long layer names are shortened to fit.
    """
    parts = any(layer.is_part for layer in result.layers)
    right = ["model", "RTL", "difference", "accesses", "in cycles", "bytes"]
    right += ["tiles"] if parts else []
    rows = []
    for layer in result.layers:
        tiles = [known_count(layer.tiles)] if parts else []
        where = layer.where if layer.checked else f"{layer.where} (model only)"
        rows.append([where, *_figures([layer]), *tiles])
    if len(result.layers) > 1:
        checked = [layer for layer in result.layers if layer.checked]
        rows.append(["", *_figures(checked), *([""] if parts else [])])
    columns = ["where", *right]
    others = sum(max(len(cell) for cell in cells) + 3 for cells in zip(columns, *rows, strict=True))
    names = shortened([layer.name for layer in result.layers], max(LEAST_NAME, width - others))
    table = new_table("layer", *columns, right=right)
    for name, row in zip(names, rows, strict=False):
        table.add_row(name, *row)
    if len(rows) > len(names):
        table.add_section()
        table.add_row("total", *rows[-1], style="bold")
    return table


def shortened(names: Sequence[str], width: int) -> list[str]:
    """Return names with long middles cut out; unchanged if two names would become equal.

    Args:
        width: maximum number of characters, at least 3.
    """
    begin = (width - 1) // 3
    end = width - 1 - begin
    short = [
        name if len(name) <= width else f"{name[:begin]}\N{HORIZONTAL ELLIPSIS}{name[-end:]}"
        for name in names
    ]
    return short if len(set(short)) == len(set(names)) else list(names)


def _figures(layers: Sequence[CosimLayer]) -> list[str]:
    model, rtl = _sum(layers, "model_cycles"), _sum(layers, "rtl_cycles")
    reads, writes = _sum(layers, "register_reads"), _sum(layers, "register_writes")
    off = None if model is None or not rtl else 100 * (model - rtl) / rtl
    return [
        known_count(model),
        known_count(rtl),
        known_percent(off),
        known_count(None if reads is None or writes is None else reads + writes),
        known_count(_sum(layers, "rtl_access_cycles")),
        IN_SCRATCHPAD
        if layers and all(layer.stays for layer in layers)
        else known_count(_sum(layers, "compared_bytes")),
    ]


def _sum(layers: Sequence[CosimLayer], name: str) -> int | None:
    return known_sum(getattr(layer, name) for layer in layers)


def wave_sentence(difference: CosimDifference) -> str:
    """Return a sentence about the waveform of a difference."""
    facts = difference.facts
    gave_up = facts.get("gave_up_cycle")
    if (gave_up is None or difference.wave_cycles is None) and "written_cycle" not in facts:
        command = f"cycles {facts['first_cycle']:,} to {facts['last_cycle']:,}"
        if difference.kind == "failure":
            command = f"begins in cycle {facts['first_cycle']:,}"
            return (
                f"Wrote {difference.wave}: waveform up to the failure; the last command {command}"
            )
        return f"Wrote {difference.wave}: waveform of the layer; the last command is in {command}"
    assert difference.wave_cycles is not None
    first, last = difference.wave_cycles
    if "written_cycle" in facts:
        return (
            f"Wrote {difference.wave}: waveform of cycles {first:,} to {last:,}; the first wrong "
            f"write is in cycle {facts['written_cycle']:,}"
        )
    text = (
        f"Wrote {difference.wave}: waveform of cycles {first:,} to {last:,}; the last command "
        f"begins in cycle {facts['first_cycle']:,}, and the RTL was given up in cycle {gave_up:,}"
    )
    return f"{text}, which is too late for the file" if (gave_up or 0) > last else text


def verdict(result: CosimResult) -> list[str]:
    """Return the sentences under the table."""
    difference = result.difference
    stays = [STAYS] if any(layer.stays for layer in result.layers) else []
    stays += [PARTS] if any(layer.is_part for layer in result.layers) else []
    if difference is None:
        layers = sum(layer.checked for layer in result.layers)
        runs = "" if result.inferences == 1 else f" in {result.inferences} inferences"
        rate = result.cycles_per_second
        speed = "" if rate is None else f", {rate:,.0f} cycles a second"
        return [
            f"No difference in {layers} {'layer' if layers == 1 else 'layers'}{runs}; "
            f"{result.rtl_cycles:,} cycles of the RTL in {result.seconds:.1f} s{speed}",
            "Register accesses take as long as the bus of the RTL takes, in the model too."
            if result.equal_accesses
            else "Register accesses take another time in the model than on the bus of the RTL.",
            *stays,
        ]
    facts = difference.facts
    place = [f"layer {difference.layer}"]
    if facts.get("tile") is not None:
        place.append(f"tile {facts['tile']}")
    if facts.get("command") is not None:
        place.append(f"command {facts['command']}")
    if facts.get("access") is not None:
        place.append(f"register access {facts['access']}")
    if facts.get("register"):
        place.append(f"register {facts['register']}")
    lines = [f"First difference: {', '.join(place)}", f"  {difference.sentence}"]
    lines += _place_in_memory(facts)
    writes = facts.get("last_writes") or []
    if writes:
        names = facts.get("last_write_names") or [None] * len(writes)
        shown = ", ".join(
            f"{name or f'0x{int(offset):x}'} = 0x{int(value):x}"
            for name, (offset, value) in [*zip(names, writes, strict=True)][-4:]
        )
        lines.append(f"  last writes of registers: {shown}")
    return lines


def _place_in_memory(facts: Mapping[str, Any]) -> list[str]:
    """Return a line about the differing buffer and element, and the cycles of their writes.

    Empty if the difference is not in memory.
    """
    if "buffer_bytes" not in facts:
        return []
    names = facts.get("pointer_names") or []
    text = f"the buffer that {' and '.join(names)} point{'s' * (len(names) == 1)} to"
    text = text if names else "the buffer"
    if "written_cycle" in facts:
        text += f": byte {facts['written_byte']:,} was written wrong first"
        text += f", in cycle {facts['written_cycle']:,}"
    elif "written_byte" in facts:
        text += ": the RTL never wrote the bytes that differ"
    else:
        text += f": byte {facts['byte']:,} is wrong"
    if "element" in facts:
        shape = "x".join(map(str, facts["shape"]))
        text += f"; it is in element {facts['element']} of the result {shape}"
    return [f"  {text}"]
