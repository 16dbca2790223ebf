# SPDX-License-Identifier: Apache-2.0
"""The tables that `uma` prints."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable
from umakit.cli.console import print_whole, say, say_wrapped

from umakit.devices.totals import CycleTotals
from umakit.partition.report import CPU
from umakit.text.escaping import shown
from umakit.tools.columns import Column, TextTable, known_count, known_percent

if TYPE_CHECKING:
    from umakit.backend.registry import BackendSource
    from umakit.devices.run import LayerProfile
    from umakit.partition.choice import Decision
    from umakit.partition.report import OffloadReport, OperatorPlacement
    from umakit.tools.energy import NetworkEvents


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
        table.add_row(line.name, *line.cells)
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


def memory_summary(memory: Mapping[str, Any]) -> list[str]:
    """Return a line with arena, its lower bound and constants, and a line per pool if several."""
    arena, bound = memory["arena_bytes"], memory["live_set_bound_bytes"]
    ratio = f"{arena / bound:.2f} x the live-set bound" if bound else "nothing to place"
    lines = [f"arena {arena:,} B ({ratio}), constants {memory['constants_bytes']:,} B"]
    if len(memory["pools"]) > 1 or any(pool["size_bytes"] for pool in memory["pools"]):
        lines += [f"  {_pool_summary(pool)}" for pool in memory["pools"]]
    lines += [_pool_summary(scratchpad) for scratchpad in memory["scratchpads"]]
    if memory["traffic"]:
        lines.append(_traffic_summary(memory["traffic"]))
    return lines


def cpu_summary(description: Mapping[str, Any]) -> list[str]:
    """Return lines about the memory and the tuned kernels of a library, by CPU if several.

    Args:
        description: section `umakit` of the library's metadata.
    """
    sections = description.get("cpus")
    if not sections:
        lines = [*memory_summary(description["memory"]), *scratch_summary(description)]
        return [*lines, *choices_summary(description)]
    lines = []
    for section in sections:
        name = section["cpu"]["name"]
        first, *rest = [*memory_summary(section["memory"]), *scratch_summary(section)]
        lines += [f"{name}: {first}", *rest]
        lines += [f"{name}: {line}" for line in choices_summary(section)]
    return lines


def choices_summary(section: Mapping[str, Any]) -> list[str]:
    """Return a line about the kernels chosen by tuning records; empty without records.

    Args:
        section: section `umakit` of the library's metadata, or its section of a CPU.
    """
    choices = section.get("choices")
    if choices is None:
        return []
    tuned, kernels = choices["tuned"], choices["kernels"]
    return [f"tuned choices for {tuned} of {kernels} kernels, the rules' own for the rest"]


MOST_SCRATCH = 3
"""Maximum number of layers with printed scratch; `--json` has all."""


def scratch_summary(description: Mapping[str, Any]) -> list[str]:
    """Return lines about a CPU library's use of the memory that `--scratch-limit` allows.

    Args:
        description: section `umakit` of the library's metadata, or its section of a CPU.
    """
    memory, scratch = description["memory"], description["memory"].get("scratch")
    if scratch is None:
        return []
    lines = []
    arena, generic = memory["arena_bytes"], scratch["generic_arena_bytes"]
    if arena > generic and not description.get("most_parts"):  # `generic` lacks CPU scratch
        taking = [each for each in description["layers"] if each["where"] == "cpu"]
        taking.sort(key=lambda each: -each["scratch_bytes"])
        named = [_with_scratch(each) for each in taking[:MOST_SCRATCH] if each["scratch_bytes"]]
        text = f"; most scratch: {', '.join(named)}" if named else ""
        lines.append(f"  {arena - generic:,} B more than for generic, {generic:,} B{text}")
    reason = f"because of --scratch-limit {scratch['limit_percent']}"
    if scratch["keeps_layout"]:
        lines.append(f"  the network keeps its layout {reason}")
    if scratch["generic_layers"]:
        named = [_with_scratch(each) for each in scratch["generic_layers"]]
        what = f"kernels as for generic {reason}, and the scratch of their own form"
        lines.append(f"  {what}: {', '.join(named)}")
    return lines


def _with_scratch(layer: Mapping[str, Any]) -> str:
    size = layer["scratch_bytes"]
    return layer["name"] if size is None else f"{layer['name']} {size:,} B"


def tilings_summary(tilings: Mapping[str, int]) -> str:
    """Return a line about the number of layers tiled by records."""
    layers, tuned = tilings["layers"], tilings["tuned"]
    rest = "" if tuned == layers else "; the default for the rest, `uma tune` finds more"
    return f"tuned tilings for {tuned} of {layers} layers that are cut into tiles{rest}"


def _traffic_summary(traffic: Mapping[str, Any]) -> str:
    """Return a line about the bytes moved to and from scratchpads, and the bytes saved."""
    saved = sum(kept["saved"] for kept in traffic["kept"])
    total = traffic["moved"] + saved
    text = f"{traffic['moved']:,} B move to and from it in an inference"
    if not saved:
        return text
    share = 100 * saved / total
    return f"{text}; {saved:,} B more ({share:.1f} %) stay there between layers"


def _pool_summary(pool: Mapping[str, Any]) -> str:
    used, size = pool["used_bytes"], pool["size_bytes"]
    share = f" of {size:,} B ({100 * used / size:.1f} %)" if size else " B"
    return f"{pool['name']}: {used:,}{share}, {len(pool['tensors'])} tensors"


def prediction_table(layers: Sequence[LayerProfile]) -> Table | None:
    """Return a table of measured and predicted clock cycles; None without predictions."""
    if all(layer.predicted_cycles is None for layer in layers):
        return None
    compared = [(layer.name, layer.measured_and_predicted) for layer in layers]
    total = CycleTotals.of(cycles for _, cycles in compared)
    known = (total.measured_layers, total.predicted_layers)
    all_known = known == (total.layers, total.layers)
    name = "total" if all_known else "total of {} measured, {} predicted layers".format(*known)

    def column(header: str, text: Callable[[Any], str], figure: str) -> Column:
        return Column(
            header, lambda each: text(getattr(each[1], figure)), text(getattr(total, figure))
        )

    columns = (
        column("measured", known_count, "clock_cycles"),
        column("predicted", known_count, "predicted_cycles"),
        column("difference", known_percent, "difference_percent"),
    )
    own = [each for each in compared if not each[1].on_cpu]
    return text_table("clock cycles", TextTable.of(own, columns, name, lambda each: each[0]))


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
    """Return a table of name, owner and location of each backend."""
    table = new_table("backend", "from", "location")
    for source in sources:
        table.add_row(source.name, source.origin, source.location)
    return table


def print_energy(events: NetworkEvents) -> None:
    """Print an empty line and the table of events; nothing if no accelerator has figures."""
    from umakit.tools.energy.columns import event_table

    found = event_table(events)
    if found is None or events.energy is None:
        return
    say("")
    print_whole(text_table("energy", found))
    for sentence in (found.note, found.left_out):
        if sentence:
            say_wrapped(sentence)
