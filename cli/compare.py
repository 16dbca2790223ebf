# SPDX-License-Identifier: Apache-2.0
"""`uma report --compare A B`: two networks, machines, versions or tilings side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from umakit.cli.console import print_json, print_whole, progress, say, say_notices, say_wrapped
from umakit.cli.limits import Checks
from umakit.cli.options import path_of
from umakit.cli.tables import Table, new_table

from umakit.errors import InputError
from umakit.files.outputs import PAGE, check_file, check_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from umakit.tools.comparison.compare import Comparison
    from umakit.tools.comparison.saved import Report
    from umakit.tools.comparison.text import Row
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


@dataclass(frozen=True)
class Sides:
    """The two sides of a comparison, with the given options.

    Attributes:
        model: a model to compare on two backends, named by `names`; None if `names` are reports,
            libraries or models.
        compiling, running: given options of compiling and of runs, by name.
    """

    model: Path | None
    names: tuple[str, str]
    backends: list[str] | None
    compiling: dict[str, Any]
    running: dict[str, Any]
    inputs: list[Path]


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
        writing = (destination, force)
        reports, read = _reports(
            _sides(options, names, checks), lambda: measuring_of(options, shapes), writing, tell
        )
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


def _sides(options: Mapping[str, Any], names: tuple[str, str], checks: Checks) -> Sides:
    choose = options["choose"]
    compiling = ("backend", "input_shapes", "rounding", "records", "keep_layout", "require_offload")
    running = ("inputs", "seed", "cpu_clock", "size")
    given = {name: f"--{name.replace('_', '-')}" for name in (*compiling, *running)}
    from umakit.devices.catalogue import device_file
    from umakit.machine.cpu import GENERIC, cpu_file

    cpu, own = options["cpu"], device_file(options["device"])
    files = (
        path_of(options, "inputs"),
        path_of(options, "records"),
        cpu_file(cpu),
        own,
        *checks.read,
    )
    return Sides(
        path_of(options, "model"),
        names,
        options["backend"],
        {given[name]: options[name] for name in compiling}
        | {"--choose": choose != "order", "--cpu": cpu != GENERIC},
        {given[name]: options[name] for name in running}
        | {"--device": options["device"] != "host"},
        [file for file in files if file is not None],
    )


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


Writing = tuple[Path | None, bool]
"""The file of the page, None for none, and whether a file of another program is replaced."""


def _reports(
    sides: Sides,
    measuring: Callable[[], Measuring],
    writing: Writing,
    tell: Callable[[str], None],
) -> tuple[tuple[Report, Report], list[Path]]:
    from umakit.tools.comparison.sources import kind_of, open_report, refuse_needless

    if sides.model is not None:
        return _on_two_backends(sides, sides.model, measuring, writing, tell)
    paths = [Path(name) for name in sides.names]
    kinds = [kind_of(path) for path in paths]
    refuse_needless(kinds, sides.compiling, sides.running)
    found: list[Any] | None = None
    read = [*sides.inputs, *paths]
    if "model" in kinds:
        tell("loading TVM")
        from umakit.cli.options import find_backends

        from umakit.frontend import model_files
        from umakit.registration.sources.tree import input_files

        found = find_backends(sides.backends)
        models = [path for path, kind in zip(paths, kinds, strict=True) if kind == "model"]
        files = [file for model in models for file in model_files(model)]
        read += input_files(backends=found, model=files)
    if writing[0] is not None:
        check_file(writing[0], PAGE, read, force=writing[1])
    how = measuring()
    a, b = (
        open_report(path, found or [], how, lambda stage, name=name: tell(f"{name}: {stage}"))  # type: ignore[misc]
        for name, path in zip("AB", paths, strict=True)
    )
    return (a, b), read


def _on_two_backends(
    sides: Sides,
    model: Path,
    measuring: Callable[[], Measuring],
    writing: Writing,
    tell: Callable[[str], None],
) -> tuple[tuple[Report, Report], list[Path]]:
    """Return the reports of a model on backends A and B, and the files that were read."""
    if sides.backends:
        fix = "leave --backend out, or MODEL"
        raise InputError("A and B are the backends of MODEL, and --backend names another", fix=fix)
    tell("loading TVM")
    from umakit.cli.options import find_backends

    from umakit.frontend import model_files
    from umakit.registration.sources.tree import input_files
    from umakit.tools.comparison.sources import different_names, model_report

    found = find_backends(list(sides.names))
    different_names(*found)
    read = input_files(*sides.inputs, backends=found, model=model_files(model))
    if writing[0] is not None:
        check_file(writing[0], PAGE, read, force=writing[1])
    how = measuring()
    a, b = (
        model_report(model, [backend], how,
                     lambda stage, name=name: tell(f"{name}: {stage}"))  # type: ignore[misc]
        for name, backend in zip("AB", found, strict=True)
    )  # fmt: skip
    return (a, b), read


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


def _table(name: str, rows: Sequence[Row], total: bool = False) -> Table:
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
