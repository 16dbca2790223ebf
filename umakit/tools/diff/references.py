# SPDX-License-Identifier: Apache-2.0
"""Independent runtimes that compute all tensors of a model under the model's own names."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnx

from umakit.errors import InputError
from umakit.frontend.onnx.files import name_nodes
from umakit.partition.report import OperatorPlacement
from umakit.tools.diff.nodes import island_nodes
from umakit.tools.diff.values import EveryValue, Value

Array = npt.NDArray[Any]

AUTOMATIC, CPU_KERNELS = "auto", "cpu"
ONNX_RUNTIME, TFLITE_MICRO = "onnxruntime", "tflite-micro"
REFERENCES = (AUTOMATIC, CPU_KERNELS, ONNX_RUNTIME, TFLITE_MICRO)
PACKAGES = {ONNX_RUNTIME: "onnxruntime", TFLITE_MICRO: "tflite_micro"}
DISPLAY_NAMES = {
    CPU_KERNELS: "umakit's CPU kernels",
    ONNX_RUNTIME: "ONNX Runtime",
    TFLITE_MICRO: "TensorFlow Lite Micro",
}
"""Names of the references in messages."""

FOLDING_OPERATORS = ("Add", "Conv", "Gemm", "MatMul")
"""ONNX operators into which a following batch normalization may be folded."""

ARENA_SLACK = 4 * 1024 * 1024
"""Bytes of TensorFlow Lite Micro's arena in addition to the tensors of a model."""


@dataclass(frozen=True)
class ReferenceRun:
    """The values that a runtime computed.

    Attributes:
        values: values of the network that it has under the same name, shape and dtype.
        outputs: outputs of the network, by name.
    """

    values: dict[Value, Array]
    outputs: dict[str, Array]


class Runtime(Protocol):
    """An independent runtime with a model loaded; `name` is one of `REFERENCES`."""

    name: str

    def run(self, inputs: Mapping[str, Array]) -> ReferenceRun:
        """Run one inference; inputs are given by name."""


def select_runtime(
    wanted: str, source: Any, every: EveryValue, notice: list[str], *, own_states: bool = False
) -> Runtime | None:
    """Return the independent runtime to compare with; None for only umakit's CPU kernels.

    Args:
        wanted: one of `REFERENCES`.
        source: path of the model file, or an object that no other runtime supports.
        every: the imported network.
        notice: callback for a sentence if the runtime of the format cannot be used.
        own_states: whether inputs have states that no inference before them yielded.

    Raises:
        InputError: there is no such reference, or it cannot run this model.
    """
    if wanted not in REFERENCES:
        raise InputError(
            f"there is no reference {wanted!r}", fix=f"choose from {', '.join(REFERENCES)}"
        )
    if wanted == CPU_KERNELS:
        return None
    matching = runtime_for(source)
    if wanted not in (AUTOMATIC, matching):
        raise InputError(f"{DISPLAY_NAMES[wanted]} does not read this model", where=str(source))
    if not matching:
        return None
    # Runtimes are named as the packages that bring them.
    problem = f"the package {PACKAGES[matching]} is not installed (pip install {matching})"
    if matching == TFLITE_MICRO and own_states:
        problem = "it keeps the model's states itself, and takes none from the inputs"
    elif importlib.util.find_spec(PACKAGES[matching]) is not None:
        try:
            return (_OnnxRuntime if matching == ONNX_RUNTIME else _TfliteMicro)(Path(source), every)
        except ImportError as error:
            problem = f"a package that it needs is missing: {error}"
        except Exception as error:  # a runtime may refuse a model with whatever it raises
            lines = str(error).strip().splitlines() or [type(error).__name__]
            problem = f"it refuses the model: {lines[0]}"
    if wanted != AUTOMATIC:
        raise InputError(
            f"{DISPLAY_NAMES[matching]} cannot be the reference: {problem}", where=str(source)
        )
    notice.append(f"{DISPLAY_NAMES[matching]} is not the reference: {problem}")
    return None


def runtime_for(source: Any) -> str:
    """Return the name of the runtime of a format; empty for objects and PyTorch programs."""
    if not isinstance(source, (str, Path)) or zipfile.is_zipfile(source):
        return ""
    with Path(source).open("rb") as stream:
        return TFLITE_MICRO if stream.read(8)[4:] == b"TFL3" else ONNX_RUNTIME


def nodes_of(source: Any, operators: Sequence[OperatorPlacement]) -> dict[str, tuple[str, ...]]:
    """Return the nodes of a model file by name of the operator that replaces several nodes.

    Args:
        source: path of the model file, or an object.
        operators: of the imported network.
    """
    islands = island_nodes(Path(source)) if runtime_for(source) == ONNX_RUNTIME else {}
    found: dict[str, tuple[str, ...]] = {}
    for operator in operators:
        if operator.yields in islands:
            nodes = (*found.get(operator.name, ()), *islands[operator.yields])
            found[operator.name] = tuple(dict.fromkeys(nodes))
    return found


def _last_rows(operators: Sequence[OperatorPlacement]) -> dict[str, int]:
    """Return the row with the result of each node of the user's model: the last that yields it."""
    return {operator.yields: row for row, operator in enumerate(operators)}


def _fitting(every: EveryValue, arrays: Mapping[Value, Array]) -> dict[Value, Array]:
    """Return the arrays that have the shape and dtype of their values."""
    types = {item.name: (item.shape, item.dtype) for item in every.model.outputs}
    return {
        value: array
        for value, array in arrays.items()
        if types[every.names[value]] == (array.shape, str(array.dtype))
    }


class _OnnxRuntime:
    """ONNX Runtime with all intermediate values as additional outputs."""

    name = ONNX_RUNTIME

    def __init__(self, path: Path, every: EveryValue) -> None:

        proto = onnx.load(str(path))
        name_nodes(proto)
        self._every = every
        self._outputs = [value.name for value in proto.graph.output]
        self._names = _onnx_names(proto, every)
        for name in dict.fromkeys(self._names.values()):
            if name not in self._outputs:
                proto.graph.output.append(onnx.ValueInfoProto(name=name))
        self._session = _session(proto)

    def run(self, inputs: Mapping[str, Array]) -> ReferenceRun:
        wanted = list(dict.fromkeys([*self._outputs, *self._names.values()]))
        results = dict(zip(wanted, self._session.run(wanted, dict(inputs)), strict=True))
        values = {value: results[name] for value, name in self._names.items()}
        outputs = {name: results[name] for name in self._outputs}
        return ReferenceRun(_fitting(self._every, values), outputs)


def _session(proto: onnx.ModelProto) -> Any:
    """Return a session of ONNX Runtime, with exact integers where it can.

    On x86-64 processors with AVX2 and without VNNI it adds two products of uint8 and int8 in 16
    bits, where they saturate, unless `session.x64quantprecision` makes all weights uint8. For that
    it lacks kernels of some operators, such as QGemm of int8, which do not saturate.
    """
    import onnxruntime

    def session(precise: str) -> Any:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        # Its threads would use up the processor between runs.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.x64quantprecision", precise)
        return onnxruntime.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    states = onnxruntime.capi.onnxruntime_pybind11_state
    try:
        return session("1")
    except (states.NotImplemented, states.Fail):
        return session("0")


def _onnx_names(proto: onnx.ModelProto, every: EveryValue) -> dict[Value, str]:
    """Return the tensor names of an ONNX graph by value of the imported network.

    Operators into which batch normalization is folded compute other values after import.
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


class _TfliteMicro:
    """TensorFlow Lite Micro that keeps all tensors.

    It has no states as inputs: for an inference with states that earlier ones led to, these are
    computed again.
    """

    name = TFLITE_MICRO

    def __init__(self, path: Path, every: EveryValue) -> None:
        from tflite_micro.python.tflite_micro import runtime

        from umakit.frontend.tflite.files import short_names
        from umakit.frontend.tflite.graph import read_graph

        data = path.read_bytes()
        graph = read_graph(data, str(path))
        self._every = every
        self._inputs = [graph.tensors[number].name for number in graph.inputs]
        self._outputs = [graph.tensors[number].name for number in graph.outputs]
        next_states = {item.name: item.next_state for item in every.states}
        self._states = {graph.tensors[n].name: n for n in graph.states}
        self._next = {next_states[name]: n for name, n in self._states.items()}
        self._earlier: list[dict[str, Array]] = []
        rows = _last_rows(every.operators)
        self._tensors = {
            (rows[name], 0): number for number, name in short_names(graph).items() if name in rows
        }
        size = sum(
            int(np.prod(tensor.shape)) * np.dtype(tensor.dtype).itemsize
            for tensor in graph.tensors
            if not tensor.constant and not tensor.dtype.startswith("type")
        )
        self._interpreter = runtime.Interpreter.from_bytes(
            data,
            arena_size=2 * size + ARENA_SLACK,
            intrepreter_config=runtime.InterpreterConfig.kPreserveAllTensors,
        )

    def run(self, inputs: Mapping[str, Array]) -> ReferenceRun:
        if self._states:
            self._lead_to({name: inputs[name] for name in self._states})
            self._earlier.append(dict(inputs))
        self._invoke(inputs)
        values = {
            value: self._tensor(number)
            for value, number in self._tensors.items()
            if value in self._every.names
        }
        outputs = {
            name: np.array(self._interpreter.get_output(number))
            for number, name in enumerate(self._outputs)
        }
        outputs |= {name: self._tensor(number) for name, number in self._next.items()}
        return ReferenceRun(_fitting(self._every, values), outputs)

    def _invoke(self, inputs: Mapping[str, Array]) -> None:
        for number, name in enumerate(self._inputs):
            self._interpreter.set_input(inputs[name], number)
        self._interpreter.invoke()

    def _tensor(self, number: int) -> Array:
        return np.array(self._interpreter.GetTensor(number, 0)["tensor_data"])

    def _lead_to(self, states: Mapping[str, Array]) -> None:
        """Make the states those before an inference, if they are not, by all before it.

        Raises:
            InputError: no inference began with such states.
        """
        while not self._has(states):
            if not self._earlier:
                raise InputError("TensorFlow Lite Micro takes no states from the inputs")
            self._earlier.pop()
            self._interpreter.reset()
            for inputs in self._earlier:
                self._invoke(inputs)

    def _has(self, states: Mapping[str, Array]) -> bool:
        return all(
            np.array_equal(self._tensor(self._states[name]), array)
            for name, array in states.items()
        )
