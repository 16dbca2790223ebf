# SPDX-License-Identifier: Apache-2.0
"""Drawn networks whose layers the costs of CPUs are fitted to: shapes as small networks have them.

Nothing here uses umakit.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from image_networks import Image, ImageNetwork
from networks import Graph
from quantized_models import quantize

MOST_PRODUCTS = 400_000
"""Multiply-accumulates of a layer above which no more are drawn: emulators take their time."""

CHANNELS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128)
KERNELS = (1, 3, 3, 3, 5)


class Drawing:
    """Draws shapes of layers.

    Args:
        seed: of the drawing.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def of(self, *values: int) -> int:
        """Return one of some values."""
        return int(self._random.choice(values))

    def filters(self, positions: int, inputs: int) -> int:
        """Return a number of output channels for which a layer is not too large.

        Args:
            positions: positions of its result.
            inputs: products of each number of the result.
        """
        fitting = [each for each in CHANNELS if each * positions * inputs <= MOST_PRODUCTS]
        return self.of(*fitting) if fitting else 1


def drawn_integers(seed: int) -> bytes:
    """Return a TensorFlow Lite file in int8: convolutions, additions, pools, a dense layer."""
    draw = Drawing(seed)
    size = (draw.of(4, 6, 8, 9, 12, 16, 24, 32), draw.of(4, 5, 8, 10, 12, 16, 24, 32))
    net = ImageNetwork(*size, draw.of(1, 2, 3, 4, 8, 16, 32), seed=seed)
    x = net.convolution(net.input, draw.filters(size[0] * size[1], 9 * net.input.channels), 3)
    for _ in range(7):
        x = _integer_layer(draw, net, x)
    if x.size[0] * x.size[1] * x.channels > 2048 or draw.of(0, 1):
        x = net.average_pool(x)
    return net.finish(x, draw.of(2, 8, 10, 12, 40, 64, 128))


def _integer_layer(draw: Drawing, net: ImageNetwork, x: Image) -> Image:
    stride = draw.of(1, 1, 1, 2)
    kernel = draw.of(*KERNELS)
    positions = -(-x.size[0] // stride) * -(-x.size[1] // stride)
    kind = draw.of(0, 0, 0, 1, 1, 2, 3)
    if kind == 0 or (kind == 1 and x.channels < 4):
        filters = draw.filters(positions, kernel * kernel * x.channels)
        return net.convolution(x, filters, kernel, stride, relu=True)
    if kind == 1:
        return net.depthwise(x, draw.of(3, 3, 5), stride)
    if kind == 2:
        return net.max_pool(x, draw.of(2, 3), draw.of(1, 2))
    filters = draw.filters(x.size[0] * x.size[1], 2 * x.channels)
    left, right = (net.convolution(x, filters, 1, relu=False) for _ in range(2))
    return net.addition(left, right)


def drawn_products(seed: int) -> bytes:
    """Return a TensorFlow Lite file in int8: pointwise convolutions, a dense layer, softmax."""
    draw = Drawing(seed)
    net = ImageNetwork(1, draw.of(1, 2, 4, 8), draw.of(8, 16, 30, 64, 100, 128, 200), seed=seed)
    x = net.convolution(net.input, draw.of(8, 12, 32, 64, 100, 128, 250), 1)
    x = net.convolution(x, draw.of(8, 16, 48, 64, 128), 1)
    return net.finish(x, draw.of(8, 9, 10, 64, 100, 128, 300, 640), softmax=True)


def drawn_floats(seed: int) -> onnx.ModelProto:
    """Return an ONNX model in float32: convolutions, activations, pools, a dense layer."""
    draw = Drawing(seed)
    rows, columns, channels = (
        draw.of(4, 6, 8, 12, 16),
        draw.of(4, 5, 8, 12, 16),
        draw.of(1, 2, 3, 8),
    )
    graph = Graph(seed=seed)
    x = graph.input("input", 1, channels, rows, columns)
    for _ in range(5):
        kind = draw.of(0, 0, 0, 1, 1, 2)
        kernel, stride = draw.of(*KERNELS), draw.of(1, 1, 1, 2)
        if kind == 2 and min(rows, columns) >= 2:
            operator = ("MaxPool", "AveragePool")[draw.of(0, 1)]
            x = graph.node(operator, x, kernel_shape=[2, 2], strides=[2, 2])
            rows, columns = rows // 2, columns // 2
            continue
        rows, columns = -(-rows // stride), -(-columns // stride)
        group = 0 if kind == 1 and channels > 2 else 1
        inputs = kernel * kernel * (1 if group == 0 else channels)
        if group:
            channels = draw.filters(4 * rows * columns, inputs)
        x = graph.conv(
            x, channels, kernel, group=group, bias=True, strides=[stride] * 2,
            auto_pad="SAME_UPPER",
        )  # fmt: skip
        x = _activation(draw, graph, x)
    if draw.of(0, 1):
        x = graph.node("GlobalAveragePool", x)
        rows = columns = 1
    x = graph.node("Flatten", x)
    x = graph.dense(x, rows * columns * channels, draw.of(4, 10, 16, 32))
    graph.output(graph.node("Softmax", x) if draw.of(0, 1) else x)
    return graph.model()


def _activation(draw: Drawing, graph: Graph, x: str) -> str:
    kind = draw.of(0, 0, 0, 1, 2, 3)
    if kind == 1:
        return graph.node("Clip", x, graph.constant(0.0), graph.constant(6.0))
    return graph.node(("Relu", "", "Sigmoid", "Tanh")[kind], x)


def drawn_networks(folder: Path, integers: int, floats: int, quantized: int) -> list[Path]:
    """Write drawn networks and return their files, always the same.

    Args:
        folder: where to write them.
        integers: networks of TensorFlow Lite in int8.
        floats: ONNX networks in float32.
        quantized: the same in int8.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for seed in range(integers):
        path = folder / f"integers_{seed}.tflite"
        path.write_bytes(drawn_products(seed) if seed % 5 == 4 else drawn_integers(seed))
        found.append(path)
    for seed in range(floats):
        path = folder / f"floats_{seed}.onnx"
        onnx.save(drawn_floats(seed), path)
        found.append(path)
    for seed in range(100, 100 + quantized):
        source, path = folder / f"source_{seed}.onnx", folder / f"quantized_{seed}.onnx"
        onnx.save(drawn_floats(seed), source)
        quantize(source, path)
        found.append(path)
    return found
