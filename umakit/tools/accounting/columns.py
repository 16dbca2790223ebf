# SPDX-License-Identifier: Apache-2.0
"""The accounting as a table of texts, for terminals and pages alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from umakit.tools.accounting.owners import Accounting
from umakit.tools.record import LayerRecord

UNKNOWN = "-"
"""Text for a figure that is not known."""

Column = Callable[[LayerRecord], int | None]
"""The figure of a row; None if unknown or missing."""

CYCLES, BUS_BYTES, CPU_BYTES = "cycles", "bus B", "CPU B"


@dataclass(frozen=True)
class OwnerLine:
    """A line of the table.

    Attributes:
        name: name of the layer, followed by `(CPU)` for a CPU step.
        on_cpu: whether the line is a CPU step.
        cells: figures as texts, by column; empty for 0 and for missing figures.
    """

    name: str
    on_cpu: bool
    cells: tuple[str, ...]


@dataclass(frozen=True)
class OwnerTable:
    """A table of the cycles of an inference by owners.

    Attributes:
        headers: headers of the columns after the owner's name.
        lines: a line for each owner.
        total: the sums.
    """

    headers: tuple[str, ...]
    lines: tuple[OwnerLine, ...]
    total: OwnerLine


def owner_table(accounting: Accounting, *, with_host: bool = False) -> OwnerTable | None:
    """Return the parts of the cycles of each owner, and its moved bytes.

    `bus B` are the bytes that an accelerator moves over the bus, `CPU B` the bytes of the tensors
    that a CPU step reads and writes. Parts without any cycles are omitted, also the cycles between
    layers.

    Args:
        accounting: the figures.
        with_host: whether to add columns of processor time or instructions.

    Returns:
        None without layers on accelerators.
    """
    if not accounting.layers:
        return None
    columns: dict[str, Column] = {CYCLES: lambda row: row.cycles, **_parts(accounting)}
    if any(row.bus_bytes for row in accounting.layers):
        columns[BUS_BYTES] = lambda row: row.bus_bytes
    if accounting.cpu_steps:
        columns[CPU_BYTES] = lambda row: row.tensor_bytes
    host = accounting.host.columns(shown_rows(accounting)) if with_host else {}
    lines = []
    for number, row in enumerate(shown_rows(accounting)):
        on_cpu = row.owner == "cpu step"
        cells = tuple(_cell(row, name, of) for name, of in columns.items())
        cells += tuple(column[number] for column in host.values())
        lines.append(OwnerLine(f"{row.name} (CPU)" if on_cpu else row.name, on_cpu, cells))
    totals = [_total(accounting, name, of) for name, of in columns.items()]
    totals += [column[-1] for column in host.values()]
    total = OwnerLine(total_name(accounting), False, tuple(totals))
    return OwnerTable((*columns, *host), tuple(lines), total)


def shown_rows(accounting: Accounting) -> list[LayerRecord]:
    """Return the rows; omit the row between layers if its cycles are 0 or unknown."""
    return [row for row in accounting.rows if row.owner != "between layers" or row.cycles]


def cycles_text(row: LayerRecord) -> str:
    """Return the cycles of a row as text; for CPU steps, with their source."""
    if row.cycles is None:
        return UNKNOWN
    return f"{row.cycles:,} {row.source}" if row.owner == "cpu step" else f"{row.cycles:,}"


def total_cycles_text(accounting: Accounting) -> str:
    """Return the known cycles of all rows as text; empty without any."""
    if accounting.clock_cycles is None and accounting.layers:
        return UNKNOWN
    cycles = (accounting.clock_cycles or 0) + (accounting.cpu_cycles or 0)
    return f"{cycles:,}" if cycles else ""


def total_name(accounting: Accounting) -> str:
    """Return the name of the line of totals, which mentions unmeasured layers."""
    layers, unknown = len(accounting.layers), accounting.unknown_layers
    return f"total of {layers - unknown} of {layers} layers" if unknown else "total"


def _parts(accounting: Accounting) -> Mapping[str, Column]:
    known = [row.parts.named() for row in accounting.rows if row.parts is not None]
    names = dict.fromkeys(name for parts in known for name, cycles in parts.items() if cycles)
    if list(names) == ["undivided"]:
        return {}
    last = ("registers", "idle", "undivided")
    waits = sorted(name for name in names if name not in ("computing", *last))
    chosen = [name for name in ("computing", *waits, *last) if name in names]

    def part(name: str) -> Column:
        return lambda row: None if row.parts is None else row.parts.named().get(name, 0)

    return {name.replace("waits: ", "wait: ", 1): part(name) for name in chosen}


def _cell(row: LayerRecord, name: str, of: Column) -> str:
    if name == CYCLES:
        return cycles_text(row)
    figure = of(row)
    if figure is None:
        own = {"layer": name != CPU_BYTES, "cpu step": name == CPU_BYTES, "between layers": False}
        return UNKNOWN if own[row.owner] else ""
    return f"{figure:,}" if figure else ""


def _total(accounting: Accounting, name: str, of: Column) -> str:
    """Return the sum of a column over layers with known cycles, and CPU steps.

    The sum is unknown if a figure is unknown.
    """
    if name == CYCLES:
        return total_cycles_text(accounting)
    owner = "cpu step" if name == CPU_BYTES else "layer"
    rows = [row for row in accounting.rows if row.owner != "layer" or row.clock_cycles is not None]
    if any(of(row) is None for row in rows if row.owner == owner):
        return UNKNOWN
    total = sum(of(row) or 0 for row in rows)
    return f"{total:,}" if total else ""
