# SPDX-License-Identifier: Apache-2.0
"""Reads saved reports, and refuses other files. Imports neither TVM nor the pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from umakit.errors import RecordsError, short_path
from umakit.files.documents import Document
from umakit.tools.comparison.saved import Layer, Report
from umakit.tools.record import FORMAT, VERSION, AcceleratorBounds, LayerRecord, Parts

AGAIN = "write it again with `uma report MODEL --backend NAME --json > FILE`"

REPORT: Document[Report] = Document(
    FORMAT, VERSION, "report that `uma report --json` printed", TypeAdapter(Report), RecordsError,
    is_strict=True,
    instead_of_special="name a saved report", instead_of_another=AGAIN, instead_of_damaged=AGAIN,
)  # fmt: skip


def is_report_file(path: Path) -> bool:
    """Whether a path is a report, and not a model: a Relax module is JSON as well.

    Any JSON file that cannot be a Relax module counts as a report; `read_report` refuses files that
    are no reports.
    """
    if path.suffix != ".json" or not path.is_file():
        return False
    try:
        content = path.read_bytes()
        start = content[:2000].decode("utf-8", errors="replace")
    except OSError:
        return False
    if f'"{FORMAT}"' in start or '"model_sha256"' in start:
        return True
    is_text = "\0" not in start and "\N{REPLACEMENT CHARACTER}" not in start[:-4]
    return is_text and not (b'"nodes"' in content or b'"root_index"' in content)


def read_report(path: Path) -> Report:
    report = REPORT.read(path)
    _check(report, short_path(path))
    return report


def report_of(view: Mapping[str, Any]) -> Report:
    """Return the report with the keys of `uma report --json`."""
    report = REPORT.adapter.validate_json(json.dumps(view), strict=True)
    _check(report, "report")
    return report


def _check(report: Report, where: str) -> None:
    what = contradiction(report)
    if what is not None:
        raise RecordsError(what, where=where, fix=AGAIN)


def contradiction(report: Report) -> str | None:
    """Return the first contradiction between figures as a clause; None without one.

    Missing figures, such as figures of layers in a library's report, contradict nothing.
    """
    return next(_contradictions(report), None)


def _contradictions(report: Report) -> Iterator[str]:
    found = report.accounting
    layers = [row for row in found.rows if row.owner != "between layers"]
    if len(layers) != len(report.layers) or len(found.rows) > len(layers) + 1:
        yield "has other layers than rows of cycles"
        return
    for number, row in enumerate(found.rows):
        if row.parts is not None and row.parts.cycles != row.clock_cycles:
            yield (
                f"accounting.rows.{number}.parts are {row.parts.cycles:,} cycles, and its "
                f"clock_cycles {_shown(row.clock_cycles)}"
            )
    for number, (row, layer) in enumerate(zip(layers, report.layers, strict=True)):
        yield from _of_layer(number, row, layer)
    yield from _of_sums(report)


def _of_layer(number: int, row: LayerRecord, layer: Layer) -> Iterator[str]:
    place = f"layers.{number}"
    if layer.identity not in (None, row.identity):
        yield f"{place}.identity is another one than that of its row of cycles"
    if not row.on_cpu and layer.clock_cycles not in (None, row.clock_cycles):
        yield (
            f"{place}.clock_cycles is {_shown(layer.clock_cycles)}, and its row of cycles has "
            f"{_shown(row.clock_cycles)}"
        )
    for name in () if row.on_cpu else ("macs", "moved_bytes"):
        here, there = getattr(layer, name), getattr(row, name)
        if here is not None and there is not None and here != there:
            yield f"{place}.{name} is {here:,}, and its row of cycles has {there:,}"
    if layer.tiled is not None and layer.tiled.predicted_cycles != layer.predicted_cycles:
        yield (
            f"{place}.predicted_cycles is {_shown(layer.predicted_cycles)}, and its tiles have "
            f"{layer.tiled.predicted_cycles:,}"
        )


def _of_sums(report: Report) -> Iterator[str]:
    found, own = report.accounting, [row for row in report.accounting.rows if row.owner == "layer"]
    known = _known(found.rows)
    if found.clock_cycles is not None and known != found.clock_cycles:
        yield f"has rows of {known:,} cycles, and a total of {found.clock_cycles:,}"
    if report.clock_cycles is not None and _known(own) != report.clock_cycles:
        yield f"clock_cycles is {report.clock_cycles:,}, and its layers have {_known(own):,}"
    unknown = sum(row.clock_cycles is None for row in own)
    if found.unknown_layers != unknown:
        yield f"accounting.unknown_layers is {found.unknown_layers}, and there are {unknown}"
    parts = [row.parts for row in found.rows if row.parts is not None]
    if found.parts is not None and _known_parts(found.parts) != _known_parts(Parts.total(parts)):
        yield "accounting.parts are not the sums of those of its rows"
    moved = sum(row.moved_bytes or 0 for row in own)
    if report.moved_bytes not in (None, moved):
        yield f"moved_bytes is {_shown(report.moved_bytes)}, and its layers have {moved:,}"
    for each in report.bounds:
        yield from _of_bounds(each)
        cycles = _known([row for row in own if row.where == each.accelerator])
        if each.clock_cycles not in (None, cycles):
            yield (
                f"bounds: clock_cycles of {each.accelerator} is {_shown(each.clock_cycles)}, and "
                f"its layers have {cycles:,}"
            )
    if report.offloaded_macs > report.total_macs:
        yield f"offloaded_macs are {report.offloaded_macs:,} of {report.total_macs:,}"


def _of_bounds(bounds: AcceleratorBounds) -> Iterator[str]:
    for each in bounds.bounds:
        if each.compute is not None and each.memory is not None:
            larger = max(each.compute, each.memory)
            if each.cycles != larger:
                yield (
                    f"bounds: {each.name} of {bounds.accelerator} is {_shown(each.cycles)}, and "
                    f"the larger one of its parts {larger:,}"
                )


def _known(rows: Sequence[LayerRecord]) -> int:
    return sum(row.clock_cycles or 0 for row in rows)


def _known_parts(parts: Parts) -> dict[str, int]:
    return {name: cycles for name, cycles in parts.named().items() if cycles}


def _shown(value: int | None) -> str:
    return "null" if value is None else f"{value:,}"
