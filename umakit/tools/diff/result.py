# SPDX-License-Identifier: Apache-2.0
"""What a comparison found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from umakit.partition.report import OperatorPlacement
from umakit.tools.diff.compare import TensorDifference

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class LayerResult:
    """One layer of the library, fed with the reference's values.

    Attributes:
        number: of the layer, in execution order.
        name: of the layer, for example `conv1 + relu1`.
        where: `cpu` or the backend.
        operators: what it computes, in order.
        output: C name of the tensor that was compared; the worst one of several.
        shape: of it; empty when there is nothing to compare with.
        dtype: of it.
        reference: who computed what it was compared with, a name of `REFERENCES`; empty when
            nobody knows what this layer must yield.
        own: difference of this layer's result when its inputs are the reference's.
        in_the_run: difference in a run of the whole library, errors of earlier layers included.
        damaged: memory that it changed and was not to touch, in words.
    """

    number: int
    name: str
    where: str
    operators: tuple[OperatorPlacement, ...]
    output: str
    shape: tuple[int, ...]
    dtype: str
    reference: str
    own: TensorDifference | None
    in_the_run: TensorDifference | None
    damaged: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether nothing is wrong with it, as far as is known."""
        return (self.own is None or self.own.agrees) and not self.damaged


@dataclass(frozen=True)
class Blame:
    """The first layer that is wrong.

    Attributes:
        layer: which.
        operators: of it that are to blame: one, when it is known which of a fused layer.
        shared: whether umakit's CPU kernels are wrong in the same place, so that the error is in
            the import, the quantization or the lowering, and not in the backend.
        also: operators before it that could not be compared with the independent runtime, or
            not at all; the error may be in them too.
        explanation: a sentence that holds for every element; may be empty.
        overlap: tensors to which the memory plan gives the same bytes while this layer runs, in
            words; empty if the plan is right.
        got: what the layer computed.
        wanted: what it had to compute.
        inputs: values that the layer read, by C name.
    """

    layer: LayerResult
    operators: tuple[OperatorPlacement, ...]
    shared: bool
    also: tuple[OperatorPlacement, ...]
    explanation: str
    overlap: str
    got: Array
    wanted: Array
    inputs: dict[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class DiffResult:
    """A comparison of a library with a reference.

    Attributes:
        name: of the model.
        reference: the most independent one that was used, a name of `REFERENCES`.
        tolerance: of floats, relative to the largest value of a tensor.
        inferences: how many were run; the last one is the first that differs, if any does.
        seeds: whether they were random.
        layers: in execution order, of the last inference if it differs, else each layer's worst.
        outputs: differences of the network's outputs by name, in the same way.
        blame: the first wrong layer, None if there is none.
        inputs: of the last inference.
        notices: what the user should know, one sentence each.
        nodes: of the model file, by name of an operator that stands for several.
    """

    name: str
    reference: str
    tolerance: float
    inferences: int
    seeds: bool
    layers: tuple[LayerResult, ...]
    outputs: dict[str, TensorDifference]
    blame: Blame | None
    inputs: dict[str, Array]
    notices: tuple[str, ...]
    nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def spoken(self, operators: Sequence[OperatorPlacement]) -> str:
        """Operators by their nodes in the model file, for example `conv1 + relu1`."""
        names = [n for item in operators for n in self.nodes.get(item.name, (item.name,))]
        return " + ".join(dict.fromkeys(names))

    @property
    def agrees(self) -> bool:
        """Whether all layers and all outputs agree."""
        return self.blame is None and all(item.agrees for item in self.outputs.values())

    def as_json(self) -> dict[str, Any]:
        """The stable keys of `uma diff --json`."""
        return {
            "name": self.name,
            "agrees": self.agrees,
            "reference": self.reference,
            "tolerance": self.tolerance,
            "inferences": self.inferences,
            "random_inputs": self.seeds,
            "first": None if self.blame is None else self._blame_json(self.blame),
            "outputs": {name: _difference_json(item) for name, item in self.outputs.items()},
            "layers": [self._layer_json(layer) for layer in self.layers],
            "notices": list(self.notices),
        }

    def _blame_json(self, blame: Blame) -> dict[str, Any]:
        return {
            "layer": blame.layer.number,
            "operators": [self._operator_json(item) for item in blame.operators],
            "shared_with_cpu_kernels": blame.shared,
            "not_compared_independently": [self._operator_json(item) for item in blame.also],
            "explanation": blame.explanation,
            "memory_overlap": blame.overlap,
        }

    def _operator_json(self, operator: OperatorPlacement) -> dict[str, Any]:
        return {
            "operator": operator.operator,
            "name": operator.name,
            "nodes": list(self.nodes.get(operator.name, (operator.name,))),
            "where": operator.where,
        }

    def _layer_json(self, layer: LayerResult) -> dict[str, Any]:
        return {
            "layer": layer.number,
            "name": layer.name,
            "where": layer.where,
            "operators": [self._operator_json(item) for item in layer.operators],
            "tensor": layer.output,
            "shape": list(layer.shape),
            "dtype": layer.dtype,
            "reference": layer.reference,
            "agrees": layer.agrees,
            "own": _difference_json(layer.own),
            "in_the_run": _difference_json(layer.in_the_run),
            "damaged": list(layer.damaged),
        }


def _difference_json(item: TensorDifference | None) -> dict[str, Any] | None:
    if item is None:
        return None
    return {
        "elements": item.elements,
        "differing": item.differing,
        "largest": _number(item.largest),
        "index": list(item.index),
        "got": _number(item.got),
        "wanted": _number(item.wanted),
        "first": list(item.first),
        "limit": item.limit,
    }


def _number(value: float) -> float | str:
    """JSON has no NaN and no infinity."""
    return value if math.isfinite(value) else str(value)
