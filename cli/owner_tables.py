# SPDX-License-Identifier: Apache-2.0
"""Tables of `uma run --profile` and `uma report`: the cycles of an inference by owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from umakit.cli.console import print_whole, say, say_wrapped
from umakit.cli.tables import Table, text_table

from umakit.tools.accounting.columns import (
    cycles_text,
    owner_table,
    shown_rows,
    total_cycles_text,
    total_name,
)
from umakit.tools.columns import Column, TextTable, count

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
    say("")
    print_whole(text_table("owner of cycles", found))
    say_wrapped(accounting.total_text)


def profile_table(accounting: Accounting) -> Table:
    """Return a table of multiply-accumulates, cycles and host times of each layer and step."""

    def cycles(row: LayerRecord) -> str:
        return cycles_text(row) if accounting.layers or row.cycles is not None else ""

    macs = count(sum(row.macs for row in accounting.rows))
    columns = [
        Column("where", lambda row: row.where, is_text=True),
        Column("MACs", lambda row: count(row.macs), macs),
        Column("cycles", cycles, total_cycles_text(accounting)),
        Column("MACs/cycle", _rate),  # no total: work of the CPU over cycles of the accelerator
        *accounting.host.columns,
    ]
    if any(row.predicted_instructions is not None for row in accounting.rows):
        found = [row.predicted_instructions for row in accounting.cpu_steps]
        total = "" if None in found else f"{sum(each or 0 for each in found):,}"
        columns.append(Column("predicted instructions", _instructions, total))
    return text_table(
        "layer", TextTable.of(shown_rows(accounting), columns, total_name(accounting))
    )


def _instructions(row: LayerRecord) -> str:
    return "" if row.predicted_instructions is None else f"{row.predicted_instructions:,}"


def _rate(row: LayerRecord) -> str:
    has_rate = row.owner == "layer" and row.macs and row.cycles
    return f"{row.macs / row.cycles:.1f}" if has_rate and row.cycles else ""
