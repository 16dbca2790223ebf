# SPDX-License-Identifier: Apache-2.0
"""Independent references that compute tensors of a model under the model's own names."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from umakit.errors import InputError
from umakit.frontend.onnx.files import name_nodes
from umakit.frontend.relax_files import is_json
from umakit.partition.report import OperatorPlacement
from umakit.tools.diff.decider import Decider
from umakit.tools.diff.process import RuntimeProcess, RuntimeStopped
from umakit.tools.diff.values import EveryValue, Value

Array = npt.NDArray[Any]

AUTOMATIC, CPU_KERNELS, NUMPY = "auto", "cpu", "numpy"
ONNX_RUNTIME, TFLITE_MICRO = "onnxruntime", "tflite-micro"
REFERENCES = (AUTOMATIC, CPU_KERNELS, NUMPY, ONNX_RUNTIME, TFLITE_MICRO)
PACKAGES = {ONNX_RUNTIME: "onnxruntime", TFLITE_MICRO: "tflite_micro"}
INSTALLED_BY = {
    ONNX_RUNTIME: "pip install onnxruntime",
    TFLITE_MICRO: "pip install 'umakit[tflite]' on x86-64",
}
DISPLAY_NAMES = {
    CPU_KERNELS: "umakit's CPU kernels",
    NUMPY: "NumPy",
    ONNX_RUNTIME: "ONNX Runtime",
    TFLITE_MICRO: "TensorFlow Lite Micro",
}

FOLDING_OPERATORS = ("Add", "Conv", "Gemm", "MatMul")
"""ONNX operators into which a following batch normalization may be folded."""

ARENA_SLACK = 4 * 1024 * 1024
"""Bytes of TensorFlow Lite Micro's arena in addition to the tensors of a model."""


@dataclass(frozen=True)
class ReferenceRun:
    """The values that a runtime computed.

    Attributes:
        values: values of the network with the same name, shape and dtype in the runtime.
    """

    values: dict[Value, Array]
    outputs: dict[str, Array]


@dataclass(frozen=True)
class ModelFile:
    """A model file for references.

    Attributes:
        tensors: the file's tensor of each value of the imported network.
        inputs: the file's tensor of each input of the network, by name.
    """

    decider: Decider
    tensors: Mapping[Value, Any]
    inputs: Mapping[str, Any]

    def known(self, values: Mapping[Value, Array], inputs: Mapping[str, Array]) -> dict[Any, Array]:
        """Return values and inputs by the file's tensors."""
        known = {self.tensors[v]: array for v, array in values.items() if v in self.tensors}
        return known | {self.inputs[n]: array for n, array in inputs.items() if n in self.inputs}


@dataclass(frozen=True)
class Selection:
    """The references of a comparison besides umakit's CPU kernels.

    Attributes:
        runtime: an independent runtime; None if there is none.
        file: the model file for NumPy; None if NumPy takes no part.
    """

    runtime: _OnnxRuntime | _TfliteMicro | None = None
    file: ModelFile | None = None
    is_demanded: bool = False

    @property
    def name(self) -> str:
        """The most independent reference, a name of `REFERENCES`."""
        if self.runtime is not None:
            return self.runtime.name
        return CPU_KERNELS if self.file is None else NUMPY

    def close(self) -> None:
        if self.runtime is not None:
            self.runtime.close()


def select_references(
    wanted: str, source: Any, every: EveryValue, notice: list[str], *, own_states: bool = False
) -> Selection:
    """Return the references besides umakit's CPU kernels; a notice says why the runtime is none."""
    if wanted not in REFERENCES:
        raise InputError(
            f"there is no reference {wanted!r}", fix=f"choose from {', '.join(REFERENCES)}"
        )
    if wanted == CPU_KERNELS:
        return Selection()
    matching = runtime_for(source)
    known = (AUTOMATIC, matching, NUMPY if matching else "")
    if wanted not in known:
        raise InputError(f"{DISPLAY_NAMES[wanted]} does not read this model", where=str(source))
    if not matching:
        return Selection()
    of_format = _OnnxRuntime if matching == ONNX_RUNTIME else _TfliteMicro
    read = of_format(Path(source), every)
    if wanted == NUMPY:
        return Selection(file=read.for_numpy())
    # Runtimes have the names of their packages.
    problem = f"the package {PACKAGES[matching]} is not installed ({INSTALLED_BY[matching]})"
    if matching == TFLITE_MICRO and own_states:
        problem = "it keeps the model's states itself, and takes none from the inputs"
    elif importlib.util.find_spec(PACKAGES[matching]) is not None:
        try:
            return Selection(read.start(), read.for_numpy(), wanted != AUTOMATIC)
        except RuntimeStopped as stop:
            problem = str(stop)
    if wanted != AUTOMATIC:
        raise cannot_be_reference(matching, problem, str(source))
    notice.append(f"{DISPLAY_NAMES[matching]} is not the reference: {problem}")
    return Selection(file=read.for_numpy())


def cannot_be_reference(name: str, problem: str, where: str = "") -> InputError:
    """Return the error of a requested runtime without a result."""
    return InputError(
        f"{DISPLAY_NAMES[name]} cannot be the reference: {problem}",
        where=where,
        fix=f"--reference {AUTOMATIC} compares with what is left",
    )


def runtime_for(source: Any) -> str:
    """Return the name of the runtime of a format.

    Empty for objects, PyTorch programs and files of Relax modules.
    """
    if not isinstance(source, (str, Path)) or zipfile.is_zipfile(source) or is_json(Path(source)):
        return ""
    with Path(source).open("rb") as stream:
        return TFLITE_MICRO if stream.read(8)[4:] == b"TFL3" else ONNX_RUNTIME


def nodes_of(source: Any, operators: Sequence[OperatorPlacement]) -> dict[str, tuple[str, ...]]:
    """Return the nodes of a model file by name of the operator that replaces several nodes."""
    islands = island_nodes(Path(source)) if runtime_for(source) == ONNX_RUNTIME else {}
    found: dict[str, tuple[str, ...]] = {}
    for operator in operators:
        if operator.yields in islands:
            nodes = (*found.get(operator.name, ()), *islands[operator.yields])
            found[operator.name] = tuple(dict.fromkeys(nodes))
    return found


def _last_rows(operators: Sequence[OperatorPlacement]) -> dict[str, int]:
    return {operator.yields: row for row, operator in enumerate(operators)}


def _fitting(every: EveryValue, arrays: Mapping[Value, Array]) -> dict[Value, Array]:
    types = {item.name: (item.shape, item.dtype) for item in every.model.outputs}
    return {
        value: array
        for value, array in arrays.items()
        if types[every.names[value]] == (array.shape, str(array.dtype))
    }


class _Runtime:
    """An independent runtime that reads a model file.

    `start` loads the model, `run` runs one inference; both raise RuntimeStopped without a result.
    """

    _process: RuntimeProcess

    def close(self) -> None:
        self._process.close()


class _OnnxRuntime(_Runtime):
    """ONNX Runtime with all intermediate values as additional outputs."""

    name = ONNX_RUNTIME

    def __init__(self, path: Path, every: EveryValue) -> None:
        self._proto = onnx.load(str(path))
        name_nodes(self._proto)
        self._every, self._names = every, _onnx_names(self._proto, every)
        self._outputs = [value.name for value in self._proto.graph.output]

    def for_numpy(self) -> ModelFile:
        from umakit.tools.diff.decider import OnnxDecider

        inputs = {item.name: item.name for item in self._proto.graph.input}
        return ModelFile(OnnxDecider(self._proto), self._names, inputs)

    def start(self) -> _OnnxRuntime:
        proto = onnx.ModelProto()
        proto.CopyFrom(self._proto)
        for name in dict.fromkeys(self._names.values()):
            if name not in self._outputs:
                proto.graph.output.append(onnx.ValueInfoProto(name=name))
        self._process = RuntimeProcess(self.name, proto.SerializeToString())
        return self

    def run(self, inputs: Mapping[str, Array]) -> ReferenceRun:
        wanted = list(dict.fromkeys([*self._outputs, *self._names.values()]))
        results = dict(zip(wanted, self._process.call("run", wanted, dict(inputs)), strict=True))
        values = {value: results[name] for value, name in self._names.items()}
        outputs = {name: results[name] for name in self._outputs}
        return ReferenceRun(_fitting(self._every, values), outputs)


def _onnx_names(proto: onnx.ModelProto, every: EveryValue) -> dict[Value, str]:
    """Return the tensor names of an ONNX graph by value of the imported network.

    Operators with folded batch normalization compute other values after import.
    """
    producers = {name: node for node in proto.graph.node for name in node.output}
    folded: set[str] = set()
    for node in proto.graph.node:
        producer = None
        if node.op_type == "BatchNormalization":
            producer = producers.get(node.input[0])
        while producer is not None and producer.op_type in FOLDING_OPERATORS:
            folded.add(producer.name)
            inner = producer.input if producer.op_type == "Add" else ()
            producer = next((producers[name] for name in inner if name in producers), None)
    rows = _last_rows(every.operators)
    names = {}
    for node in proto.graph.node:
        if node.name in rows and node.name not in folded:
            for number, output in enumerate(node.output):
                value = (rows[node.name], number)
                if output and value in every.names:
                    names[value] = output
    return names


class _TfliteMicro(_Runtime):
    """TensorFlow Lite Micro that keeps all tensors.

    The runtime has no states as inputs: the inferences that led to an inference's states are
    computed again.
    """

    name = TFLITE_MICRO

    def __init__(self, path: Path, every: EveryValue) -> None:
        from umakit.frontend.tflite.files import short_names
        from umakit.frontend.tflite.graph import read_graph

        self._content, self._every = path.read_bytes(), every
        graph = self._graph = read_graph(self._content, str(path))
        rows = _last_rows(every.operators)
        names = short_names(graph).items()
        self._numbers = {(rows[name], 0): number for number, name in names if name in rows}

    def for_numpy(self) -> ModelFile:
        from umakit.tools.diff.numpy_tflite import TfliteDecider

        graph = self._graph
        inputs = {graph.tensors[number].name: number for number in (*graph.inputs, *graph.states)}
        return ModelFile(TfliteDecider(graph), self._numbers, inputs)

    def start(self) -> _TfliteMicro:
        graph, every = self._graph, self._every
        self._inputs = [graph.tensors[number].name for number in graph.inputs]
        self._outputs = [graph.tensors[number].name for number in graph.outputs]
        next_states = {item.name: item.next_state for item in every.states}
        self._states = {graph.tensors[n].name: n for n in graph.states}
        self._next = {next_states[name]: n for name, n in self._states.items()}
        self._earlier: list[dict[str, Array]] = []
        self._tensors = {v: n for v, n in self._numbers.items() if v in every.names}
        size = sum(
            int(np.prod(tensor.shape)) * np.dtype(tensor.dtype).itemsize
            for tensor in graph.tensors
            if not tensor.constant and not tensor.dtype.startswith("type")
        )
        self._process = RuntimeProcess(self.name, self._content, 2 * size + ARENA_SLACK)
        return self

    def run(self, inputs: Mapping[str, Array]) -> ReferenceRun:
        if self._states:
            self._lead_to({name: inputs[name] for name in self._states})
        self._invoke(inputs)
        if self._states:
            self._earlier.append(dict(inputs))
        values = dict(zip(self._tensors, self._read(self._tensors.values()), strict=True))
        results = self._process.call("outputs", len(self._outputs))
        outputs = dict(zip(self._outputs, results, strict=True))
        outputs |= dict(zip(self._next, self._read(self._next.values()), strict=True))
        return ReferenceRun(_fitting(self._every, values), outputs)

    def _invoke(self, inputs: Mapping[str, Array]) -> None:
        self._process.call("run", [inputs[name] for name in self._inputs])

    def _read(self, numbers: Iterable[int]) -> list[Array]:
        return list(self._process.call("tensors", list(numbers)))

    def _lead_to(self, states: Mapping[str, Array]) -> None:
        """Repeat inferences until the states are the given ones; raise RuntimeStopped if none
        are."""
        for count in range(len(self._earlier), -1, -1):
            if self._has(states):
                return
            self._process.call("reset")
            del self._earlier[count:]
            for inputs in self._earlier:
                self._invoke(inputs)
        if not self._has(states):
            raise RuntimeStopped("it keeps the model's states itself, and has not these")

    def _has(self, states: Mapping[str, Array]) -> bool:
        current = self._read([self._states[name] for name in states])
        return all(map(np.array_equal, current, states.values()))


BETWEEN = ("QuantizeLinear", "DequantizeLinear")


def island_nodes(path: Path) -> dict[str, tuple[str, ...]]:
    """Return the names of the nodes from dequantize to quantize, by name of the final quantize.

    The integer operator that replaces these nodes yields the result of the quantize node.
    """
    graph = onnx.load(str(path), load_external_data=False)
    name_nodes(graph)
    nodes = list(graph.graph.node)
    producers = {name: number for number, node in enumerate(nodes) for name in node.output}
    found = {}
    for number, node in enumerate(nodes):
        if node.op_type == "QuantizeLinear":
            inside = sorted(_before(nodes, producers, number))
            if inside:
                found[node.name] = (*(nodes[n].name for n in inside), node.name)
    return found


def _before(nodes: list[Any], producers: dict[str, int], number: int) -> set[int]:
    found: set[int] = set()
    open_nodes = [number]
    while open_nodes:
        for name in nodes[open_nodes.pop()].input:
            source = producers.get(name)
            if source is not None and source not in found and nodes[source].op_type not in BETWEEN:
                found.add(source)
                open_nodes.append(source)
    return found
