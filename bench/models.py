# SPDX-License-Identifier: Apache-2.0
"""The networks of MLPerf Tiny as float ONNX models with random weights, and their lower bounds.

Shapes are those of MLPerf Tiny's reference models, layout and batch norms as an exporter of
PyTorch gives them. Nothing here uses umakit.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx
import onnx.shape_inference
from networks import MOBILENET_BLOCKS, Graph
from onnx import numpy_helper

IN_PLACE = ("Relu", "Clip", "BatchNormalization", "Add", "Flatten", "Reshape", "Softmax")
"""Operators whose result can take the place of an operand that ends there."""


def _same(size: tuple[int, int], kernel: tuple[int, int], stride: int) -> tuple[list[int], ...]:
    """ONNX pads as TensorFlow's SAME, and the size of the result."""
    before, after, result = [], [], []
    for length, extent in zip(size, kernel, strict=True):
        out = -(-length // stride)
        total = max(0, (out - 1) * stride + extent - length)
        before.append(total // 2)
        after.append(total - total // 2)
        result.append(out)
    return [*before, *after], result


class _Images:
    """A graph of padded convolutions that knows how large its images are."""

    def __init__(self, name: str, channels: int, height: int, width: int) -> None:
        self.graph = Graph(name)
        self.x = self.graph.input("input", 1, channels, height, width)
        self.size = (height, width)

    def layer(
        self,
        filters: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        *,
        group: int = 1,
        relu: bool = True,
    ) -> None:
        """Convolution, batch norm, ReLU."""
        kernel = (kernel, kernel) if isinstance(kernel, int) else kernel
        pads, size = _same(self.size, kernel, stride)
        x = self.graph.conv(self.x, filters, kernel, group=group, strides=[stride] * 2, pads=pads)
        x = self.graph.batch_norm(x)
        self.x = self.graph.node("Relu", x) if relu else x
        self.size = (size[0], size[1])

    def classify(self, channels: int, classes: int) -> onnx.ModelProto:
        """The usual end."""
        x = self.graph.node("Flatten", self.graph.node("GlobalAveragePool", self.x))
        x = self.graph.dense(x, channels, classes)
        self.graph.output(self.graph.node("Softmax", x, name="output"))
        return self.graph.model()


def resnet8() -> onnx.ModelProto:
    """Image classification: 32x32x3, 10 classes."""
    net = _Images("resnet8", 3, 32, 32)
    net.layer(16, 3)
    for filters, stride in ((16, 1), (32, 2), (64, 2)):
        start, size = net.x, net.size
        net.layer(filters, 3, stride)
        net.layer(filters, 3, relu=False)
        main = net.x
        if stride != 1:
            result_size = net.size
            net.x, net.size = start, size
            start = net.graph.conv(start, filters, 1, strides=[stride] * 2, pads=[0] * 4, bias=True)
            net.size = result_size
        net.x = net.graph.node("Relu", net.graph.node("Add", main, start))
    return net.classify(64, 10)


def ds_cnn() -> onnx.ModelProto:
    """Keyword spotting: 49 frames of 10 coefficients, 12 words."""
    net = _Images("ds_cnn", 1, 49, 10)
    net.layer(64, (10, 4), 2)
    for _ in range(4):
        net.layer(64, 3, group=0)
        net.layer(64, 1)
    return net.classify(64, 12)


def mobilenet() -> onnx.ModelProto:
    """Visual wake words: MobileNetV1-0.25, 96x96x3, 2 classes."""
    net = _Images("mobilenet", 3, 96, 96)
    filters = 8
    net.layer(filters, 3, 2)
    for pointwise, stride in MOBILENET_BLOCKS:
        net.layer(filters, 3, stride, group=0)
        filters = pointwise // 4
        net.layer(filters, 1)
    return net.classify(filters, 2)


def autoencoder() -> onnx.ModelProto:
    """Anomaly detection: 640 numbers through a bottleneck of 8."""
    graph = Graph("autoencoder")
    x, size = graph.input("input", 1, 640), 640
    for width in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        x = graph.node("Relu", graph.batch_norm(graph.dense(x, size, width)))
        size = width
    graph.output(graph.dense(x, size, 640, name="output"))
    return graph.model()


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet8": resnet8,
    "ds_cnn": ds_cnn,
    "mobilenet": mobilenet,
    "autoencoder": autoencoder,
}


def constants_bound(model: onnx.ModelProto, weight_bytes: int = 4) -> int:
    """Bytes of the weights and of one bias for each layer that has one or a batch norm.

    Args:
        model: the network.
        weight_bytes: of each weight; biases have four.
    """
    values = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    normed = {node.input[0] for node in model.graph.node if node.op_type == "BatchNormalization"}
    arrays = {}
    for node in model.graph.node:
        if node.op_type not in ("Conv", "Gemm"):
            continue
        weights = values[node.input[1]]
        arrays[node.input[1]] = weights.size * weight_bytes
        if len(node.input) > 2 or node.output[0] in normed:
            arrays[f"{node.name} bias"] = weights.shape[0] * 4
    return sum(arrays.values())


def _added_to(nodes: list[onnx.NodeProto], step: int, last: dict[str, int]) -> str | None:
    """The tensor that a node's result is added to, if that ends there and nothing else reads it."""
    result = nodes[step].output[0]
    while True:
        readers = [n for n, node in enumerate(nodes) if result in node.input]
        if len(readers) != 1:
            return None
        reader = nodes[readers[0]]
        if reader.op_type == "Add":
            other = next((name for name in reader.input if name != result), None)
            return other if other is not None and last[other] == readers[0] else None
        if reader.op_type != "BatchNormalization":
            return None
        result = reader.output[0]


def arena_bound(model: onnx.ModelProto) -> int:
    """Most bytes of intermediate tensors alive at once, in the order of the file.

    The caller holds inputs and outputs. Element-wise operators work in place, and a layer whose
    result is only added to a tensor that ends there accumulates on it; every other operator has
    its operands and its result side by side.
    """
    typed = onnx.shape_inference.infer_shapes(model)
    sizes = {
        value.name: 4 * math.prod(d.dim_value for d in value.type.tensor_type.shape.dim)
        for value in typed.graph.value_info
    }
    nodes = list(model.graph.node)
    last = {name: step for step, node in enumerate(nodes) for name in node.input}
    outputs = {value.name for value in model.graph.output}
    alive: dict[str, int] = {}
    most = 0
    for step, node in enumerate(nodes):
        dying = {name for name in node.input if name in alive and last[name] == step}
        result = node.output[0]
        same = sorted(name for name in dying if alive[name] in (0, sizes.get(result)))
        if node.op_type in IN_PLACE and same:
            for name in same:
                dying.remove(name)
                alive.pop(name)
        if result not in outputs:
            # Where it accumulates on a tensor, it needs no memory until it takes that over.
            added = _added_to(nodes, step, last)
            alive[result] = 0 if added is not None and added in alive else sizes[result]
        most = max(most, sum(alive.values()))
        for name in dying:
            alive.pop(name)
    return most


def sample(model: onnx.ModelProto) -> np.ndarray:
    """A random input."""
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    return np.random.default_rng(7).standard_normal(shape).astype("float32")
