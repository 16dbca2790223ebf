# SPDX-License-Identifier: Apache-2.0
"""Results of a comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.files.npz import npz_bytes
from umakit.files.outputs import NPZ_RESULTS
from umakit.files.staging import DifferenceFolder
from umakit.partition.report import OffloadReport, OperatorPlacement
from umakit.testing.differences import TensorDifference
from umakit.text.identities import LayerIdentity
from umakit.tools.columns import view
from umakit.tools.diff.values import Value

Array = npt.NDArray[Any]

STAYS = "its result stays in a scratchpad"
NO_VALUE = "the reference has no value of it"
UNMATCHED = "the model has no operator of its name and type: a pass of a backend changed it"
"""Reasons why a layer is not compared."""


@dataclass(frozen=True)
class LayerResult:
    """The comparison of one layer, whose inputs are the reference's values.

    Attributes:
        output: C name of the compared tensor; the worst one of several.
        shape: shape of the tensor; empty if it cannot be compared.
        reference: origin of the reference value, a name of `REFERENCES`; empty if there is none.
        own: difference of this layer's result with the reference's values as inputs.
        in_the_run: difference in a run of the whole library, including errors of earlier layers.
        value: value of the network in the tensor; None if it cannot be compared.
        damaged: descriptions of memory that the layer must not modify but did.
        not_compared: reason for not comparing the layer; empty if compared.
    """

    number: int
    name: str
    where: str
    operators: tuple[OperatorPlacement, ...]
    output: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    reference: str = ""
    own: TensorDifference | None = None
    in_the_run: TensorDifference | None = None
    value: Value | None = None
    got: Array = field(default_factory=lambda: np.zeros(0, np.uint8), repr=False, compare=False)
    damaged: tuple[str, ...] = ()
    not_compared: str = ""
    identity: LayerIdentity | None = None

    @property
    def agrees(self) -> bool:
        """Whether no error of the layer was found."""
        return (self.own is None or self.own.agrees) and not self.damaged


@dataclass(frozen=True)
class Blame:
    """The first wrong layer.

    Attributes:
        operators: operators of the layer that may have caused the error; a single one if known.
        shared: whether umakit's CPU kernels have the same error. The error is then in the import,
            the quantization or the lowering, and not in the backend.
        also: earlier operators that could not be compared with the independent runtime, or not at
            all; the error may be in them too.
        explanation: a sentence that holds for every element; may be empty.
        overlap: description of tensors that the memory plan places on the same bytes while this
            layer runs; empty if the plan is correct.
        inputs: input values of the layer, by C name.
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
class Disagreement:
    """An operator whose result in a runtime differs from umakit's kernels and NumPy.

    Attributes:
        reference: the runtime, a name of `REFERENCES`.
        difference: difference between the runtime's result and NumPy's correct result.
        both_right: whether the runtime's result is correct too: next to ties, both integers are.
    """

    operator: OperatorPlacement
    reference: str
    difference: TensorDifference
    both_right: bool = False


@dataclass(frozen=True)
class DiffResult:
    """A comparison of a library with a reference.

    Attributes:
        reference: the most independent reference used, a name of `REFERENCES`.
        tolerance: tolerance of floats, relative to the largest value of a tensor.
        integer_tolerance: tolerance of integers in LSB. Above 0, layers alone decide.
        inferences: number of inferences run; only the last one may differ.
        seeds: whether the inputs were random.
        layers: results in execution order; of the last inference if it differs, else the worst of
            each layer.
        outputs: differences of the network's outputs by name, selected in the same way.
        nodes: nodes of the model file, by name of the operator that replaces several nodes.
        disagreements: operators that a runtime computes differently from the model file.
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
    integer_tolerance: int = 0
    disagreements: tuple[Disagreement, ...] = ()

    def spoken(self, operators: Sequence[OperatorPlacement]) -> str:
        """Return the names of operators as text, for example `conv1 + relu1`."""
        return OffloadReport(tuple(operators)).label(range(len(operators)))

    @property
    def differs(self) -> bool:
        """Whether a layer differs, or without an integer tolerance an output."""
        outputs = self.integer_tolerance > 0 or all(o.agrees for o in self.outputs.values())
        return self.blame is not None or not outputs

    @property
    def unmatched(self) -> tuple[LayerResult, ...]:
        """Layers that are no operators of the model, and so were not compared."""
        return tuple(layer for layer in self.layers if layer.not_compared == UNMATCHED)

    @property
    def agrees(self) -> bool:
        """Whether nothing differs, and every layer belongs to the model."""
        return not self.differs and not self.unmatched

    def as_json(self) -> dict[str, Any]:
        return {
            **view(self, "name agrees"),
            "compared": sum(layer.own is not None for layer in self.layers),
            "not_compared": sum(layer.own is None for layer in self.layers),
            **view(self, "reference tolerance integer_tolerance inferences random_inputs:seeds"),
            "first": None if self.blame is None else self._blame_json(self.blame),
            "outputs": {name: _difference_json(item) for name, item in self.outputs.items()},
            "layers": [self._layer_json(layer) for layer in self.layers],
            "wrong_references": [self._disagreement_json(item) for item in self.disagreements],
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

    def _disagreement_json(self, item: Disagreement) -> dict[str, Any]:
        return {
            "operator": self._operator_json(item.operator),
            "reference": item.reference,
            "difference": _difference_json(item.difference),
            "both_right": item.both_right,
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
            **view(layer, "layer:number name where"),
            "operators": [self._operator_json(item) for item in layer.operators],
            **view(layer, "tensor:output shape dtype reference agrees"),
            "own": _difference_json(layer.own),
            "in_the_run": _difference_json(layer.in_the_run),
            **view(layer, "damaged not_compared identity"),
        }


def _difference_json(item: TensorDifference | None) -> dict[str, Any] | None:
    if item is None:
        return None
    return {
        **view(item, "elements differing"),
        "largest": _number(item.largest),
        "index": list(item.index),
        "got": _number(item.got),
        "wanted": _number(item.wanted),
        **view(item, "first limit histogram"),
        "top_1": None
        if item.top_1 is None
        else dict(zip(("rows", "same"), item.top_1, strict=True)),
    }


def _number(value: float) -> float | str:
    """Return a number for JSON, which has neither NaN nor infinity."""
    return value if math.isfinite(value) else str(value)


CONTENTS = {
    "inputs": "inputs of this inference",
    "library": "what the layer computed",
    "reference": "what it had to compute",
    "layer_inputs": "what the layer was fed with",
}
"""Names of the files without the suffix `.npz`, with descriptions."""


class DifferenceFiles(DifferenceFolder):
    """The tensors of the first difference, as files."""

    def check(self) -> None:
        """Check that the files can be written, before anything is compiled."""
        for kind in CONTENTS:
            self.check_path(self._path(kind), NPZ_RESULTS)

    def write(self, result: DiffResult) -> dict[str, str]:
        """Write the files and return their paths by kind."""
        contents: dict[str, dict[str, Any]] = {"inputs": dict(result.inputs)}
        blame = result.blame
        if blame is not None:
            name = blame.operators[-1].name if blame.operators else blame.layer.name
            contents |= {"library": {name: blame.got}, "reference": {name: blame.wanted}}
            if blame.inputs:
                contents["layer_inputs"] = blame.inputs
        paths = {}
        for kind in CONTENTS:
            path, arrays = self._path(kind), contents.get(kind)
            if self.is_given(path):
                paths[kind] = str(path)
            elif arrays is not None:
                named = {name.replace("/", "."): array for name, array in arrays.items()}
                self.write_path(path, npz_bytes(named, NPZ_RESULTS.mark), NPZ_RESULTS)
                paths[kind] = str(path)
            elif path.is_file() and NPZ_RESULTS.wrote(path):
                path.unlink()  # of an earlier comparison
        return paths

    def _path(self, kind: str) -> Path:
        return self.folder / f"{kind}.npz"
