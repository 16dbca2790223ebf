# SPDX-License-Identifier: Apache-2.0
"""Models with integer inputs and outputs and float operators between them, and their oracle.

The oracles are ONNX Runtime, NumPy and TVM's LLVM build; `optimized_operators` says what ONNX
Runtime makes of a model, which decides whether it computes in integers.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import onnxruntime
from comparisons import SANITIZED, examples, llvm_outputs, llvm_takes_part
from hypothesis import settings
from hypothesis import strategies as st
from networks import Array
from numpy_onnx import knows, numpy_onnx
from onnx import TensorProto, helper, numpy_helper

import umakit
from umakit.devices import build
from umakit.pipeline import compile_model

EXAMPLES = examples(5)
FEWER = settings(EXAMPLES, max_examples=max(1, EXAMPLES.max_examples // 3))
"""Settings of tests with many parameters."""

INFERENCES = 6
FEW = 2
"""Elements that may differ besides: in small tensors, a part of them says little."""
FIRST_OPSET_OF_16_BITS = 21

dtypes = st.sampled_from(["int8", "uint8"])
scales = st.floats(1e-3, 0.5)
seeds = st.integers(0, 2**32 - 1)
channels = st.sampled_from([1, 2, 3, 8, 17])
sizes = st.integers(1, 9)


class Qdq:
    """A model with integer inputs and outputs and float operators between them.

    Args:
        dtype: of integers where no other one is given.
        seed: of weights, zero points and inputs.
        opset: of the model.
    """

    def __init__(self, dtype: str, seed: int, opset: int = 17) -> None:
        self.dtype, self.random, self.opset = dtype, np.random.default_rng(seed), opset
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.shapes: list[tuple[int, ...]] = []

    def constant(self, values: Any, dtype: str = "float32") -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def zero_point(self, dtype: str = "") -> int:
        limits = np.iinfo(dtype or self.dtype)
        return int(self.random.integers(limits.min, limits.max + 1))

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operator.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def dequantize(self, x: str, scale: Any, zero: Any, dtype: str, **attributes: Any) -> str:
        return self.node(
            "DequantizeLinear", x, self.constant(scale), self.constant(zero, dtype), **attributes
        )

    def quantize(self, x: str, scale: float, zero: int | None = None, dtype: str = "") -> str:
        dtype = dtype or self.dtype
        zero = self.zero_point(dtype) if zero is None else zero
        return self.node("QuantizeLinear", x, self.constant(scale), self.constant(zero, dtype))

    def input(
        self, shape: Sequence[int], scale: float, zero: int | None = None, dtype: str = ""
    ) -> str:
        """A float input, quantized and dequantized as exporters write it."""
        name = f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))
        self.shapes.append(tuple(shape))
        dtype = dtype or self.dtype
        zero = self.zero_point(dtype) if zero is None else zero
        return self.dequantize(self.quantize(name, scale, zero, dtype), scale, zero, dtype)

    def weights(
        self, shape: Sequence[int], dtype: str, per_channel: bool, zero: int = 0, axis: int = 0
    ) -> Any:
        """(dequantized weights, their scales)."""
        count = shape[axis] if per_channel else 1
        deviation = np.exp(self.random.uniform(-7, -3, count)).astype(np.float32)
        limits = np.iinfo(dtype)
        integers = self.random.integers(limits.min, limits.max + 1, shape)
        name = self.constant(integers, dtype)
        if not per_channel:
            return self.dequantize(name, deviation[0], zero, dtype), deviation
        return self.dequantize(name, deviation, np.zeros(count), dtype, axis=axis), deviation

    def bias(self, count: int, scale: Array) -> str:
        integers = self.random.integers(-(2**12), 2**12, count)
        scale = np.broadcast_to(scale, (count,)) if scale.size > 1 else scale[0]
        zero = np.zeros(np.shape(scale))
        return self.dequantize(self.constant(integers, "int32"), scale, zero, "int32", axis=0)

    def model(self, output: str) -> onnx.ModelProto:
        """Return the model with a float output: ONNX Runtime keeps int8 outputs in float32."""
        last = next(node for node in self.nodes if node.output[0] == output)
        # Not one of the network's own nodes: with two of them ONNX Runtime would fuse less.
        ending = helper.make_node(
            "DequantizeLinear", [output, *last.input[1:]], ["result"], "result"
        )
        result = helper.make_tensor_value_info("result", TensorProto.FLOAT, None)
        nodes = [*self.nodes, ending]
        graph = helper.make_graph(nodes, "g", self.inputs, [result], self.constants)
        wide = any("16" in str(numpy_helper.to_array(t).dtype) for t in self.constants)
        opset = max(FIRST_OPSET_OF_16_BITS if wide else 1, self.opset)
        version = 10 if opset >= FIRST_OPSET_OF_16_BITS else 8
        opsets = [helper.make_opsetid("", opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=version)
        return onnx.shape_inference.infer_shapes(model)

    def samples(self, reach: float) -> dict[str, Array]:
        """Float inputs of a magnitude up to `reach`."""
        return {
            f"x{number}": self.random.uniform(-reach, reach, (INFERENCES, *shape)).astype("f4")
            for number, shape in enumerate(self.shapes)
        }

    def check(
        self, output: str, reach: float, *, step: float = 0.0, unequal: float = 0.0, floats: int = 1
    ) -> Array:
        """Compile, run and compare with ONNX Runtime.

        Args:
            output: the integers to compare.
            reach: largest float input.
            step: by how much results may differ.
            unequal: the part of the elements that may differ.
            floats: of nodes in floating point: the inputs' quantization.
        """
        inputs, model = self.samples(reach), self.model(output)
        floats = floats * len(inputs) + 1
        return assert_equal(model, inputs, step=step, unequal=unequal, floats=floats)

    def check_step(self, output: str, reach: float, *, unequal: float) -> Array:
        """The same, where results may differ by one step of the output's scale."""
        node = next(node for node in self.nodes if node.output[0] == output)
        scale = next(tensor for tensor in self.constants if tensor.name == node.input[1])
        step = float(numpy_helper.to_array(scale))
        return self.check(output, reach, step=step, unequal=unequal)


def runtime(model: onnx.ModelProto | Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def optimized_operators(model: onnx.ModelProto) -> set[str]:
    """The types of operators that ONNX Runtime makes of a model."""
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return {node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node}


def float_kernels(source: str) -> list[str]:
    """The names of kernels in a library's C that compute in floating point."""
    kernels = [part.split("\n}\n")[0] for part in source.split("KERNEL static void ")[1:]]
    return [kernel.split("(")[0] for kernel in kernels if re.search(r"\b(float|double)\b", kernel)]


def assert_equal(
    model: onnx.ModelProto, inputs: dict[str, Array], *, step: float = 0.0,
    floats: int | None = None, unequal: float = 0.0,
) -> Array:  # fmt: skip
    """Every output of every inference equals ONNX Runtime's, LLVM's and, if known, NumPy's.

    Args:
        model: the network.
        inputs: by name, one row for each inference.
        step: by how much results may differ.
        floats: how many nodes are named as computed in floating point.
        unequal: the part of the elements in which ONNX Runtime may differ; with `step`, NumPy too.
    """
    session = runtime(model)
    count = len(next(iter(inputs.values())))
    names = [value.name for value in session.get_outputs()]
    wanted = [
        session.run(names, {name: values[i] for name, values in inputs.items()})
        for i in range(count)
    ]
    notices: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        onnx.save(model, path)
        library = compile_model(path, [], Path(folder) / "library", notice=notices.append)
        with mock.patch.object(build, "FLAGS", SANITIZED):
            result = umakit.run_library(library.path, inputs)
        by_llvm = llvm_outputs(path, inputs) if llvm_takes_part(path.read_bytes()) else {}
        source = (library.path / "codegen/host/src/tvmgen_network.c").read_text()
    if floats == len(inputs) + 1:
        assert len(float_kernels(source)) <= len(inputs) + 1, "inputs and results are real numbers"
    if floats is not None:
        assert len(notices) == floats, notices
    in_integers = floats == len(inputs) + 1
    by_numpy = numpy_onnx(model, inputs) if knows(model) else {}
    for number, name in enumerate(names):
        expected = np.stack([values[number] for values in wanted])
        got = result.outputs[name].reshape(expected.shape)
        _assert_near(got, expected, step, unequal)
        if name in by_numpy:
            _assert_near(got, by_numpy[name].reshape(got.shape), step, unequal if step else 0.0)
        if name in by_llvm:
            _assert_near(got, by_llvm[name].reshape(got.shape), 0.0 if in_integers else step)
    return got


def _assert_near(got: Array, expected: Array, step: float, unequal: float = 0.0) -> None:
    assert got.dtype == expected.dtype
    if step:
        # Both are multiples of a step, rounded to float32.
        assert np.abs(got - expected).max() <= step * 1.001 + np.abs(expected).max() * 1e-6
    if unequal:
        assert (got != expected).sum() <= unequal * got.size + FEW
    elif not step:
        np.testing.assert_array_equal(got, expected)
