# SPDX-License-Identifier: Apache-2.0
"""Determination of the layer and operator that caused the first difference."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.partition.report import OperatorPlacement
from umakit.testing.differences import Tolerance, distances
from umakit.tools.diff.result import Blame, LayerResult
from umakit.tools.diff.session import Comparison, LibraryUnderTest
from umakit.tools.diff.values import EveryValue

Array = npt.NDArray[Any]


def find_blame(tested: LibraryUnderTest, comparison: Comparison) -> Blame | None:
    """Return the first layer that is wrong with correct inputs; None if there is none."""
    wrong = next((layer for layer in comparison.layers if not layer.agrees), None)
    if wrong is None:
        return None
    if wrong.own is None or wrong.own.agrees:
        return _damage(tested, wrong, comparison)
    return _wrong(tested, wrong, comparison)


def _damage(tested: LibraryUnderTest, layer: LayerResult, comparison: Comparison) -> Blame:
    wanted = layer.got if layer.value is None else comparison.reference.values[layer.value]
    overlap = overlapping(tested.pools, layer.number)
    return Blame(layer, layer.operators, False, (), _damage_text(layer), overlap, layer.got, wanted)


def _damage_text(layer: LayerResult) -> str:
    return f"it changed what is not its own: {', '.join(layer.damaged)}" if layer.damaged else ""


def _wrong(tested: LibraryUnderTest, layer: LayerResult, comparison: Comparison) -> Blame:
    assert layer.value is not None
    every, wanted = tested.reference.every, comparison.reference.values[layer.value]
    explanation = explain(layer.got, wanted, tested.tolerance)
    sentences = [text for text in (explanation, _damage_text(layer)) if text]
    row = _first_shared(comparison, set(tested.layers[layer.number]["operators"]), layer.value[0])
    also = _unknown_layers(tested, layer.number)
    if row is not None:
        also += tuple(every.operators[number] for number in _unknown_rows(every, comparison, row))
    return Blame(
        layer=layer,
        operators=layer.operators if row is None else (every.operators[row],),
        shared=row is not None,
        also=also,
        explanation="; ".join(sentences),
        overlap=overlapping(tested.pools, layer.number),
        got=layer.got,
        wanted=wanted,
        inputs=_inputs(tested, comparison, layer.number),
    )


def overlapping(pools: Sequence[Mapping[str, Any]], layer: int) -> str:
    """Describe two tensors that the memory plan places on the same bytes while a layer runs."""
    for pool in pools:
        alive = [t for t in pool["tensors"] if t["first_layer"] <= layer <= t["last_layer"]]
        for one, other in itertools.combinations(alive, 2):
            start = max(one["offset_bytes"], other["offset_bytes"])
            end = min(t["offset_bytes"] + t["size_bytes"] for t in (one, other))
            shared = {one["takes_over"], other["takes_over"]} & {one["c_name"], other["c_name"]}
            if start < end and not shared:
                return (
                    f"bytes {start} to {end - 1} of pool {pool['name']} belong to "
                    f"{one['name']} and to {other['name']}"
                )
    return ""


def _first_shared(comparison: Comparison, rows: set[int], last: int) -> int | None:
    """Return the first operator of a layer up to row `last` that umakit's CPU kernels compute wrong
    too."""
    wrong = {v[0] for v, item in comparison.reference.shared.items() if not item.agrees}
    # If backend passes changed the network, only the layer's end is known.
    inside = rows | {last} if max(rows, default=last) == last else {last}
    return min(wrong & inside, default=None)


def _unknown_rows(every: EveryValue, comparison: Comparison, row: int) -> list[int]:
    independent = {value[0] for value in comparison.reference.origins}
    found: set[int] = set()
    open_rows = [row]
    while open_rows:
        for source in every.reads.get(open_rows.pop(), frozenset()):
            if source not in independent and source not in found:
                found.add(source)
                open_rows.append(source)
    return sorted(found)


def _unknown_layers(tested: LibraryUnderTest, number: int) -> tuple[OperatorPlacement, ...]:
    """Return the operators of earlier layers whose results cannot be compared at all."""
    writer = {name: n for n, layer in enumerate(tested.layers) for name in layer["outputs"]}
    # A result in a scratchpad is no layer's input; any earlier layer may have used it.
    found = {n for n in range(number) if not tested.layers[n]["outputs"]}
    open_layers = [number]
    while open_layers:
        for name in tested.layers[open_layers.pop()]["inputs"]:
            source = writer.get(name)
            if source is not None and name not in tested.values and source not in found:
                found.add(source)
                open_layers.append(source)
    rows = sorted({row for source in found for row in tested.layers[source]["operators"]})
    own = set(tested.layers[number]["operators"])
    return tuple(tested.operators[row] for row in rows if row not in own)


def _inputs(tested: LibraryUnderTest, comparison: Comparison, number: int) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for name in tested.layers[number]["inputs"]:
        if name in tested.values:
            arrays[name] = comparison.reference.fed[tested.values[name]]
        elif name in comparison.inputs:
            arrays[name] = comparison.inputs[name]
    return arrays


# Simple explanations of wrong tensors: another layout, an offset, a factor, a shift.
#
# Each explanation is checked for every element, so an explanation is a fact, not a guess.

MOST_AXES = 5
"""Maximum number of axes for trying permutations."""

FEW_OF = 4
"""Reciprocal of the largest fraction of an axis's indices that counts as few."""


def explain(got: Array, wanted: Array, tolerance: Tolerance) -> str:
    """Return a sentence about `got` that holds for all its elements, or an empty string."""
    limit = tolerance.limit(wanted)

    def equal(one: Array, other: Array) -> bool:
        return one.shape == other.shape and bool((distances(one, other) <= limit).all())

    if got.size < 2 or (got == got.flat[0]).all():
        value = got.flat[0] if got.size else 0
        return f"every element is {value}" if got.size > 1 else ""
    if np.issubdtype(got.dtype, np.floating) and not (
        np.isfinite(got).all() and np.isfinite(wanted).all()
    ):
        return _not_finite(got, wanted)
    if equal(np.full_like(wanted, wanted.flat[0]), wanted):
        return ""  # a constant equals itself in any layout
    hypotheses = (_layouts, _flips, _constants, _clips, _shifts, _places, _steps)
    for hypothesis in hypotheses:
        for sentence in hypothesis(got, wanted, equal):
            return sentence
    return ""


Equal = Callable[[Array, Array], bool]


def _not_finite(got: Array, wanted: Array) -> str:
    new = int((~np.isfinite(got) & np.isfinite(wanted)).sum())
    return f"{new} elements are NaN or infinite that should not be" if new else ""


def _layouts(got: Array, wanted: Array, equal: Equal) -> Iterator[str]:
    axes = [axis for axis, extent in enumerate(wanted.shape) if extent > 1]
    if not 2 <= len(axes) <= MOST_AXES:
        return
    for permuted in itertools.permutations(axes):
        order = list(range(wanted.ndim))
        for axis, source in zip(axes, permuted, strict=True):
            order[axis] = source
        if list(permuted) == axes:
            continue
        if equal(got.reshape(-1), wanted.transpose(order).reshape(-1)):
            if wanted.ndim == 4 and order[1:] == [2, 3, 1]:
                yield "equal after transposing axes (0, 2, 3, 1): it is stored channels last"
            yield f"equal after transposing axes {tuple(order)}: it is stored in that order"


def _flips(got: Array, wanted: Array, equal: Equal) -> Iterator[str]:
    axes = [axis for axis, extent in enumerate(wanted.shape) if extent > 1]
    for count in range(1, min(len(axes), MOST_AXES) + 1):
        for chosen in itertools.combinations(axes, count):
            if equal(got, np.flip(wanted, chosen)):
                yield f"equal after flipping {_axes(chosen)}"


def _constants(got: Array, wanted: Array, equal: Equal) -> Iterator[str]:
    one, other = got.astype(np.float64), wanted.astype(np.float64)
    offset = _plain(float(np.median(one - other)))
    if equal(one, other + offset):
        yield f"equal after adding {offset:g} to the reference"
    power = float((other * other).sum())
    factor = _plain(float((one * other).sum()) / power) if power else 0.0
    if factor and equal(one / factor, other):
        yield f"equal after multiplying the reference by {factor:g}"


def _plain(number: float) -> float:
    rounded = float(f"{number:.4g}")
    return rounded if abs(number - rounded) <= 1e-5 * abs(number) else number


def _clips(got: Array, wanted: Array, equal: Equal) -> Iterator[str]:
    """Explain a tensor that equals the other one clipped: saturation, or a wrong activation."""
    if got.dtype == np.bool_:
        return
    for this, that, name in ((got, wanted, "reference"), (wanted, got, "library's result")):
        low, high = this.min(), this.max()
        if equal(this, np.clip(that, low, high)) and not equal(this, that):
            bounds = []
            if that.min() < low:
                bounds.append(f"from below at {low:g}")
            if that.max() > high:
                bounds.append(f"from above at {high:g}")
            yield f"equal after clipping the {name} {' and '.join(bounds)}"


def _shifts(got: Array, wanted: Array, equal: Equal) -> Iterator[str]:
    """Explain a tensor that is shifted by one along an axis, except at the edge."""
    for axis, extent in enumerate(wanted.shape):
        if extent < 3:
            continue
        later, earlier = _without(axis, slice(1, None)), _without(axis, slice(None, -1))
        if equal(got[later], wanted[earlier]):
            yield f"equal after shifting the reference by +1 along axis {axis}"
        if equal(got[earlier], wanted[later]):
            yield f"equal after shifting the reference by -1 along axis {axis}"


def _places(got: Array, wanted: Array, equal: Equal) -> Iterator[str]:
    """Explain a tensor that differs only at a few indices of an axis, such as a channel."""
    for axis, extent in enumerate(wanted.shape):
        if extent < FEW_OF:
            continue
        wrong = [
            index
            for index in range(extent)
            if not equal(got.take([index], axis), wanted.take([index], axis))
        ]
        if 0 < len(wrong) <= extent // FEW_OF:
            word = "index" if len(wrong) == 1 else "indices"
            yield f"wrong only at {word} {', '.join(map(str, wrong))} of axis {axis}"


def _steps(got: Array, wanted: Array, equal: Equal) -> Iterator[str]:
    if np.issubdtype(wanted.dtype, np.integer) and distances(got, wanted).max() == 1.0:
        up, down = int((got > wanted).sum()), int((got < wanted).sum())
        yield f"never off by more than one: rounding ({up} one too large, {down} one too small)"


def _without(axis: int, part: slice) -> tuple[slice, ...]:
    return (*[slice(None)] * axis, part)


def _axes(axes: tuple[int, ...]) -> str:
    return f"axis {axes[0]}" if len(axes) == 1 else f"axes {axes}"
