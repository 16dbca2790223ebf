# SPDX-License-Identifier: Apache-2.0
"""The tables that `uma` prints."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from umakit.report import CPU

if TYPE_CHECKING:
    from umakit.registry import BackendSource
    from umakit.report import OffloadReport, OperatorPlacement
    from umakit.run import LayerProfile


def new_table(*columns: str, right: Iterable[str] = ()) -> Table:
    """A table without a frame; the columns in `right` are aligned to the right."""
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


def offload_table(placements: Sequence[OperatorPlacement]) -> Table:
    """Every operator, where it runs, and why not on the accelerator."""
    table = new_table("operator", "name", "MACs", "where", "reason", right=["MACs"])
    for row in placements:
        style = "" if row.where == CPU else "bold green"
        macs = f"{row.macs:,}" if row.macs else ""
        table.add_row(row.operator, row.name, macs, row.where, row.reason, style=style)
    return table


def offload_summary(report: OffloadReport) -> str:
    """One sentence: how much of the network the accelerators take."""
    total, taken = report.total_macs, report.offloaded_macs
    share = f"{100 * taken / total:.1f} % of {total:,} MACs" if total else "no MACs to take"
    return f"{len(report.offloaded)} of {len(report.placements)} operators offloaded, {share}"


def memory_summary(memory: Mapping[str, Any]) -> str:
    """One sentence: arena, its lower bound, constants."""
    arena, bound = memory["arena_bytes"], memory["live_set_bound_bytes"]
    ratio = f"{arena / bound:.2f} x the live-set bound" if bound else "nothing to place"
    return f"arena {arena:,} B ({ratio}), constants {memory['constants_bytes']:,} B"


def profile_table(layers: Sequence[LayerProfile]) -> Table:
    """MACs and cycles of each layer of one inference, and their sums."""
    table = new_table(
        "layer",
        "where",
        "MACs",
        "cycles",
        "MACs/cycle",
        "host us",
        right=["MACs", "cycles", "MACs/cycle", "host us"],
    )
    for layer in layers:
        table.add_row(
            *_profile_cells(layer.name, layer.where, layer.macs, layer.cycles, layer.seconds)
        )
    total = _profile_cells(
        "total",
        "",
        sum(layer.macs for layer in layers),
        sum(layer.cycles for layer in layers),
        sum(layer.seconds for layer in layers),
    )
    table.add_section()
    # MACs per cycle of the whole would mix work of the CPU with cycles of the accelerator.
    table.add_row(*total[:4], "", total[5], style="bold")
    return table


def _profile_cells(
    name: str, where: str, macs: int, cycles: int, seconds: float
) -> tuple[str, str, str, str, str, str]:
    return (
        name,
        where,
        f"{macs:,}" if macs else "",
        f"{cycles:,}" if cycles else "",
        f"{macs / cycles:.1f}" if cycles else "",
        f"{seconds * 1e6:,.1f}",
    )


def time_table(times: Sequence[float]) -> Table:
    """Mean, median, maximum, minimum and deviation of host time, as `tvmc` prints them."""
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
    """Name, owner and place of each backend."""
    table = new_table("backend", "from", "location")
    for source in sources:
        table.add_row(source.name, source.origin, source.location)
    return table
