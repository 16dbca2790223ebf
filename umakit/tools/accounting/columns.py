# SPDX-License-Identifier: Apache-2.0
"""The accounting as a table of texts, for terminals and pages alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from umakit.tools.accounting.owners import Accounting
from umakit.tools.columns import UNKNOWN, Column, TextTable, count
from umakit.tools.record import LayerRecord

Figure = Callable[[LayerRecord], int | None]
"""The figure of a record; None if unknown or missing."""


def owner_table(accounting: Accounting, *, with_host: bool = False) -> TextTable | None:
    """Return the parts of the cycles of each owner, and its moved bytes.

    `bus B` are the bytes that an accelerator moves over the bus, `CPU B` the bytes of the tensors
    that a CPU step reads and writes. Parts without any cycles are omitted, also the cycles between
    layers. Names of CPU steps are followed by `(CPU)`; cells are empty for 0 and missing figures.

    Args:
        accounting: the figures.
        with_host: whether to add columns of processor time or instructions.

    Returns:
        None without layers on accelerators.
    """
    if not accounting.layers:
        return None
    cycles = Column("cycles", cycles_text, total_cycles_text(accounting))
    columns = [cycles, *_parts(accounting)]
    if any(row.bus_bytes for row in accounting.layers):
        columns.append(_column(accounting, "bus B", lambda row: row.bus_bytes))
    if accounting.cpu_steps:
        columns.append(_column(accounting, "CPU B", lambda row: row.tensor_bytes, "cpu step"))
    columns += accounting.host.columns if with_host else ()
    return TextTable.of(
        shown_rows(accounting), columns, total_name(accounting),
        lambda row: f"{row.name} (CPU)" if row.on_cpu else row.name,
    )  # fmt: skip


def shown_rows(accounting: Accounting) -> list[LayerRecord]:
    """Return the rows; omit the row between layers if its cycles are 0 or unknown."""
    return [row for row in accounting.rows if row.owner != "between layers" or row.cycles]


def cycles_text(row: LayerRecord) -> str:
    """Return the cycles of a row as text; for CPU steps, with their source."""
    if row.cycles is None:
        return UNKNOWN
    return f"{row.cycles:,} {row.source}" if row.on_cpu else f"{row.cycles:,}"


def total_cycles_text(accounting: Accounting) -> str:
    """Return the known cycles of all rows as text; empty without any."""
    if accounting.clock_cycles is None and accounting.layers:
        return UNKNOWN
    cycles = (accounting.clock_cycles or 0) + (accounting.cpu_cycles or 0)
    return count(cycles)


def total_name(accounting: Accounting) -> str:
    """Return the name of the line of totals, which mentions unmeasured layers."""
    layers, unknown = len(accounting.layers), accounting.unknown_layers
    return f"total of {layers - unknown} of {layers} layers" if unknown else "total"


def _parts(accounting: Accounting) -> Iterator[Column]:
    known = [row.parts.named() for row in accounting.rows if row.parts is not None]
    names = dict.fromkeys(name for parts in known for name, cycles in parts.items() if cycles)
    if list(names) == ["undivided"]:
        return
    last = ("registers", "idle", "undivided")
    waits = sorted(name for name in names if name not in ("computing", *last))

    def part(name: str) -> Figure:
        return lambda row: None if row.parts is None else row.parts.named().get(name, 0)

    for name in ("computing", *waits, *last):
        if name in names:
            yield _column(accounting, name.replace("waits: ", "wait: ", 1), part(name))


def _column(accounting: Accounting, header: str, of: Figure, owner: str = "layer") -> Column:
    """Return a column of figures that an owner has.

    The total is the sum over layers with known cycles, and CPU steps; it is unknown if a figure of
    the owner is unknown.
    """

    def cell(row: LayerRecord) -> str:
        figure = of(row)
        return UNKNOWN if figure is None and row.owner == owner else count(figure)

    rows = [row for row in accounting.rows if row.owner != "layer" or row.clock_cycles is not None]
    is_known = all(of(row) is not None for row in rows if row.owner == owner)
    total = count(sum(of(row) or 0 for row in rows)) if is_known else UNKNOWN
    return Column(header, cell, total)
