# SPDX-License-Identifier: Apache-2.0
"""Tables of several inferences: the first, the later ones, and the total."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from umakit.devices.inferences import Spread
from umakit.tools.columns import UNKNOWN, Column, Line, TextTable, known_count
from umakit.tools.inferences.figures import InferenceFigures, SeveralInferences
from umakit.tools.record import LayerRecord

if TYPE_CHECKING:  # imports TVM
    from umakit.tools.inferences.accelerators import AcceleratorInferences, KeptWeights


def layer_table(several: SeveralInferences) -> TextTable:
    first, steady = several.first, several.steady
    later = {} if steady is None else {each.number: each for each in steady.run.layers}

    def column(header: str, of_layer: str, of_all: str, part: InferenceFigures | None) -> Column:
        def cell(layer: LayerRecord) -> str:
            own = layer if part is first else later.get(layer.number)
            return _spread(getattr(own, of_layer, None))

        return Column(header, cell, _spread(getattr(part, of_all, None)))

    columns = (
        column("first cycles", "cycle_spread", "clock_cycles", first),
        column("steady cycles", "cycle_spread", "clock_cycles", steady),
        column("first bus B", "byte_spread", "moved_bytes", first),
        column("steady bus B", "byte_spread", "moved_bytes", steady),
    )
    shown = [
        layer for layer in first.run.layers
        if not layer.on_cpu or (layer.cycle_spread and layer.cycle_spread.highest)
    ]  # fmt: skip
    return TextTable.of(shown, columns, "total")


def sentence(several: SeveralInferences) -> str:
    """Return a sentence about the measured cycles of all inferences together."""
    count, first, steady = several.count, several.first, several.steady
    text = f"{counted(count)}: {known_count(several.clock_cycles)} cycles"
    text += f", {known_count(several.moved_bytes)} bytes over the bus"
    if steady is None:
        return text
    if first.clock_cycles.least is None or steady.clock_cycles.least is None:
        return text
    if not steady.clock_cycles.equal:
        return f"{text}; those behind the first are not alike"
    if steady.clock_cycles == first.clock_cycles and steady.moved_bytes == first.moved_bytes:
        return f"{text}; each later one costs what the first does"
    return f"{text}; those behind the first are alike"


def total_table(several: SeveralInferences) -> TextTable:
    """Return a table of measured and predicted cycles and bytes, with lower bounds."""
    parts = (several.first, several.steady, several)
    columns = [
        Column(f"{part} {kind}", str) for kind in ("cycles", "bus B")
        for part in ("first", "steady", "all")
    ]  # fmt: skip
    lines = []
    if several.first.accounting is not None:
        lines.append(Line("simulated", _figures(parts, "clock_cycles", "moved_bytes")))
    lines.append(Line("predicted", _figures(parts, "predicted_cycles", "predicted_bytes")))
    is_alone = len(several.accelerators) == 1
    if several.steady is not None and is_alone:
        lines += _kept(several, several.accelerators[0].weights)
    for each in several.accelerators:
        name = "" if is_alone else f" on {each.accelerator}"
        bounds = {"nothing stays": each.nothing_stays, "weights stay": each.weights_stay}
        for title, bound in bounds.items():
            steady = None if several.count == 1 else bound.steady
            found = (bound.first, steady, bound.all)
            lines.append(Line(f"bound, {title}{name}", _figures(found, "cycles", "bytes")))
    return TextTable(tuple(columns), tuple(lines), None)


def _kept(several: SeveralInferences, weights: KeptWeights) -> Iterator[Line]:
    """Yield the line of a machine that keeps weights; nothing if weights cannot stay."""
    cycles, moved = several.first.predicted_cycles, several.first.predicted_bytes
    if not weights.could_stay_bytes or None in (cycles, moved, weights.saved_bytes):
        return
    later, steady = (moved or 0) - (weights.saved_bytes or 0), weights.steady_cycles
    count = several.count - 1
    all_cycles = None if steady is None else (cycles or 0) + count * steady
    figures = (cycles, steady, all_cycles, moved, later, (moved or 0) + count * later)
    yield Line("if weights stayed", tuple(map(known_count, figures)))


def notes_on(each: AcceleratorInferences, count: int) -> Iterator[str]:
    """Yield lines about the weights that could stay in an accelerator, and their worth."""
    weights = each.weights
    if weights.could_stay_bytes is not None:
        yield (
            f"weights could stay in {each.accelerator}: {weights.could_stay_bytes:,} of "
            f"{weights.stored_bytes:,} bytes ({weights.room_bytes:,} bytes of the scratchpad are "
            f"never used, of which they take {weights.taken_bytes:,}: each place starts at a "
            f"multiple of {weights.alignment_bytes:,})"
        )
    if weights.layers:
        yield f"layers whose weights could stay: {', '.join(weights.layers)}"
    if weights.loaded_bytes is not None and count > 1:
        yield _loads(weights)
    unknown = dict.fromkeys((*weights.unknown, *each.weights_stay.steady.unknown))
    if unknown:
        yield f"not known for {each.accelerator}: {'; '.join(unknown)}"


def _loads(weights: KeptWeights) -> str:
    text = f"each inference loads {weights.loaded_bytes:,} bytes of weights"
    if weights.saved_bytes is None:
        return text
    return f"{text}, of which {weights.saved_bytes:,} are of layers whose weights could stay"


def counted(count: int) -> str:
    return "1 inference" if count == 1 else f"{count:,} inferences"


def _figures(parts: Sequence[object], *names: str) -> tuple[str, ...]:
    """Return figures of the first inference, of each later one if there is any, and of all."""
    return tuple(
        "" if each is None else _text(getattr(each, name)) for name in names for each in parts
    )


def _text(figure: Spread | int | None) -> str:
    return known_count(figure) if figure is None or isinstance(figure, int) else _spread(figure)


def _spread(spread: Spread | None) -> str:
    """Return a figure as text, with minimum and maximum if they differ."""
    if spread is None:
        return ""
    if spread.least is None or spread.highest is None:
        return UNKNOWN
    return f"{spread.least:,}" if spread.equal else f"{spread.least:,} to {spread.highest:,}"
