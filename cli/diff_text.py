# SPDX-License-Identifier: Apache-2.0
"""The output of `uma diff`: a table, and the text below the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from umakit.cli.tables import Table, new_table

if TYPE_CHECKING:
    from umakit.partition.report import OperatorPlacement
    from umakit.tools.diff import Blame, DiffResult, LayerResult, TensorDifference

MOST_NAMES = 6
"""Maximum number of layers that a sentence lists by name."""


ON_RTL = "; accelerators ran on their RTL"
"""End of the last sentence if designs replaced simulators."""


def layer_table(result: DiffResult) -> Table:
    """Return a table of all layers, with their own difference and the difference of the whole run.

    A column names the references if they differ between layers.
    """
    numbers = ("wrong elements", "largest difference", "with inherited")
    compared = {"nothing" if layer.own is None else layer.reference for layer in result.layers}
    told = ["compared with"] if len(compared) > 1 else []
    table = new_table("layer", "where", "result", *told, *numbers, right=numbers)
    for layer in result.layers:
        if layer.own is None or layer.in_the_run is None:
            table.add_row(layer.name, layer.where, "", *["nothing" for _ in told])
            continue
        own = layer.own
        style = "" if layer.agrees else "bold red"
        table.add_row(
            layer.name,
            layer.where,
            f"{layer.dtype} {'x'.join(map(str, layer.shape))}".strip(),
            *[layer.reference for _ in told],
            f"{own.differing:,} of {own.elements:,}" if own.differing else "",
            f"{own.largest:.3g}",
            f"{layer.in_the_run.largest:.3g}",
            style=style,
        )
    return table


def histogram_table(result: DiffResult) -> Table:
    """Return a table of the number of integers for each difference in LSB: layers, then outputs.

    Layers compute from the reference's values; outputs come from the whole run.
    """
    from umakit.testing.differences import HISTOGRAM_REACH

    rows = [(layer.name, layer.own) for layer in result.layers]
    rows += [(f"output {name}", item) for name, item in result.outputs.items()]
    counted = [(name, own.histogram) for name, own in rows if own and own.histogram is not None]
    classes = sorted({0}.union(*(histogram for _, histogram in counted)))
    names = [_class_name(each, HISTOGRAM_REACH) for each in classes]
    table = new_table("elements by LSB", *names, right=names)
    for name, histogram in counted:
        counts = [histogram.get(each, 0) for each in classes]
        table.add_row(name, *[f"{count:,}" if count else "" for count in counts])
    return table


def _class_name(difference: int, reach: int) -> str:
    if abs(difference) == reach:
        return f"{difference:+d} {'and more' if difference > 0 else 'and less'}"
    return f"{difference:+d}" if difference else "exact"


def verdict(result: DiffResult, is_rtl: bool = False) -> list[str]:
    """Return lines about the first difference, the outputs, and the comparison.

    Args:
        is_rtl: whether the accelerators' designs ran; the lines then say so.
    """
    lines = [_inferences(result), *_wrong_references(result)]
    if result.blame is not None:
        lines += _blame(result, result.blame, is_rtl)
    for name, item in result.outputs.items():
        lines.append(f"output {name}: {_output(item, in_lsb=result.integer_tolerance > 0)}")
    if result.blame is None:
        lines.append(_no_blame(result) + (ON_RTL if is_rtl and not result.differs else ""))
    return lines


def _inferences(result: DiffResult) -> str:
    from umakit.tools.diff import DISPLAY_NAMES

    count = result.inferences
    seeds = f"seeds 0 to {count - 1}" if count > 1 else "seed 0"
    kind = f"random, {seeds}" if result.seeds else "given"
    inputs = f"{count} inference{'s' if count > 1 else ''} ({kind})"
    integers = f" and {result.integer_tolerance} LSB" if result.integer_tolerance else ""
    return (
        f"compared with {DISPLAY_NAMES[result.reference]}, {inputs}, "
        f"tolerance {result.tolerance:g}{integers}"
    )


def _wrong_references(result: DiffResult) -> list[str]:
    """Return a line for each operator that a runtime computes contrary to the model."""
    from umakit.tools.diff import DISPLAY_NAMES, NUMPY

    numpy, lines = DISPLAY_NAMES[NUMPY], []
    for item in result.disagreements:
        own = item.difference
        place = f" at {list(own.index)}" if own.index else ""
        operator = _operators(result, [item.operator])
        if item.both_right:
            lines.append(
                f"{DISPLAY_NAMES[item.reference]} rounds {operator} otherwise at "
                f"{own.differing:,} of {own.elements:,} places: real numbers are next to ties "
                f"there, and by {numpy} both results are right"
            )
            continue
        lines.append(
            f"{DISPLAY_NAMES[item.reference]} is wrong at {operator}: "
            f"it differs from {numpy} at {own.differing:,} of {own.elements:,} places, most by "
            f"{own.largest:.6g}{place}: {own.got:.9g} instead of {own.wanted:.9g}; {numpy} decides"
        )
    return lines


def _decided_by(result: DiffResult) -> str:
    """Return the operators decided by NumPy, because the reference is wrong."""
    from umakit.tools.diff import DISPLAY_NAMES, NUMPY

    wrong_ones = [item for item in result.disagreements if not item.both_right]
    if not wrong_ones:
        return ""
    places = _operators(result, [item.operator for item in wrong_ones])
    wrong = " and ".join(dict.fromkeys(DISPLAY_NAMES[item.reference] for item in wrong_ones))
    return f": with {DISPLAY_NAMES[NUMPY]} at {places}, where {wrong} is wrong"


def _no_blame(result: DiffResult) -> str:
    count, unmatched = len(result.layers), result.unmatched
    if not result.differs:
        agreed = _within(result) if result.integer_tolerance else ""
        agreed += _decided_by(result)
        unknown = [layer for layer in result.layers if layer.own is None]
        if not unknown:
            return f"all {count} layers agree{agreed}"
        compared = f"{count - len(unknown)} of {count} layers"
        if not unmatched:
            reasons = ", ".join(sorted({layer.not_compared for layer in unknown}))
            return f"{compared} were compared and agree{agreed}; {len(unknown)} were not: {reasons}"
        return (
            f"no difference found, but {len(unknown)} of {count} layers were not compared: "
            f"{_names([layer.name for layer in unmatched])}: {unmatched[0].not_compared}"
        )
    return (
        "no layer is wrong by itself: rounding of the layers adds up, or what cannot be compared "
        "one by one is wrong"
    )


def _within(result: DiffResult) -> str:
    exact = sum(layer.own is not None and layer.own.exact for layer in result.layers)
    return f" within {result.integer_tolerance} LSB, {exact} exactly"


def _blame(result: DiffResult, blame: Blame, is_rtl: bool) -> list[str]:
    layer = blame.layer
    lines = [
        f"first difference: {_operators(result, blame.operators) or layer.name} on {layer.where} "
        f"(layer {layer.number} of {len(result.layers)}, inference {result.inferences - 1})"
    ]
    if layer.own is not None and not layer.own.agrees:
        lines += _size(layer, layer.own)
    if blame.explanation:
        lines.append(f"  looks like    {blame.explanation}")
    if blame.overlap:
        lines.append(f"  memory plan   {blame.overlap}")
    lines.append(f"  before it     {_before(result, result.layers[: layer.number])}")
    lines.append(f"  so            {_where_to_look(result, blame, is_rtl)}")
    if blame.also:
        lines.append(
            f"  not excluded  {_operators(result, blame.also)}: not known to {result.reference}"
        )
    others = [other.name for other in result.layers[layer.number + 1 :] if not other.agrees]
    if others:
        lines.append(f"  wrong too     {_names(others)}")
    return lines


def _size(layer: LayerResult, own: TensorDifference) -> list[str]:
    limit = f" by more than {own.limit:.3g}" if own.limit else ""
    place = f" at {list(own.index)}" if own.index else ""
    first = f", first at {list(own.first)}" if own.first else ""
    return [
        f"  result        {layer.dtype}{list(layer.shape)}, {own.differing:,} of {own.elements:,} "
        f"elements differ{limit}{first}",
        f"  largest       {own.largest:.6g}{place}: {own.got:.9g} instead of {own.wanted:.9g}",
    ]


def _before(result: DiffResult, layers: Sequence[LayerResult]) -> str:
    compared = [layer.name for layer in layers if layer.own is not None]
    if not compared:
        return "nothing: it is the first layer that can be compared"
    return f"{len(compared)} of {len(layers)} layers agree: {_names(compared)}"


def _where_to_look(result: DiffResult, blame: Blame, is_rtl: bool) -> str:
    from umakit.tools.diff import DISPLAY_NAMES

    if blame.overlap:
        return "look at the memory planner: this layer's memory is not its own"
    if blame.shared:
        return (
            f"umakit's CPU kernels differ from {DISPLAY_NAMES[blame.layer.reference]} here too: "
            "look at import, quantization or lowering of this operator"
        )
    if blame.layer.where == "cpu":
        return "the operators one by one are right: look at fusion, scheduling or memory"
    parts = "its RTL, its driver and its lowering" if is_rtl else "its driver and its lowering"
    return f"the CPU is right here: look at {blame.layer.where}, {parts}"


def _output(item: TensorDifference, in_lsb: bool) -> str:
    if in_lsb and not item.exact:
        return f"off by {item.largest:.6g} at most{_top_1(item)}"
    if item.agrees:
        return f"agrees, largest difference {item.largest:.3g}"
    place = f" at {list(item.index)}" if item.index else ""
    return (
        f"differs at {item.differing:,} of {item.elements:,} places, most by {item.largest:.6g}"
        f"{place}: {item.got:.9g} instead of {item.wanted:.9g}"
    )


def _top_1(item: TensorDifference) -> str:
    """Return the effect of differences on the largest element of each row (top-1 class)."""
    if item.top_1 is None:
        return ""
    rows, same = item.top_1
    return f"; the largest element is the same in {same:,} of {rows:,} rows"


def _operators(result: DiffResult, operators: Sequence[OperatorPlacement]) -> str:
    return " + ".join(f"{item.operator} {result.spoken([item])!r}" for item in operators)


def _names(names: Sequence[str]) -> str:
    if len(names) <= MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:2])}, ... {', '.join(names[-2:])}"
