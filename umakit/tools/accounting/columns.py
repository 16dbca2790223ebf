# SPDX-License-Identifier: Apache-2.0
"""Cycles and times of layers as tables of texts, for terminals and pages alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from umakit.tools.accounting.report import RunReport
from umakit.tools.columns import UNKNOWN, Column, TextTable, count, known_sum
from umakit.tools.record import LayerRecord

Figure = Callable[[LayerRecord], int | None]
"""The figure of a record; None if unknown or missing."""


def owner_table(report: RunReport, *, with_host: bool = False) -> TextTable | None:
    """Return the parts of the cycles of each owner, and its moved bytes.

    `bus B` are the bytes that an accelerator moves over the bus, `CPU B` the bytes of the tensors
    that a CPU step reads and writes. Parts without any cycles are omitted, also the cycles between
    layers. Names of CPU steps are followed by `(CPU)`; cells are empty for 0 and missing figures.

    Args:
        with_host: whether to add columns of processor time or instructions.

    Returns:
        None without layers on accelerators.
    """
    if not report.offloaded:
        return None
    cycles = Column("cycles", cycles_text, total_cycles_text(report))
    columns = [cycles, *_parts(report)]
    if any(row.bus_bytes for row in report.offloaded):
        columns.append(_column(report, "bus B", lambda row: row.bus_bytes))
    if report.cpu_steps:
        columns.append(_column(report, "CPU B", lambda row: row.tensor_bytes, "cpu step"))
    columns += report.host.columns if with_host else ()
    return TextTable.of(
        shown_rows(report), columns, total_name(report),
        lambda row: f"{row.name} (CPU)" if row.on_cpu else row.name,
    )  # fmt: skip


def profile_table(report: RunReport) -> TextTable:
    rows, steps = report.rows, report.cpu_steps

    def cycles(row: LayerRecord) -> str:
        return cycles_text(row) if report.offloaded or row.cycles is not None else ""

    columns = [
        Column("where", lambda row: row.where, is_text=True),
        Column("MACs", lambda row: count(row.macs), count(sum(row.macs for row in rows))),
        Column("cycles", cycles, total_cycles_text(report)),
        Column("MACs/cycle", _rate),  # no total: work of the CPU over cycles of the accelerator
        *report.host.columns,
    ]
    if any(row.predicted_instructions is not None for row in rows):
        total = known_sum(row.predicted_instructions for row in steps)
        columns.append(
            Column("predicted instructions", lambda row: _known(row.predicted_instructions),
                   _known(total))
        )  # fmt: skip
    return TextTable.of(shown_rows(report), columns, total_name(report))


def _known(figure: int | None) -> str:
    return "" if figure is None else f"{figure:,}"


def _rate(row: LayerRecord) -> str:
    has_rate = row.owner == "layer" and row.macs and row.cycles
    return f"{row.macs / row.cycles:.1f}" if has_rate and row.cycles else ""


def shown_rows(report: RunReport) -> list[LayerRecord]:
    """Return the rows; omit the row between layers if its cycles are 0 or unknown."""
    return [row for row in report.rows if row.owner != "between layers" or row.cycles]


def cycles_text(row: LayerRecord) -> str:
    """Return the cycles of a row as text; for CPU steps, with their source."""
    if row.cycles is None:
        return UNKNOWN
    return f"{row.cycles:,} {row.source}" if row.on_cpu else f"{row.cycles:,}"


def total_cycles_text(report: RunReport) -> str:
    """Return the known cycles of all rows as text; empty without any."""
    if report.clock_cycles is None and report.offloaded:
        return UNKNOWN
    cycles = (report.clock_cycles or 0) + (report.cpu_cycles or 0)
    return count(cycles)


def total_name(report: RunReport) -> str:
    """Return the name of the line of totals, which mentions unmeasured layers."""
    layers, unknown = len(report.offloaded), report.unknown_layers
    return f"total of {layers - unknown} of {layers} layers" if unknown else "total"


def _parts(report: RunReport) -> Iterator[Column]:
    known = [row.parts.named() for row in report.rows if row.parts is not None]
    names = dict.fromkeys(name for parts in known for name, cycles in parts.items() if cycles)
    if list(names) == ["undivided"]:
        return
    last = ("registers", "idle", "undivided")
    waits = sorted(name for name in names if name not in ("computing", *last))

    def part(name: str) -> Figure:
        return lambda row: None if row.parts is None else row.parts.named().get(name, 0)

    for name in ("computing", *waits, *last):
        if name in names:
            yield _column(report, name.replace("waits: ", "wait: ", 1), part(name))


def _column(report: RunReport, header: str, of: Figure, owner: str = "layer") -> Column:
    """Return a column of figures that an owner has.

    The total is the sum over layers with known cycles, and CPU steps; it is unknown if a figure of
    the owner is unknown.
    """

    def cell(row: LayerRecord) -> str:
        figure = of(row)
        return UNKNOWN if figure is None and row.owner == owner else count(figure)

    rows = [row for row in report.rows if row.owner != "layer" or row.clock_cycles is not None]
    is_known = all(of(row) is not None for row in rows if row.owner == owner)
    total = count(sum(of(row) or 0 for row in rows)) if is_known else UNKNOWN
    return Column(header, cell, total)
