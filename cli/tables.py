# SPDX-License-Identifier: Apache-2.0
"""The tables that `uma` prints."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable
from umakit.cli.console import print_whole, say, say_wrapped

from umakit.devices.totals import CycleTotals, difference_percent
from umakit.partition.report import CPU
from umakit.text.escaping import shown
from umakit.tools.columns import Column, TextTable, known_count, known_percent

if TYPE_CHECKING:
    from umakit.backend.registry import BackendSource
    from umakit.devices.run import LayerProfile
    from umakit.partition.choice import Decision
    from umakit.partition.report import OffloadReport, OperatorPlacement
    from umakit.tools.accounting import Parts, RunReport
    from umakit.tools.inferences.figures import SeveralInferences
    from umakit.tools.trace import TraceSummary


LONGEST_CELL = 400
"""Maximum number of characters of a cell; longer texts are cut in the middle."""


class Table(RichTable):
    """A table of untrusted texts, each shown without markup on one line."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row; see `rich.table.Table.add_row`."""
        safe = [shown(cell, LONGEST_CELL) if isinstance(cell, str) else cell for cell in cells]
        super().add_row(*safe, **options)


def new_table(*columns: str, right: Iterable[str] = ()) -> Table:
    """Return a table without a frame; the columns in `right` are aligned to the right."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    numbers = set(right)
    for column in columns:
        justify = "right" if column in numbers else "left"
        table.add_column(
            column,
            justify=justify,  # type: ignore[arg-type]
            overflow="fold",
            no_wrap=column in numbers or column == "where",
        )
    return table


def text_table(first: str, found: TextTable) -> Table:
    """Return a table of texts; `first` is the header of the names."""
    numbers = [each.header for each in found.columns if not each.is_text]
    table = new_table(first, *found.headers, right=numbers)
    for line in found.lines:
        table.add_row(line.name, *line.cells, style=line.style or None)
    if found.total is not None:
        table.add_section()
        table.add_row(found.total.name, *found.total.cells, style="bold")
    return table


def offload_table(placements: Sequence[OperatorPlacement]) -> Table:
    """Return a table of all operators with their targets and reasons.

    For an operator that several accelerators could take, the reason states the choice.
    """
    table = new_table("operator", "name", "MACs", "where", "reason", right=["MACs"])
    decided: dict[Decision, str] = {}
    for row in placements:
        style = "" if row.where == CPU else "bold green"
        macs = f"{row.macs:,}" if row.macs else ""
        said = row.reason
        if row.decision is not None and said in ("", str(row.decision)):
            first = decided.setdefault(row.decision, row.name)
            said = str(row.decision) if first == row.name else f"as {first}"
        table.add_row(row.operator, row.name, macs, row.where, said, style=style)
    return table


def offload_summary(report: OffloadReport) -> str:
    """Return one sentence about the offloaded share of the network."""
    count = f"{len(report.offloaded)} of {len(report.placements)} operators offloaded"
    return f"{count}, {macs_summary(report)}"


def macs_summary(report: OffloadReport) -> str:
    """Return the offloaded share of multiply-accumulates, a clause."""
    total, taken = report.total_macs, report.offloaded_macs
    return f"{100 * taken / total:.1f} % of {total:,} MACs" if total else "no MACs to take"


def prediction_table(layers: Sequence[LayerProfile]) -> Table | None:
    """Return a table of measured and predicted clock cycles; None without predictions."""
    if all(layer.predicted_cycles is None for layer in layers):
        return None
    total = CycleTotals.of(layers)
    known = (total.measured_layers, total.predicted_layers)
    all_known = known == (total.layers, total.layers)
    name = "total" if all_known else "total of {} measured, {} predicted layers".format(*known)

    columns = (
        Column("measured", lambda each: known_count(each.clock_cycles),
               known_count(total.clock_cycles)),
        Column("predicted", lambda each: known_count(each.predicted_cycles),
               known_count(total.predicted_cycles)),
        Column("difference", lambda each: known_percent(difference_percent(each)),
               known_percent(total.difference_percent)),
    )  # fmt: skip
    own = [layer for layer in layers if not layer.on_cpu]
    return text_table("clock cycles", TextTable.of(own, columns, name))


def time_table(times: Sequence[float]) -> Table:
    """Return mean, median, maximum, minimum and deviation of host time, like `tvmc`."""
    names = ["mean (ms)", "median (ms)", "max (ms)", "min (ms)", "std (ms)"]
    table = new_table(*names, right=names)
    values = [
        statistics.fmean(times),
        statistics.median(times),
        max(times),
        min(times),
        statistics.pstdev(times),
    ]
    table.add_row(*(f"{value * 1e3:.4f}" for value in values))
    return table


def backend_table(sources: Sequence[BackendSource]) -> Table:
    table = new_table("backend", "from", "location")
    for source in sources:
        table.add_row(source.name, source.origin, source.location)
    return table


def profile_table(report: RunReport) -> Table:
    from umakit.tools.accounting import columns

    return text_table("layer", columns.profile_table(report))


def print_owners(report: RunReport, *, with_host: bool = False) -> None:
    """Print an empty line and the table of cycle owners; nothing without accelerator layers.

    Args:
        with_host: whether to add columns of processor time or instructions.
    """
    from umakit.tools.accounting.columns import owner_table

    found = owner_table(report, with_host=with_host)
    if found is not None:
        say("")
        print_whole(text_table("owner of cycles", found))
        say_wrapped(report.total_text)


def print_inferences(several: SeveralInferences) -> None:
    """Print an empty line and the figures of several inferences."""
    from umakit.tools.inferences import columns

    header, first, steady = columns.counted(several.count), several.first, several.steady
    say("")
    if not first.run.offloaded:
        say(f"{header}: no layer is on an accelerator, whose cycles are counted")
        return
    if first.accounting is not None:
        print_whole(text_table(header, columns.layer_table(several)))
        say_wrapped(columns.sentence(several))
        if steady is not None and _parts(first.run) != _parts(steady.run):
            for name, part in (("first inference", first), ("later ones", steady)):
                say("")
                say(f"{name}:")
                print_owners(part.run)
    if several.accelerators:
        if first.accounting is not None:
            say("")
        print_whole(text_table(header, columns.total_table(several)))
        for each in several.accelerators:
            for line in columns.notes_on(each, several.count):
                say_wrapped(line)


def _parts(report: RunReport) -> list[Parts | None]:
    return [row.parts for row in report.rows]


def print_energy(report: RunReport) -> None:
    """Print an empty line and the table of events; nothing if no accelerator has figures."""
    from umakit.tools.energy.columns import event_table

    found = event_table(report.layers)
    if found is None or report.energy is None:
        return
    say("")
    print_whole(text_table("energy", found))
    for sentence in (found.note, found.left_out):
        if sentence:
            say_wrapped(sentence)


def say_trace(destination: Path | None, summary: TraceSummary) -> None:
    """Print the written trace, and on standard error its gaps."""
    for process, layers in summary.without_cycles.items():
        say(
            f"note: {process}: the trace lacks {', '.join(layers)}, whose cycles are not known",
            error=True,
        )
    if summary.dropped:
        say(
            f"note: the trace lacks {summary.dropped:,} commands, which were not recorded or begin "
            "after the end of their layer",
            error=True,
        )
    say(f"Wrote {destination}: {summary.events:,} events")
