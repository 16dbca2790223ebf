# SPDX-License-Identifier: Apache-2.0
"""Random networks of many quantized operators: every output equals TensorFlow Lite Micro's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tflite_exactness import EXAMPLES, assert_exact, seeds, weights_and_bias
from tflite_networks import TfliteFile

pytestmark = pytest.mark.optimized

SHAPE = (1, 6, 5, 4)
LARGEST = 20
"""Rows, columns or channels, above which nothing grows any more."""

LARGEST_ARGUMENT = 15.0
"""Scale above which the fixed point of LOGISTIC and TANH ends; HARD_SWISH's ends later."""

LARGEST_SCALE = 1e6
"""Above which nothing is multiplied any more."""


@dataclass(frozen=True)
class Value:
    """A tensor of the network under construction."""

    number: int
    shape: tuple[int, ...]
    scale: float
    zero_point: int


class Network:
    """A chain of operators with some branches, on images [N, H, W, C]."""

    def __init__(self, seed: int) -> None:
        self.file = TfliteFile()
        self.random = np.random.default_rng(seed)
        self.first = self.value(SHAPE, 0.1, -7, "x")
        self.values = [self.first]

    def value(self, shape: tuple[int, ...], scale: float, zero_point: int, name: str = "") -> Value:
        number = self.file.tensor(shape, scale=scale, zero_point=zero_point, name=name)
        return Value(number, shape, scale, zero_point)

    def integers(self, values: Any) -> int:
        array = np.array(values, np.int32)
        return self.file.tensor(array.shape, "int32", data=array)

    def add(
        self, code: str, inputs: list[int], result: Value, options: str = "", **values: Any
    ) -> None:
        self.file.operator(code, inputs, [result.number], options, **values)
        self.values.append(result)

    def like(self, source: Value, shape: tuple[int, ...] | None = None) -> Value:
        return self.value(shape or source.shape, source.scale, source.zero_point)

    def other(self, source: Value, ratio: float = 1.0) -> Value:
        zero_point = int(self.random.integers(-100, 100))
        scale = source.scale * ratio * float(self.random.uniform(0.7, 1.6))
        return self.value(source.shape, scale, zero_point)


def activation(
    code: str, result: tuple[float, int] | None, options: str = "", **values: Any
) -> Any:
    def add(net: Network, x: Value) -> None:
        if code in ("LOGISTIC", "TANH", "HARD_SWISH") and x.scale > LARGEST_ARGUMENT:
            return
        y = net.value(x.shape, *result) if result else net.other(x, 1.1)
        net.add(code, [x.number], y, options, **values)

    return add


def binary(code: str, options: str) -> Any:
    def add(net: Network, x: Value) -> None:
        same = [value for value in net.values if value.shape == x.shape]
        y = same[int(net.random.integers(len(same)))]
        if code == "MUL" and x.scale * y.scale > LARGEST_SCALE:
            return
        ratio = y.scale * 60 if code == "MUL" else max(1.0, y.scale / x.scale)
        net.add(code, [x.number, y.number], net.other(x, ratio), options)

    return add


def transposed_convolution(net: Network, x: Value) -> None:
    _, height, width, count = x.shape
    if max(height, width) > LARGEST // 2:
        return
    constants, product = weights_and_bias(net.file, (3, 3, 2, count), 3, 0, x.scale, 5, True)
    shape = (1, 2 * height, 2 * width, 3)
    y = net.value(shape, product * 60, 11)
    net.add(
        "TRANSPOSE_CONV", [net.integers(shape), constants[0], x.number, constants[1]], y,
        "TransposeConvOptions", Padding=0, StrideH=2, StrideW=2,
    )  # fmt: skip


def convolution(net: Network, x: Value) -> None:
    constants, product = weights_and_bias(net.file, (5, 2, 3, x.shape[3]), 5, 0, x.scale, 6, True)
    y = net.value((*x.shape[:3], 5), product * 60, -20)
    net.add(
        "CONV_2D", [x.number, *constants], y, "Conv2DOptions", Padding=0, StrideH=1, StrideW=1,
        DilationHFactor=1, DilationWFactor=1, FusedActivationFunction=int(net.random.integers(4)),
    )  # fmt: skip


def pool(code: str) -> Any:
    def add(net: Network, x: Value) -> None:
        _, height, width, count = x.shape
        y = net.like(x, (1, -(-height // 2), -(-width // 2), count))
        net.add(
            code, [x.number], y, "Pool2DOptions", Padding=0, StrideH=2, StrideW=2, FilterHeight=3,
            FilterWidth=3,
        )  # fmt: skip

    return add


def pad(net: Network, x: Value) -> None:
    shape = (1, x.shape[1] + 1, x.shape[2] + 2, x.shape[3])
    if max(shape) < LARGEST:
        widths = net.integers([[0, 0], [1, 0], [1, 1], [0, 0]])
        net.add("PAD", [x.number, widths], net.like(x, shape), "PadOptions")


def concatenation(net: Network, x: Value) -> None:
    if x.shape[3] < LARGEST // 2:
        y = net.like(x, (*x.shape[:3], 2 * x.shape[3]))
        net.add("CONCATENATION", [x.number] * 2, y, "ConcatenationOptions", Axis=3)


def mean(net: Network, x: Value) -> None:
    shape = (1, 1, x.shape[2], x.shape[3])
    y = net.value(shape, x.scale * 0.6, 4)
    net.add("MEAN", [x.number, net.integers([1])], y, "ReducerOptions", KeepDims=True)


def total(net: Network, x: Value) -> None:
    y = net.value((1, x.shape[1], 1, x.shape[3]), x.scale * 2.3, -11)
    net.add("SUM", [x.number, net.integers([2])], y, "ReducerOptions", KeepDims=True)


def prelu(net: Network, x: Value) -> None:
    slopes = net.random.integers(-128, 128, (1, 1, x.shape[3])).astype(np.int8)
    number = net.file.tensor(slopes.shape, scale=0.004, zero_point=5, data=slopes)
    net.add("PRELU", [x.number, number], net.other(x, 1.1))


def bilinear(net: Network, x: Value) -> None:
    shape = (1, 5, 8, x.shape[3])
    net.add(
        "RESIZE_BILINEAR", [x.number, net.integers(shape[1:3])], net.like(x, shape),
        "ResizeBilinearOptions", HalfPixelCenters=True,
    )  # fmt: skip


def covariance(net: Network, x: Value) -> None:
    """Each row of the image times its transpose."""
    y = net.value((*x.shape[:3], x.shape[2]), x.scale * x.scale * 90, 3)
    net.add("BATCH_MATMUL", [x.number] * 2, y, "BatchMatMulOptions", AdjY=True)


def transpose(net: Network, x: Value) -> None:
    order = [0, 2, 1, 3]
    y = net.like(x, tuple(x.shape[axis] for axis in order))
    net.add("TRANSPOSE", [x.number, net.integers(order)], y, "TransposeOptions")


def resize(net: Network, x: Value) -> None:
    shape = (1, 7, 9, x.shape[3])
    net.add(
        "RESIZE_NEAREST_NEIGHBOR", [x.number, net.integers(shape[1:3])], net.like(x, shape),
        "ResizeNearestNeighborOptions",
    )  # fmt: skip


def every_other_column(net: Network, x: Value) -> None:
    shape = (*x.shape[:2], -(-x.shape[2] // 2), x.shape[3])
    bounds = [net.integers(values) for values in ([0] * 4, [0] * 4, [1, 1, 2, 1])]
    net.add(
        "STRIDED_SLICE", [x.number, *bounds], net.like(x, shape), "StridedSliceOptions",
        BeginMask=15, EndMask=15,
    )  # fmt: skip


STEPS: dict[str, Callable[[Network, Value], None]] = {
    "relu": activation("RELU", None),
    "leaky relu": activation("LEAKY_RELU", None, "LeakyReluOptions", Alpha=0.2),
    "hard swish": activation("HARD_SWISH", None),
    "logistic": activation("LOGISTIC", (1 / 256, -128)),
    "tanh": activation("TANH", (1 / 128, 0)),
    "quantize": activation("QUANTIZE", None, "QuantizeOptions"),
    "add": binary("ADD", "AddOptions"),
    "subtract": binary("SUB", "SubOptions"),
    "multiply": binary("MUL", "MulOptions"),
    "transposed convolution": transposed_convolution,
    "convolution": convolution,
    "average pool": pool("AVERAGE_POOL_2D"),
    "max pool": pool("MAX_POOL_2D"),
    "pad": pad,
    "concatenation": concatenation,
    "mean": mean,
    "sum": total,
    "elu": activation("ELU", None),
    "prelu": prelu,
    "bilinear": bilinear,
    "covariance": covariance,
    "transpose": transpose,
    "resize": resize,
    "strided slice": every_other_column,
}


@EXAMPLES
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=6, max_size=14), seeds)
def test_random_network(steps: list[str], seed: int) -> None:
    net = Network(seed)
    for step in steps:
        STEPS[step](net, net.values[-1])
    last = net.values[-1]
    y = net.value(last.shape, last.scale * 1.05, 1, "y")
    net.add("QUANTIZE", [last.number], y, "QuantizeOptions")
    assert_exact(net.file.finish([net.first.number], [y.number]), SHAPE, seed)
