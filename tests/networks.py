# SPDX-License-Identifier: Apache-2.0
"""Networks for the tests as ONNX models, and the oracles that say what they must yield.

Nothing here uses umakit: ONNX Runtime and NumPy share no code with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.shape_inference
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]
Pads = tuple[int, int, int, int]

OPSET = 17
IR_VERSION = 8


def normal(*shape: int, seed: int = 0, dtype: str = "float32") -> Array:
    """Random values of a normal distribution."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def same_pads(kernel_height: int, kernel_width: int, *, lower: bool = False) -> Pads:
    """ONNX `pads` (top, left, bottom, right) that keep an image's size at stride 1."""
    rows, columns = kernel_height - 1, kernel_width - 1
    small, large = (rows // 2, columns // 2), (rows - rows // 2, columns - columns // 2)
    return (*large, *small) if lower else (*small, *large)


class Graph:
    """An ONNX graph under construction; every method returns names of values."""

    def __init__(self, name: str = "network", *, seed: int = 0) -> None:
        self._name = name
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._channels: dict[str, int] = {}

    def input(self, name: str, *shape: int | str, dtype: int = TensorProto.FLOAT) -> str:
        """An input; a string in the shape is a symbolic dimension."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        if len(shape) > 1 and isinstance(shape[1], int):
            self._channels[name] = shape[1]
        return name

    def output(self, *names: str) -> None:
        """Make values outputs of the network; their types are inferred."""
        self._outputs += [onnx.ValueInfoProto(name=name) for name in names]

    def constant(self, values: Any, dtype: str = "float32") -> str:
        """An initializer."""
        name = f"constant{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def random(self, *shape: int, deviation: float = 1.0) -> str:
        """An initializer of random values."""
        return self.constant(self._random.standard_normal(shape) * deviation)

    def nodes(
        self, operator: str, *inputs: str, results: int, name: str = "", **attributes: Any
    ) -> tuple[str, ...]:
        """A node with several results."""
        name = name or f"{operator.lower()}{len(self._nodes)}"
        outputs = [name] if results == 1 else [f"{name}_{number}" for number in range(results)]
        self._nodes.append(helper.make_node(operator, inputs, outputs, name, **attributes))
        if len(inputs) > 0 and inputs[0] in self._channels:
            for output in outputs:
                self._channels[output] = self._channels[inputs[0]]
        return tuple(outputs)

    def node(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """A node with one result, which is called like the node."""
        return self.nodes(operator, *inputs, results=1, name=name, **attributes)[0]

    def channels(self, x: str, count: int) -> None:
        """Say how many channels a value has where that cannot be known from its node."""
        self._channels[x] = count

    def conv(
        self,
        x: str,
        filters: int,
        kernel: int | tuple[int, int] = 3,
        *,
        bias: bool = False,
        group: int = 1,
        name: str = "",
        **attributes: Any,
    ) -> str:
        """A convolution with He-scaled weights; same-padded unless `pads` or `auto_pad` is given.

        `group=0` is depthwise.
        """
        channels = self._channels[x]
        group = group or channels
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        if "pads" not in attributes and "auto_pad" not in attributes:
            attributes["pads"] = same_pads(height, width)
        per_group = channels // group
        deviation = np.sqrt(2 / (per_group * height * width))
        weights = self.random(filters, per_group, height, width, deviation=deviation)
        biases = [self.random(filters, deviation=0.1)] if bias else []
        result = self.node(
            "Conv", x, weights, *biases, name=name, group=group,
            kernel_shape=[height, width], **attributes,
        )  # fmt: skip
        self._channels[result] = filters
        return result

    def batch_norm(self, x: str, *, gain: float = 1.0, name: str = "") -> str:
        """Batch normalization with statistics as after training: close to 0 and 1."""
        channels = self._channels[x]
        scale, variance = (self._random.uniform(0.7, 1.3, channels) for _ in range(2))
        scale *= gain
        shift, mean = (self._random.normal(0, 0.1, channels) for _ in range(2))
        values = [self.constant(array) for array in (scale, shift, mean, variance)]
        return self.node("BatchNormalization", x, *values, name=name)

    def dense(self, x: str, inputs: int, outputs: int, *, name: str = "") -> str:
        """A fully connected layer."""
        weights = self.random(outputs, inputs, deviation=np.sqrt(1 / inputs))
        result = self.node(
            "Gemm", x, weights, self.random(outputs, deviation=0.1), name=name, transB=1
        )
        self._channels[result] = outputs
        return result

    def model(self, opset: int = OPSET) -> onnx.ModelProto:
        """The finished, checked model."""
        graph = helper.make_graph(
            self._nodes, self._name, self._inputs, self._outputs, self._constants
        )
        opsets = [helper.make_opsetid("", opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        typed = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        del typed.graph.value_info[:]
        onnx.checker.check_model(typed)
        return typed


# --- Networks -----------------------------------------------------------------------------------

MOBILENET_BLOCKS = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)
)  # fmt: skip
"""Filters of the pointwise, stride of the depthwise convolution of each block (Howard et al.,
"MobileNets", 2017, table 1; the last depthwise stride is 1, as in every implementation)."""

RESNET18_STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
"""Filters and first stride of each stage of two blocks (He et al., 2015, table 1)."""


def mobilenet_v1(alpha: float = 1.0, *, size: int = 224, seed: int = 0) -> onnx.ModelProto:
    """MobileNetV1 for images of `size` x `size`, padded as TensorFlow does (SAME_UPPER)."""
    graph = Graph("mobilenet_v1", seed=seed)

    def layer(x: str, filters: int, kernel: int, stride: int, group: int, name: str) -> str:
        x = graph.conv(
            x, filters, kernel, group=group, strides=[stride] * 2, auto_pad="SAME_UPPER", name=name
        )
        x = graph.batch_norm(x, name=f"{name}_bn")
        limits = graph.constant(0.0), graph.constant(6.0)
        return graph.node("Clip", x, *limits, name=f"{name}_relu6")

    filters = int(32 * alpha)
    x = layer(graph.input("image", 1, 3, size, size), filters, 3, 2, 1, "stem")
    for number, (pointwise, stride) in enumerate(MOBILENET_BLOCKS, 1):
        x = layer(x, filters, 3, stride, 0, f"depthwise{number}")
        filters = int(pointwise * alpha)
        x = layer(x, filters, 1, 1, 1, f"pointwise{number}")
    x = graph.node("Flatten", graph.node("GlobalAveragePool", x))
    x = graph.dense(x, filters, 1000, name="logits")
    graph.output(x, graph.node("Softmax", x, name="probabilities"))
    return graph.model()


def resnet18(*, size: int = 224, seed: int = 0) -> onnx.ModelProto:
    """ResNet-18 for images of `size` x `size`."""
    graph = Graph("resnet18", seed=seed)

    def layer(x: str, filters: int, kernel: int, stride: int, name: str, gain: float = 1.0) -> str:
        pads = [kernel // 2] * 4
        x = graph.conv(x, filters, kernel, strides=[stride] * 2, pads=pads, name=name)
        return graph.batch_norm(x, gain=gain, name=f"{name}_bn")

    def block(x: str, filters: int, stride: int, name: str) -> str:
        inner = graph.node("Relu", layer(x, filters, 3, stride, f"{name}_conv1"))
        # Small, so that the sum of all blocks stays small.
        inner = layer(inner, filters, 3, 1, f"{name}_conv2", gain=0.3)
        if stride != 1:
            x = layer(x, filters, 1, stride, f"{name}_shortcut")
        return graph.node("Relu", graph.node("Add", inner, x))

    x = layer(graph.input("image", 1, 3, size, size), 64, 7, 2, "stem")
    x = graph.node(
        "MaxPool", graph.node("Relu", x), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
    )
    for number, (filters, stride) in enumerate(RESNET18_STAGES, 1):
        x = block(x, filters, stride, f"stage{number}_block1")
        x = block(x, filters, 1, f"stage{number}_block2")
    x = graph.node("Flatten", graph.node("GlobalAveragePool", x))
    graph.output(graph.dense(x, 512, 1000, name="logits"))
    return graph.model()


RESNET50_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Filters, blocks and first stride of each stage (He et al., 2015, table 1)."""


def resnet50(*, size: int = 224, seed: int = 0) -> onnx.ModelProto:
    """ResNet-50 for images of `size` x `size`, with the stride in the 3x3 convolutions."""
    graph = Graph("resnet50", seed=seed)

    def layer(x: str, filters: int, kernel: int, stride: int = 1, gain: float = 1.0) -> str:
        pads = [kernel // 2] * 4
        x = graph.conv(x, filters, kernel, strides=[stride] * 2, pads=pads)
        return graph.batch_norm(x, gain=gain)

    def block(x: str, filters: int, stride: int, is_first: bool) -> str:
        inner = graph.node("Relu", layer(x, filters, 1))
        inner = graph.node("Relu", layer(inner, filters, 3, stride))
        # Small, so that the sum of all blocks stays small.
        inner = layer(inner, 4 * filters, 1, gain=0.3)
        if is_first:
            x = layer(x, 4 * filters, 1, stride)
        return graph.node("Relu", graph.node("Add", inner, x))

    x = graph.node("Relu", layer(graph.input("image", 1, 3, size, size), 64, 7, 2))
    x = graph.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for filters, blocks, stride in RESNET50_STAGES:
        for number in range(blocks):
            x = block(x, filters, 1 if number else stride, number == 0)
    x = graph.node("Flatten", graph.node("GlobalAveragePool", x))
    graph.output(graph.dense(x, 2048, 1000, name="logits"))
    return graph.model()


def fold_batch_norms(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which every BatchNormalization is part of the Conv or Gemm (transB) before it."""
    folded = onnx.ModelProto()
    folded.CopyFrom(model)
    graph = folded.graph
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    producers = {node.output[0]: node for node in graph.node}
    for norm in [node for node in graph.node if node.op_type == "BatchNormalization"]:
        scale, shift, mean, variance = (values[name].astype("float64") for name in norm.input[1:])
        factor = scale / np.sqrt(variance + 1e-5)
        layer = producers[norm.input[0]]
        weights = values[layer.input[1]]
        values[layer.input[1]] = weights * factor.reshape(-1, *[1] * (weights.ndim - 1))
        bias = values[layer.input[2]] if len(layer.input) > 2 else 0.0
        values[f"{norm.name}_bias"] = shift + (bias - mean) * factor
        layer.input[:] = [*layer.input[:2], f"{norm.name}_bias"]
        layer.output[0] = norm.output[0]
        graph.node.remove(norm)
    used = {name for node in graph.node for name in node.input}
    del graph.initializer[:]
    graph.initializer.extend(
        numpy_helper.from_array(array.astype("float32"), name)
        if array.dtype == np.float64
        else numpy_helper.from_array(array, name)
        for name, array in values.items()
        if name in used
    )
    onnx.checker.check_model(folded)
    return folded


# --- Files, inputs and oracles ------------------------------------------------------------------


def save(model: onnx.ModelProto, folder: Path, name: str = "network") -> Path:
    """Write a model as a file."""
    path = folder / f"{name}.onnx"
    onnx.save(model, str(path))
    return path


def random_inputs(model: onnx.ModelProto, *, seed: int = 1) -> dict[str, Array]:
    """Random values for every input; symbolic dimensions are 1, integers are 0 to 9."""
    random = np.random.default_rng(seed)
    arrays = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [dimension.dim_value or 1 for dimension in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype == np.bool_:
            arrays[value.name] = random.integers(0, 2, shape).astype(dtype)
        elif np.issubdtype(dtype, np.integer):
            arrays[value.name] = random.integers(0, 10, shape).astype(dtype)
        else:
            arrays[value.name] = random.standard_normal(shape).astype(dtype)
    return arrays


def onnx_runtime(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs by name according to ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in model.graph.output]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def convolve(ifmap: Array, weights: Array, pads: Sequence[int]) -> Array:
    """A stride-1 convolution [n, ic, h, w] x [oc, ic, kh, kw] by definition, in float64."""
    top, left, bottom, right = pads
    padded = np.pad(ifmap.astype("float64"), ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weights.shape[2:], axis=(2, 3))
    result: Array = np.einsum(
        "ncyxij,ocij->noyx", windows, weights.astype("float64"), optimize=True
    )
    return result


def assert_close(got: Array, wanted: Array, tolerance: float = 1e-5) -> None:
    """Integers are equal, floats differ by at most `tolerance` of the largest value."""
    types = (got.shape, got.dtype), (wanted.shape, wanted.dtype)
    assert types[0] == types[1], f"{types[0]} instead of {types[1]}"
    if not np.issubdtype(wanted.dtype, np.floating):
        np.testing.assert_array_equal(got, wanted)
        return
    largest = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance * largest)
