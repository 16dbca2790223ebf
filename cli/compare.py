# SPDX-License-Identifier: Apache-2.0
"""`uma report --compare A B`: two networks, machines, versions or tilings side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from umakit.cli.console import print_json, print_whole, progress, say, say_notices, say_wrapped
from umakit.cli.limits import Checks
from umakit.cli.options import find_backends, path_of
from umakit.cli.tables import Table, new_table

from umakit.errors import InputError
from umakit.files.outputs import PAGE, check_file, check_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from umakit.tools.columns import Line
    from umakit.tools.comparison.compare import Comparison
    from umakit.tools.comparison.saved import Report
    from umakit.tools.comparison.sources import Kind
    from umakit.tools.runs import Measuring

DEFAULT_OUTPUT = Path("comparison.html")

CompareOption = Annotated[
    tuple[str, str] | None,
    typer.Option(
        "--compare",
        metavar="A B",
        help="Compare two reports that --json printed, libraries or models (then with --backend); "
        "after MODEL, two backends.",
        show_default=False,
    ),
]


def compare_networks(
    options: Mapping[str, Any],
    names: tuple[str, str],
    shapes: Mapping[str, Sequence[int]],
    checks: Checks,
) -> int:
    """Compare two networks; print and write the differences.

    Args:
        options: options of `uma report` by parameter name.
    """
    from umakit.tools.comparison.compare import Comparison
    from umakit.tools.comparison.text import html

    as_json, force = options["as_json"], options["force"]
    destination = path_of(options, "output") or (None if as_json else DEFAULT_OUTPUT)
    if destination is not None:
        check_parent(destination)
    with progress() as tell:
        reports, read = _reports(options, names, shapes, checks, destination, tell)
        comparison = Comparison(*reports, names=names)
        checks.check_comparison(comparison)
        if destination is not None:
            from umakit.files.staging import write_file

            page = html(comparison, checks.checked).encode("utf-8")
            write_file(destination, page, PAGE, read, force=force)
    if as_json:
        print_json(comparison.as_json() | checks.as_json())
        return checks.said(as_json)
    _print(comparison)
    code = checks.said(as_json)
    say(f"Wrote {destination}")
    return code


COMPILING = (
    "backend", "input_shapes", "rounding", "records", "keep_layout", "require_offload",
)  # fmt: skip
RUNNING = ("inputs", "seed", "cpu_clock", "size")
"""Options of compiling, and of runs, which are given unless they are empty or 0."""


def _refuse_needless(options: Mapping[str, Any], kinds: Sequence[Kind]) -> None:
    from umakit.cpu.description import GENERIC
    from umakit.tools.comparison.sources import refuse_needless

    compiling, running = (
        {f"--{name.replace('_', '-')}": options[name] for name in names}
        for names in (COMPILING, RUNNING)
    )
    compiling |= {"--choose": options["choose"] != "order", "--cpu": options["cpu"] != GENERIC}
    refuse_needless(kinds, compiling, running | {"--device": options["device"] != "host"})


def measuring_of(options: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> Measuring:
    """Return the settings of compiling and running networks.

    Args:
        options: options of `uma report` by parameter name.
    """
    from umakit.devices.run import load_inputs
    from umakit.library.options import ExportOptions, parse_choose
    from umakit.tools.runs import Measuring

    inputs = path_of(options, "inputs")
    return Measuring(
        inputs=None if inputs is None else load_inputs(inputs),
        inputs_name="" if inputs is None else inputs.name,
        seed=options["seed"],
        cpu_clock=options["cpu_clock"],
        device=options["device"],
        inferences=options["inferences"],
        input_shapes=shapes,
        rounding=options["rounding"],
        options=ExportOptions(
            records=path_of(options, "records"),
            keep_layout=options["keep_layout"],
            choose=parse_choose(options["choose"]),
            cpu=options["cpu"],
            require_offload=options["require_offload"],
        ),
        with_size=options["size"],
    )


def _reports(
    options: Mapping[str, Any],
    names: tuple[str, str],
    shapes: Mapping[str, Sequence[int]],
    checks: Checks,
    destination: Path | None,
    tell: Callable[[str], None],
) -> tuple[tuple[Report, Report], list[Path]]:
    """Return the reports of A and B, and the files that were read.

    A and B are backends if a model is given, else reports, libraries or models.
    """
    from umakit.cpu.description import cpu_file
    from umakit.devices.catalogue import device_file
    from umakit.tools.comparison.sources import different_names, kind_of, model_report, open_report

    model, paths = path_of(options, "model"), [Path(name) for name in names]
    own = (
        path_of(options, "inputs"), path_of(options, "records"), cpu_file(options["cpu"]),
        device_file(options["device"]), *checks.read,
    )  # fmt: skip
    if model is not None and options["backend"]:
        raise InputError("A and B are the backends of MODEL, and --backend names another",
                         fix="leave --backend out, or MODEL")  # fmt: skip
    kinds: list[Kind] = ["model"] if model is not None else [kind_of(path) for path in paths]
    if model is None:
        _refuse_needless(options, kinds)
    found: list[Any] = []
    read = [file for file in (*own, *(paths if model is None else ())) if file is not None]
    if "model" in kinds:
        tell("loading TVM")
        from umakit.frontend import model_files
        from umakit.registration.sources.tree import input_files

        found = find_backends(options["backend"] if model is None else list(names))
        if model is not None:
            different_names(*found)
        models = [path for path, kind in zip(paths, kinds, strict=False) if kind == "model"]
        files = [file for each in ([model] if model else models) for file in model_files(each)]
        read += input_files(backends=found, model=files)
    if destination is not None:
        check_file(destination, PAGE, read, force=options["force"])
    how = measuring_of(options, shapes)

    def report(side: int) -> Report:
        def told(stage: str) -> None:
            tell(f"{'AB'[side]}: {stage}")

        if model is not None:
            return model_report(model, [found[side]], how, told)
        return open_report(paths[side], found, how, told)

    return (report(0), report(1)), read


# --- text -----------------------------------------------------------------------------------------


def _print(comparison: Comparison) -> None:
    from umakit.tools.comparison.text import (
        figure_rows,
        layer_rows,
        moved_text,
        not_compared,
        tilings_text,
    )

    sides = (comparison.a, comparison.b)
    for letter, name, report in zip("AB", comparison.names, sides, strict=True):
        say_wrapped(f"{letter}: {name}: {report.title}")
    say_notices(comparison.notes)
    for line in comparison.moved_to_cpu:
        say_wrapped(moved_text(line))
    say("")
    print_whole(_table("figure", figure_rows(comparison)))
    for sentence in not_compared(comparison):
        say_wrapped(sentence)
    say("")
    if comparison.changed:
        rows = layer_rows(comparison)
        print_whole(_table(f"layer, {comparison.basis.name}", rows, total=True))
        for line in comparison.lines:
            text = tilings_text(line)
            if text:
                say_wrapped(f"{line.key}: {text}")
    else:
        say(f"no difference in {len(comparison.lines):,} layers")


def _table(name: str, rows: Sequence[Line], total: bool = False) -> Table:
    numbers = ("A", "B", "change", "%")
    notes = ["what differs"] if any(row.note for row in rows) else []
    table = new_table(name, *numbers, *notes, right=numbers)
    for number, row in enumerate(rows):
        is_last = total and number == len(rows) - 1
        if is_last:
            table.add_section()
        cells = [*row.cells, *([row.note] if notes else [])]
        table.add_row(row.name, *cells, style="bold" if is_last else None)
    return table
