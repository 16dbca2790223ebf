# SPDX-License-Identifier: Apache-2.0
"""Determination of the layer and operator that caused the first difference."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.partition.report import OperatorPlacement
from umakit.testing.differences import Tolerance
from umakit.tools.diff.explain import explain
from umakit.tools.diff.references import CPU_KERNELS
from umakit.tools.diff.result import Blame, LayerResult
from umakit.tools.diff.session import Comparison, LibraryUnderTest, TensorComparison
from umakit.tools.diff.truth import Reference

Array = npt.NDArray[Any]


def layer_results(
    tested: LibraryUnderTest, truth: Reference, comparison: Comparison
) -> tuple[LayerResult, ...]:
    """Return the results of all layers, in execution order."""
    return tuple(
        _layer_result(tested, truth, comparison, number) for number in range(len(tested.layers))
    )


def _layer_result(
    tested: LibraryUnderTest, truth: Reference, comparison: Comparison, number: int
) -> LayerResult:
    layer = tested.layers[number]
    tensors = [tensor for tensor in comparison.tensors if tensor.layer == number]
    worst = max(tensors, key=lambda tensor: tensor.own.differing, default=None)
    reference = ""
    if worst is not None:
        reference = comparison.reference.origins.get(worst.value, CPU_KERNELS)
    return LayerResult(
        number=number,
        name=layer["name"],
        where=layer["where"],
        operators=tuple(tested.operators[row] for row in layer["operators"]),
        output=worst.c_name if worst else "",
        shape=worst.got.shape if worst else (),
        dtype=str(worst.got.dtype) if worst else "",
        reference=reference,
        own=worst.own if worst else None,
        in_the_run=worst.in_the_run if worst else None,
        damaged=comparison.damaged.get(number, ()),
        not_compared="" if worst else tested.why_not_compared(number),
        identity=tested.identities[number],
    )


def find_blame(
    tested: LibraryUnderTest,
    truth: Reference,
    comparison: Comparison,
    inputs: Mapping[str, Array],
    tolerance: Tolerance,
) -> Blame | None:
    """Return the first layer that is wrong with correct inputs; None if there is none."""
    for number in range(len(tested.layers)):
        layer = _layer_result(tested, truth, comparison, number)
        if layer.agrees:
            continue
        tensor = next(
            (t for t in comparison.tensors if (t.layer, t.c_name) == (number, layer.output)), None
        )
        if tensor is None or tensor.own.agrees:
            return _damage(tested, layer, tensor, comparison)
        return _wrong(tested, truth, comparison, layer, tensor, inputs, tolerance)
    return None


def _damage(
    tested: LibraryUnderTest,
    layer: LayerResult,
    tensor: TensorComparison | None,
    comparison: Comparison,
) -> Blame:
    """Return the blame of a layer whose result is correct but that damaged other memory."""
    got = tensor.got if tensor else np.zeros(0, np.uint8)
    wanted = comparison.reference.values[tensor.value] if tensor else got
    overlap = overlapping(tested.pools, layer.number)
    return Blame(layer, layer.operators, False, (), _damage_text(layer), overlap, got, wanted)


def _damage_text(layer: LayerResult) -> str:
    return f"it changed what is not its own: {', '.join(layer.damaged)}" if layer.damaged else ""


def _wrong(
    tested: LibraryUnderTest,
    truth: Reference,
    comparison: Comparison,
    layer: LayerResult,
    tensor: TensorComparison,
    inputs: Mapping[str, Array],
    tolerance: Tolerance,
) -> Blame:
    wanted = comparison.reference.values[tensor.value]
    explanation = explain(tensor.got, wanted, tolerance)
    sentences = [text for text in (explanation, _damage_text(layer)) if text]
    rows = set(tested.layers[layer.number]["operators"])
    row = _first_shared(truth, comparison, rows, tensor)
    before = _unknown_layers(tested, layer.number)
    also: tuple[OperatorPlacement, ...] = before
    if row is not None:
        unknown = _unknown_rows(truth, comparison, row)
        also = (*before, *(truth.every.operators[number] for number in unknown))
    return Blame(
        layer=layer,
        operators=layer.operators if row is None else (truth.every.operators[row],),
        shared=row is not None,
        also=also,
        explanation="; ".join(sentences),
        overlap=overlapping(tested.pools, layer.number),
        got=tensor.got,
        wanted=wanted,
        inputs=_inputs(tested, comparison, layer.number, inputs),
    )


def overlapping(pools: Sequence[Mapping[str, Any]], layer: int) -> str:
    """Describe two tensors that the memory plan places on the same bytes while a layer runs.

    Args:
        pools: `pools` of the library's metadata.
        layer: number of the layer.
    """
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


def _first_shared(
    truth: Reference, comparison: Comparison, rows: set[int], tensor: TensorComparison
) -> int | None:
    """Return the first operator of a layer that umakit's CPU kernels compute wrong too."""
    wrong = {v[0] for v, item in comparison.reference.shared.items() if not item.agrees}
    inside = _rows_inside(truth, rows, tensor)
    return min(wrong & inside, default=None)


def _rows_inside(truth: Reference, rows: set[int], tensor: TensorComparison) -> set[int]:
    """Return the rows of the reference's report that a layer computes."""
    last = max(rows, default=tensor.value[0])
    if last == tensor.value[0]:
        return rows | {tensor.value[0]}
    return {tensor.value[0]}  # the backend's passes changed the network: only its end is known


def _unknown_rows(truth: Reference, comparison: Comparison, row: int) -> list[int]:
    """Return the operators before a row without values of the independent runtime."""
    independent = {value[0] for value in comparison.reference.origins}
    found: set[int] = set()
    open_rows = [row]
    while open_rows:
        for source in truth.every.reads.get(open_rows.pop(), frozenset()):
            if source not in independent and source not in found:
                found.add(source)
                open_rows.append(source)
    return sorted(found)


def _unknown_layers(tested: LibraryUnderTest, number: int) -> tuple[OperatorPlacement, ...]:
    """Return the operators of earlier layers whose results cannot be compared at all."""
    writer = {name: n for n, layer in enumerate(tested.layers) for name in layer["outputs"]}
    # What stays in a scratchpad is nobody's input; any layer before may have used it.
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


def _inputs(
    tested: LibraryUnderTest, comparison: Comparison, number: int, inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """Return the known inputs of a layer."""
    arrays: dict[str, Array] = {}
    for name in tested.layers[number]["inputs"]:
        if name in tested.values:
            arrays[name] = comparison.reference.fed[tested.values[name]]
        elif name in inputs:
            arrays[name] = inputs[name]
    return arrays
