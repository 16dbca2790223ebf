# SPDX-License-Identifier: Apache-2.0
"""A comparison as rows of texts, for terminals and pages alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from umakit.text.rendering import render_html
from umakit.tools.columns import UNKNOWN, known_count
from umakit.tools.columns import Line as TableLine
from umakit.tools.comparison.compare import Comparison
from umakit.tools.comparison.figures import FIGURES, Figure
from umakit.tools.comparison.limits import CheckedLimit
from umakit.tools.comparison.lines import Change, Line
from umakit.version import __version__


def changed_text(value: int | None) -> str:
    """Return a change with its sign; empty for none, `-` if unknown."""
    if value is None:
        return UNKNOWN
    return f"{value:+,}" if value else ""


def percent_text(change: Change) -> str:
    """Return a change as a share of A; empty for none, and if A is 0 or unknown."""
    percent = change.percent
    return "" if percent is None or not change.change else f"{percent:+,.2f} %"


def row_of(name: str, change: Change, note: str = "") -> TableLine:
    """Return the line of a figure: A, B, change and percent."""
    cells = known_count(change.a), known_count(change.b), changed_text(change.change)
    return TableLine(name, (*cells, percent_text(change)), note=note)


def figure_rows(comparison: Comparison) -> list[TableLine]:
    """Return the rows of the networks' figures, except those that are 0 or unknown in both."""
    shown = [each for each in comparison.figures if each.a or each.b]
    return [row_of(_title(each.figure), each) for each in shown]


def not_compared(comparison: Comparison) -> list[str]:
    """Return sentences about figures that only one network has, or that do not compare."""
    names: dict[str, list[str]] = {}
    for each in comparison.figures:
        if each.unknown and (each.a is not None or each.b is not None):
            names.setdefault(each.unknown, []).append(each.figure.name)
    sentences = [f"not compared: {', '.join(found)} ({why})" for why, found in names.items()]
    if comparison.cut_otherwise is None:
        sides = (("A", comparison.a), ("B", comparison.b))
        missing = " and ".join(name for name, report in sides if not report.has_tilings)
        sentences.append(f"not compared: tilings ({missing}: a library does not record them)")
    return sentences


def tilings_text(line: Line) -> str:
    """Return the tilings of a layer in A and in B, as `one -> other`; empty if equal."""
    one, other = line.tilings
    if not line.is_cut_otherwise or one is None or other is None:
        return ""
    return f"{'; then '.join(one)} -> {'; then '.join(other)}"


def _title(figure: Figure) -> str:
    said = {"cycles": "cycles", "B": "bytes", "MACs": "macs", "ns": "ns"}.get(figure.unit, "")
    return figure.name if said in figure.name else f"{figure.name}, {figure.unit}"


def layer_rows(comparison: Comparison) -> list[TableLine]:
    """Return rows of the differing layers, of all others together, and of the cycles between.

    The changes add up to the change of the total, which is the last row.
    """
    basis = comparison.basis
    changed = comparison.changed
    rows = [_layer_row(comparison, line) for line in changed]
    others = [line for line in comparison.lines if not comparison.is_changed(line)]
    if others:
        rows.append(_rest_row(others, basis))
    between = comparison.between(basis)
    if between.a or between.b:
        rows.append(row_of("between layers", between))
    return [*rows, row_of("total", comparison.compared(basis))]


def _layer_row(comparison: Comparison, line: Line) -> TableLine:
    """Return the row of a layer: no figures for a network without it, `CPU` for a CPU step."""
    row = row_of(
        line.key, line.of(comparison.basis), note_on(line, comparison.is_of_machines(line))
    )
    a, b = (
        "" if not steps else "CPU" if all(step.on_cpu for step in steps) else cell
        for steps, cell in zip((line.a, line.b), row.cells, strict=False)
    )
    has_share = a not in ("", "CPU") and b not in ("", "CPU")
    return replace(row, cells=(a, b, row.cells[2], row.cells[3] if has_share else ""))


def _rest_row(lines: Sequence[Line], basis: Figure) -> TableLine:
    name = f"{len(lines):,} other layer{'' if len(lines) == 1 else 's'}"
    row = row_of(name, _sum([line.of(basis) for line in lines]), "no difference")
    if all(step.on_cpu for line in lines for step in line.b):
        return replace(row, cells=("CPU", "CPU", "", ""))
    return row


def _sum(changes: Sequence[Change]) -> Change:
    ones, others = ([getattr(each, name) for each in changes] for name in "ab")
    return Change(None if None in ones else sum(ones), None if None in others else sum(others))


def note_on(line: Line, is_of_machines: bool = False) -> str:
    """Return the changes of a layer besides its cycles, as clauses.

    Args:
        is_of_machines: whether it runs elsewhere because the networks have different machines.
    """
    one, other = line.where
    clauses = []
    if line.status != "both":
        clauses.append(f"{line.status}, {one or other}")
    elif line.move == "to the CPU" and one == other:
        clauses.append("more of it on the CPU")
    elif line.move == "from the CPU" and one == other:
        clauses.append("less of it on the CPU")
    elif one != other and not is_of_machines:
        clauses.append(f"{one} -> {other}")
    if line.is_cut_otherwise:
        clauses.append("other tiling")
    if line.a and line.b and len(line.a) != len(line.b):
        clauses.append(f"{len(line.a)} -> {len(line.b)} steps")
    return "; ".join(clauses)


def changes_of(line: Line) -> list[str]:
    """Return the differing figures of a layer, as `bytes +1,024`, without its cycles."""
    found = []
    for figure in FIGURES:
        if figure.of_step is None or figure.name in ("cycles", "predicted cycles"):
            continue
        change = line.of(figure)
        if change.a == change.b:
            continue
        said = "not known in one of them" if change.change is None else f"{change.change:+,}"
        found.append(f"{figure.name} {said}")
    return found


def moved_text(line: Line) -> str:
    macs = f", {line.macs:,} MACs" if line.macs else ""
    why = f": {'; '.join(line.reasons)}" if line.reasons else ""
    return f"{line.key} moved to the CPU ({line.where[0]} -> {line.where[1]}{macs}){why}"


def html(comparison: Comparison, checked: Sequence[CheckedLimit] = ()) -> str:
    """Return the page, which works without JavaScript."""
    return render_html(
        "comparison/page.html.j2",
        version=__version__,
        comparison=comparison,
        sides=(("A", comparison.a, comparison.names[0]), ("B", comparison.b, comparison.names[1])),
        figures=figure_rows(comparison),
        not_compared=not_compared(comparison),
        layers=layer_rows(comparison),
        checked=checked,
        changes_of=changes_of,
        moved=moved_text,
    )
