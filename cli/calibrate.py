# SPDX-License-Identifier: Apache-2.0
"""`uma calibrate`: measured costs of an accelerator's commands."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from umakit.cli.console import console, print_json, progress, say, say_wrapped
from umakit.cli.options import DeviceOption, ForceOption, JsonOption, device_of
from umakit.cli.tables import new_table

from umakit.devices import find_device
from umakit.devices.catalogue import device_file
from umakit.files.outputs import check_file, check_parent
from umakit.text.escaping import shell_word, shown

if TYPE_CHECKING:
    from umakit.machine.calibration import CopyCosts, JobCosts, MeasuredLayer
    from umakit.tools.calibration import Calibrating, Outcome

HELP = """Measure what the commands of an accelerator cost, for predictions.

Small layers, each cut into tiles of chosen sizes, are compiled for the backend and run by its own \
driver on its simulator. The simulator's timeline says how long each job and each copy took. \
Formulas are fitted to three of four of these commands and compared with the fourth. One that \
is off by more than 5 % there is not used, unless --use-inexact says so; nor is one that is \
further off than the costs before, there or for whole layers. The table says what is used.

The result, calibration.json beside accel.toml, takes the place of the costs that the backend \
describes: in default tilings, `uma tune`, `uma report` and predictions of `uma run --profile`. It \
holds for the figures that were measured: when accel.toml, the description of the machine or the \
simulator change, it is not used, and a note says so. Without the file, the described costs are \
used again.

Exit code: 0 if the costs that are used are right within 5 %, or --use-inexact was given; 1 if \
they are not, or if no layer runs on the device or its simulator does not return; 2 for a \
mistake of the call, or if nothing counts the cycles of commands; 130 after Ctrl-C."""

INEXACT = 1

EPILOG = """Examples:  uma calibrate ./my_npu

uma calibrate ./my_npu --tiles 200 --json

uma calibrate ./my_npu -o measured.json"""

DEFAULT_TILES = 120

COLUMN_GAP = 3
"""Blanks between two columns of a table."""

LEAST_FORMULA = 40
"""Smallest width in characters that is left to formulas in the table."""

INDENT = "    "

OPERATOR = re.compile(r" (?=[-+*] )|(?<=;) ")
"""Blanks outside parentheses at which a formula's line may be broken."""

CalibratedBackendArgument = Annotated[
    str, typer.Argument(help="Name or folder of the accelerator.", show_default=False)
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="The file to write; default: calibration.json beside accel.toml, from which "
        "predictions are made. An earlier calibration is replaced.",
        show_default=False,
    ),
]
TilesOption = Annotated[
    int,
    typer.Option(
        min=12,
        max=10_000,
        help="Layers that are measured for each kind of layers and each dataflow.",
    ),
]
InexactOption = Annotated[
    bool,
    typer.Option(
        "--use-inexact",
        help="Use formulas that are off by more than 5 % on commands that were held out, where the "
        "costs before are no better.",
    ),
]


def calibrate(
    backend: CalibratedBackendArgument,
    device: DeviceOption = "host",
    output: OutputOption = None,
    tiles: TilesOption = DEFAULT_TILES,
    use_inexact: InexactOption = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> int:
    device = device_of(device, [backend])
    find_device(device)
    if output is not None:
        check_parent(output)
    with progress() as tell:
        tell("loading TVM")
        from umakit.backend.registry import find_backend
        from umakit.files.staging import write_file
        from umakit.machine.calibration import CALIBRATION
        from umakit.registration.sources.tree import input_files
        from umakit.tools.calibration import calibrate as measured
        from umakit.tools.calibration import destination_of

        found = find_backend(backend)
        used = destination_of(found)
        destination = output or used
        files = input_files(device_file(device), backends=[found])
        read = [path for path in files if path.name != used.name]
        check_file(destination, CALIBRATION, read, force=force)
    with _shown() as show:
        outcome = measured(found, device=device, tiles=tiles, use_inexact=use_inexact, tell=show)
    write_file(destination, outcome.calibration.content(), CALIBRATION, read, force=force)
    code = 0 if outcome.holds or use_inexact else INEXACT
    is_used = destination.resolve() == used.resolve()
    if as_json:
        print_json({"output": str(destination), "is_used": is_used, **outcome.as_json()})
        return code
    for note in outcome.notes:
        say(f"note: {note}", error=True)
    _say_costs(outcome)
    _say_layers(outcome)
    say(f"Wrote {destination}")
    if not is_used:
        say(f"Next: cp {shell_word(str(destination))} {shell_word(str(used))} lets it be used")
    return code


@contextlib.contextmanager
def _shown() -> Iterator[Callable[[Calibrating], None]]:
    if not sys.stderr.isatty():
        with progress() as tell:
            yield lambda at: tell(f"{at.what}: {at.done} of {at.count} layers")
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (MofNCompleteColumn(), BarColumn(20), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console(error=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda at: bar.update(
            task, total=at.count, completed=at.done, description=shown(at.what)
        )


def _say_costs(outcome: Outcome) -> None:
    """Print a table of all costs: formulas, and their agreement with held-out commands.

    On a narrow terminal, the formulas follow below the table.
    """
    shown_on = console()
    measured = [each.measured for each in outcome.choices]
    formulas = [_formula(each) for each in measured]
    numbers = _table(outcome, ())
    left = shown_on.width - int(shown_on.measure(numbers).maximum) - COLUMN_GAP
    longest = max(map(len, formulas), default=0)
    factors = [line for each in formulas for line in _lines(each, 1)]
    if left >= min(longest, max([LEAST_FORMULA, *map(len, factors)])):
        shown_on.print(_table(outcome, ["\n".join(_lines(each, left)) for each in formulas]))
        return
    shown_on.print(numbers)
    say_wrapped("cycles:")
    for costs, formula in zip(measured, formulas, strict=True):
        say_wrapped(f"  {costs.name}")
        for line in _lines(formula, shown_on.width - len(INDENT)):
            say(f"{INDENT}{line}")


def _table(outcome: Outcome, formulas: Sequence[str]) -> Any:
    from rich.text import Text

    numbers = ["fitted", "exact", "worst", "before"]
    columns = [*numbers, "used", *(["cycles"] if formulas else [])]
    table = new_table("cost", *columns, right=numbers)
    for index, each in enumerate(outcome.choices):
        evidence = each.measured.evidence
        table.add_row(
            each.measured.name, str(evidence.fitted), f"{evidence.exact} of {evidence.held_out}",
            f"{evidence.worst_percent:.2f} %", f"{each.before_evidence.worst_percent:.2f} %",
            each.source, *map(Text, formulas[index : index + 1]),
        )  # fmt: skip
    return table


def _formula(costs: JobCosts | CopyCosts) -> str:
    tail = "" if str(costs.tail) == "0" else f"; then {costs.tail}"
    return f"{costs.busy}{tail}".replace("described", "as described")


def _lines(formula: str, width: int) -> list[str]:
    lines: list[str] = []
    part = ""
    for piece in OPERATOR.split(formula):
        part = f"{part} {piece}" if part else piece
        if part.count("(") > part.count(")"):
            continue  # this operator is within the factor
        if lines and len(lines[-1]) + 1 + len(part) <= width:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
        part = ""
    return lines


def _say_layers(outcome: Outcome) -> None:
    if outcome.changes_nothing:
        say_wrapped("no prediction changes: costs in use yield the same cycles as those before")
    worst = "" if outcome.exact == outcome.held_out else f", worst {outcome.worst_percent:.2f} %"
    say_wrapped(
        f"what is used is exact on {outcome.exact} of {outcome.held_out} commands that were held "
        f"out{worst}"
    )
    if outcome.calibration.layers:
        say_wrapped(f"whole layers: {_agreement(outcome.calibration.layers)}")
        say_wrapped(f"whole layers before: {_agreement(outcome.before)}")
    for each in outcome.hints:
        say_wrapped(f"note: {each}")


def _agreement(layers: Sequence[MeasuredLayer]) -> str:
    off = max(layers, key=lambda each: abs(each.difference_percent))
    exact = sum(each.predicted_cycles == each.clock_cycles for each in layers)
    rest = "" if exact == len(layers) else f", worst {off.difference_percent:+.2f} %: {off.layer}"
    return f"exact on {exact} of {len(layers)}{rest}"
