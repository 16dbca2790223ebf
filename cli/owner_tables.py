# SPDX-License-Identifier: Apache-2.0
"""Tables of `uma run --profile` and `uma report`: the cycles of an inference by owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from umakit.cli.console import print_whole, say, say_wrapped
from umakit.cli.tables import Table, new_table

from umakit.tools.accounting.columns import (
    cycles_text,
    owner_table,
    shown_rows,
    total_cycles_text,
    total_name,
)

if TYPE_CHECKING:
    from umakit.tools.accounting import Accounting, LayerRecord


def print_owners(accounting: Accounting, *, with_host: bool = False) -> None:
    """Print an empty line and the table of cycle owners; nothing without accelerator layers.

    Args:
        accounting: the figures.
        with_host: whether to add the columns of processor time, as in `profile_table`.
    """
    found = owner_table(accounting, with_host=with_host)
    if found is None:
        return
    table = new_table("owner of cycles", *found.headers, right=found.headers)
    for line in found.lines:
        table.add_row(line.name, *line.cells)
    table.add_section()
    table.add_row(found.total.name, *found.total.cells, style="bold")
    say("")
    print_whole(table)
    say_wrapped(accounting.total_text)


def profile_table(accounting: Accounting) -> Table:
    """Return a table of multiply-accumulates, cycles and host times of each layer and step."""
    rows = shown_rows(accounting)
    host = accounting.host.columns(rows)
    predicts = any(row.predicted_instructions is not None for row in accounting.rows)
    predicted = ["predicted instructions"] if predicts else []
    names = ["MACs", "cycles", "MACs/cycle", *host, *predicted]
    table = new_table("layer", "where", *names, right=names)
    for number, row in enumerate(rows):
        own = [column[number] for column in host.values()]
        own += [_known(row.predicted_instructions)] if predicts else []
        cycles = cycles_text(row) if accounting.layers or row.cycles is not None else ""
        table.add_row(row.name, row.where, _count(row.macs), cycles, _rate(row), *own)
    table.add_section()
    table.add_row(
        total_name(accounting),
        "",
        _count(sum(row.macs for row in accounting.rows)),
        total_cycles_text(accounting),
        "",  # work of the CPU over cycles of the accelerator
        *(column[-1] for column in host.values()),
        *([_all_predicted(accounting)] if predicts else []),
        style="bold",
    )
    return table


def _known(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _all_predicted(accounting: Accounting) -> str:
    found = [row.predicted_instructions for row in accounting.cpu_steps]
    return "" if None in found else f"{sum(each or 0 for each in found):,}"


def _count(value: int) -> str:
    return f"{value:,}" if value else ""


def _rate(row: LayerRecord) -> str:
    has_rate = row.owner == "layer" and row.macs and row.cycles
    return f"{row.macs / row.cycles:.1f}" if has_rate and row.cycles else ""
