# SPDX-License-Identifier: Apache-2.0
"""Random quantized ONNX networks of operators that have a layout, or whose layout can change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper
from qdq import Array, Qdq

SCALE = 0.05


@dataclass(frozen=True)
class Value:
    """A dequantized tensor of a network, with the scale and zero point of its integers."""

    name: str
    shape: tuple[int, ...]
    scale: float
    zero: int


class RandomNetwork:
    """Branches of convolutions, pools, sums, concatenations, and operators that move elements.

    Args:
        seed: of everything.
        steps: number of operators to draw.
        exact: only operators whose integers ONNX Runtime defines without floating point.
    """

    def __init__(self, seed: int, steps: int = 8, *, exact: bool = False) -> None:
        self.qdq = Qdq("int8", seed)
        self.random = self.qdq.random
        size = (int(self.random.integers(4, 9)), int(self.random.integers(4, 9)))
        shape = (1, int(self.random.integers(1, 5)), *size)
        zero = self.qdq.zero_point()
        first = Value(self.qdq.input(shape, SCALE, zero), shape, SCALE, zero)
        self.values = [self.convolution(first)]
        kinds = [*["convolution"] * 3, "pointwise", "depthwise", "relu", "max_pool"]
        kinds += ["concat", "pad", "slice", "resize", "reshape", "transpose"]
        kinds += [] if exact else ["add", "scaled", "average_pool", "sigmoid", "mean", "softmax"]
        for _ in range(steps):
            kind = str(self.random.choice(kinds))
            made = getattr(self, kind)(self.drawn())
            if made is not None:
                self.values.append(made)
        self.outputs = [self.values[-1]]
        if self.random.random() < 0.5:
            self.outputs.append(self.drawn())
        if not exact and self.random.random() < 0.5:
            self.outputs.append(self.pooled(self.values[-1]))

    def drawn(self) -> Value:
        """One of the last values, so that networks are deep and have branches."""
        return self.values[-1 - min(int(self.random.geometric(0.6)) - 1, len(self.values) - 1)]

    def quantized(
        self, name: str, shape: tuple[int, ...], scale: float = SCALE, zero: int | None = None
    ) -> Value:
        zero = self.qdq.zero_point() if zero is None else zero
        integers = self.qdq.quantize(name, scale, zero)
        return Value(self.qdq.dequantize(integers, scale, zero, "int8"), shape, scale, zero)

    def moved(self, name: str, shape: tuple[int, ...], x: Value) -> Value:
        return self.quantized(name, shape, x.scale, x.zero)

    def windowed(self, x: Value, outputs: int, kernel: int, stride: int, group: int = 1) -> Value:
        _, channels, height, width = x.shape
        weights, deviation = self.qdq.weights(
            (outputs, channels // group, kernel, kernel), "int8", bool(self.random.integers(2))
        )
        bias = self.qdq.bias(outputs, np.float32(x.scale) * deviation)
        pad = kernel // 2
        made = self.qdq.node(
            "Conv", x.name, weights, bias, pads=[pad] * 4, strides=[stride] * 2, group=group
        )
        size = [(extent + 2 * pad - kernel) // stride + 1 for extent in (height, width)]
        return self.quantized(made, (1, outputs, *size))

    def convolution(self, x: Value) -> Value | None:
        if len(x.shape) != 4:
            return None
        return self.windowed(x, int(self.random.integers(1, 9)), 3, int(self.random.integers(1, 3)))

    def pointwise(self, x: Value) -> Value | None:
        return (
            self.windowed(x, int(self.random.integers(1, 9)), 1, 1) if len(x.shape) == 4 else None
        )

    def depthwise(self, x: Value) -> Value | None:
        if len(x.shape) != 4:
            return None
        return self.windowed(x, x.shape[1], 3, int(self.random.integers(1, 3)), group=x.shape[1])

    def relu(self, x: Value) -> Value:
        return self.quantized(self.qdq.node("Relu", x.name), x.shape, zero=-128)

    def sigmoid(self, x: Value) -> Value:
        return self.quantized(self.qdq.node("Sigmoid", x.name), x.shape, 1 / 256, -128)

    def softmax(self, x: Value) -> Value:
        axis = int(self.random.integers(1, len(x.shape)))
        return self.quantized(self.qdq.node("Softmax", x.name, axis=axis), x.shape, 1 / 256, -128)

    def max_pool(self, x: Value) -> Value | None:
        if len(x.shape) != 4 or min(x.shape[2:]) < 2:
            return None
        made = self.qdq.node("MaxPool", x.name, kernel_shape=[2, 2], strides=[2, 2])
        return self.moved(made, (*x.shape[:2], x.shape[2] // 2, x.shape[3] // 2), x)

    def average_pool(self, x: Value) -> Value | None:
        if len(x.shape) != 4 or min(x.shape[2:]) < 2:
            return None
        made = self.qdq.node("AveragePool", x.name, kernel_shape=[2, 2], strides=[1, 1])
        return self.quantized(made, (*x.shape[:2], x.shape[2] - 1, x.shape[3] - 1))

    def pooled(self, x: Value) -> Value:
        if len(x.shape) != 4:
            return self.relu(x)
        made = self.qdq.node("GlobalAveragePool", x.name)
        return self.quantized(made, (*x.shape[:2], 1, 1))

    def mean(self, x: Value) -> Value | None:
        if len(x.shape) != 4:
            return None
        axes = [[1], [2], [3], [1, 2], [2, 3]][int(self.random.integers(5))]
        made = self.qdq.node("ReduceMean", x.name, axes=axes, keepdims=1)
        shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(x.shape))
        return self.quantized(made, shape)

    def add(self, x: Value) -> Value | None:
        same = [value for value in self.values if value.shape == x.shape]
        other = same[int(self.random.integers(len(same)))]
        return self.quantized(self.qdq.node("Add", x.name, other.name), x.shape, 2 * SCALE)

    def scaled(self, x: Value) -> Value:
        """A product with one constant for each channel."""
        shape = (x.shape[1], *(1 for _ in x.shape[2:]))
        integers = self.qdq.random.integers(-128, 128, shape)
        factor = self.qdq.dequantize(self.qdq.constant(integers, "int8"), 0.01, 0, "int8")
        return self.quantized(self.qdq.node("Mul", x.name, factor), x.shape)

    def concat(self, x: Value) -> Value:
        axis = int(self.random.integers(1, len(x.shape)))

        def fits(value: Value) -> bool:
            return len(value.shape) == len(x.shape) and all(
                a == b or at == axis
                for at, (a, b) in enumerate(zip(value.shape, x.shape, strict=True))
            )

        fitting = [value for value in self.values if fits(value)]
        other = fitting[int(self.random.integers(len(fitting)))]
        made = self.qdq.node("Concat", x.name, other.name, axis=axis)
        shape = list(x.shape)
        shape[axis] += other.shape[axis]
        return self.quantized(made, tuple(shape), x.scale, x.zero)

    def pad(self, x: Value) -> Value:
        widths = [int(width) for width in self.random.integers(0, 2, 2 * len(x.shape))]
        widths[0] = widths[len(x.shape)] = 0
        made = self.qdq.node("Pad", x.name, self.qdq.constant(widths, "int64"))
        begin, end = widths[: len(x.shape)], widths[len(x.shape) :]
        shape = tuple(a + b + c for a, b, c in zip(x.shape, begin, end, strict=True))
        return self.moved(made, shape, x)

    def slice(self, x: Value) -> Value | None:
        axis = int(self.random.integers(1, len(x.shape)))
        if x.shape[axis] < 2:
            return None
        numbers = [self.qdq.constant([number], "int64") for number in (1, x.shape[axis], axis)]
        made = self.qdq.node("Slice", x.name, *numbers)
        shape = list(x.shape)
        shape[axis] -= 1
        return self.moved(made, tuple(shape), x)

    def resize(self, x: Value) -> Value | None:
        if len(x.shape) != 4 or max(x.shape[2:]) > 6:
            return None
        scales = self.qdq.constant([1, 1, 2, 2])
        made = self.qdq.node(
            "Resize", x.name, "", scales, mode="nearest", nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        )  # fmt: skip
        return self.moved(made, (*x.shape[:2], 2 * x.shape[2], 2 * x.shape[3]), x)

    def reshape(self, x: Value) -> Value:
        """From images to signals and back, or with rows and channels mixed."""
        if len(x.shape) == 3:
            shape = (*x.shape[:2], 1, x.shape[2])
        elif self.random.integers(2):
            shape = (*x.shape[:2], x.shape[2] * x.shape[3])
        else:
            shape = (1, x.shape[1] * x.shape[2], 1, x.shape[3])
        made = self.qdq.node("Reshape", x.name, self.qdq.constant(shape, "int64"))
        return self.moved(made, shape, x)

    def transpose(self, x: Value) -> Value:
        orders = {3: [(0, 2, 1)], 4: [(0, 2, 3, 1), (0, 3, 1, 2), (0, 1, 3, 2)]}[len(x.shape)]
        order = orders[int(self.random.integers(len(orders)))]
        made = self.qdq.node("Transpose", x.name, perm=order)
        return self.moved(made, tuple(x.shape[axis] for axis in order), x)

    def model(self) -> onnx.ModelProto:
        """Return the model, with float outputs."""
        outputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            for name in dict.fromkeys(value.name for value in self.outputs)
        ]
        graph = helper.make_graph(self.qdq.nodes, "g", self.qdq.inputs, outputs, self.qdq.constants)
        opsets = [helper.make_opsetid("", self.qdq.opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return onnx.shape_inference.infer_shapes(model)

    def inputs(self, count: int = 2) -> dict[str, Array]:
        """Return inputs, one row for each inference."""
        (shape,) = self.qdq.shapes
        values = self.random.uniform(-8, 8, (count, *shape))
        return {"x0": values.astype(np.float32)}
