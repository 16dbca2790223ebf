# SPDX-License-Identifier: Apache-2.0
"""Tables of several inferences: the first, the later ones, and the total."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from umakit.cli.console import print_whole, say, say_wrapped
from umakit.cli.owner_tables import print_owners
from umakit.cli.tables import Table, new_table, text_table

from umakit.tools.columns import UNKNOWN, Column, TextTable, known_count

if TYPE_CHECKING:
    from umakit.devices.inferences import Spread
    from umakit.tools.inferences.accelerators import AcceleratorInferences, KeptWeights
    from umakit.tools.inferences.figures import InferenceFigures, SeveralInferences
    from umakit.tools.record import LayerRecord


def print_inferences(several: SeveralInferences) -> None:
    """Print an empty line and the figures of several inferences."""
    say("")
    if not several.first.offloaded:
        say(
            f"{_inferences(several.count)}: no layer is on an accelerator, whose cycles are counted"
        )
        return
    if several.first.accounting is not None:
        print_whole(layer_table(several))
        say_wrapped(sentence(several))
        _print_steady_owners(several)
    if several.accelerators:
        if several.first.accounting is not None:
            say("")
        print_whole(total_table(several))
        for each in several.accelerators:
            for line in notes_on(each, several.count):
                say_wrapped(line)


def layer_table(several: SeveralInferences) -> Table:
    """Return a table of the measured cycles and bytes of each layer."""
    first, steady = several.first, several.steady
    later = {} if steady is None else {each.number: each for each in steady.layers}

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
        layer for layer in first.layers
        if not layer.on_cpu or (layer.cycle_spread and layer.cycle_spread.highest)
    ]  # fmt: skip
    return text_table(_inferences(several.count), TextTable.of(shown, columns, "total"))


def sentence(several: SeveralInferences) -> str:
    """Return a sentence about the measured cycles of all inferences together."""
    count, first, steady = several.count, several.first, several.steady
    text = f"{_inferences(count)}: {known_count(several.clock_cycles)} cycles"
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


def _print_steady_owners(several: SeveralInferences) -> None:
    """Print the owners of cycles of first and later inferences, if they differ."""
    first, steady = several.first.accounting, several.steady
    if first is None or steady is None or steady.accounting is None:
        return
    parts = ([row.parts for row in each.rows] for each in (first, steady.accounting))
    if next(parts) == next(parts):
        return
    for name, accounting in (("first inference", first), ("later ones", steady.accounting)):
        say("")
        say(f"{name}:")
        print_owners(accounting)


def total_table(several: SeveralInferences) -> Table:
    """Return a table of measured and predicted cycles and bytes, with lower bounds."""
    kinds = ("cycles", "bus B")
    names = [f"{part} {kind}" for kind in kinds for part in ("first", "steady", "all")]
    table = new_table(_inferences(several.count), *names, right=tuple(names))
    parts = (several.first, several.steady, several)
    if several.first.accounting is not None:
        table.add_row(
            "simulated", *_figures(parts, "clock_cycles"), *_figures(parts, "moved_bytes")
        )
    predicted = (*_figures(parts, "predicted_cycles"), *_figures(parts, "predicted_bytes"))
    table.add_row("predicted", *predicted)
    if several.steady is not None:
        for each in several.accelerators:
            _add_kept(table, several, each)
    for each in several.accelerators:
        name = f" on {each.accelerator}" if len(several.accelerators) > 1 else ""
        bounds = {"nothing stays": each.nothing_stays, "weights stay": each.weights_stay}
        for title, bound in bounds.items():
            found = [bound.first, bound.steady, bound.all]
            cells = [known_count(one.cycles) for one in found]
            cells += [known_count(one.bytes) for one in found]
            if several.count == 1:
                cells[1] = cells[4] = ""
            table.add_row(f"bound, {title}{name}", *cells)
    return table


def _add_kept(table: Table, several: SeveralInferences, each: AcceleratorInferences) -> None:
    """Add the row of a hypothetical machine that keeps weights; nothing if weights cannot stay."""
    first, weights, count = several.first, each.weights, several.count
    if not weights.could_stay_bytes or len(several.accelerators) > 1:
        return
    cycles, moved = first.predicted_cycles, first.predicted_bytes
    if cycles is None or moved is None or weights.saved_bytes is None:
        return
    later = moved - weights.saved_bytes
    steady = weights.steady_cycles
    table.add_row(
        "if weights stayed",
        known_count(cycles),
        known_count(steady),
        known_count(None if steady is None else cycles + (count - 1) * steady),
        known_count(moved),
        known_count(later),
        known_count(moved + (count - 1) * later),
    )


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


def _inferences(count: int) -> str:
    return "1 inference" if count == 1 else f"{count:,} inferences"


def _figures(parts: Sequence[Any], *names: str) -> list[str]:
    """Return figures of the first inference, of each later one if there is any, and of all."""
    return ["" if each is None else _text(getattr(each, name)) for name in names for each in parts]


def _text(figure: Spread | int | None) -> str:
    return known_count(figure) if figure is None or isinstance(figure, int) else _spread(figure)


def _spread(spread: Spread | None) -> str:
    """Return a figure as text, with minimum and maximum if they differ."""
    if spread is None:
        return ""
    if spread.least is None or spread.highest is None:
        return UNKNOWN
    return f"{spread.least:,}" if spread.equal else f"{spread.least:,} to {spread.highest:,}"
