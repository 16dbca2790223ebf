# SPDX-License-Identifier: Apache-2.0
"""Int8 image networks as TensorFlow Lite files with random weights: real shapes, sane scales.

Nothing here uses umakit. Every activation has the same scale, and weights have such scales that
their sums become values that fill int8: no layer saturates, none yields one number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import tflite
from networks import MOBILENET_BLOCKS, RESNET18_STAGES
from tflite_networks import TfliteFile

SCALE = 0.05
"""Scale of all activations."""

SIGNED, AFTER_RELU = 0, -128
"""Zero points of activations of both signs, and of those without negative ones."""

RELU = tflite.ActivationFunctionType.RELU
SPREAD = 60.0
"""Standard deviation of activations, in steps of their scale."""


@dataclass(frozen=True)
class Image:
    """A tensor of one image.

    Attributes:
        tensor: its number in the file.
        size: height and width.
        channels: of it.
    """

    tensor: int
    size: tuple[int, int]
    channels: int


class ImageNetwork:
    """A network under construction, NHWC, padded as TensorFlow's SAME.

    Args:
        height, width, channels: of the input.
        seed: of weights and scales.
    """

    def __init__(self, height: int, width: int, channels: int, *, seed: int = 0) -> None:
        self._file = TfliteFile()
        self._random = np.random.default_rng(seed)
        x = self._file.tensor(
            [1, height, width, channels], scale=SCALE, zero_point=SIGNED, name="input"
        )
        self.input = Image(x, (height, width), channels)

    def convolution(
        self, x: Image, filters: int, kernel: int, stride: int = 1, *, relu: bool = True
    ) -> Image:
        """A convolution with bias."""
        shape = (filters, kernel, kernel, x.channels)
        return self._layer("CONV_2D", "Conv2DOptions", x, shape, 0, stride, relu)

    def depthwise(self, x: Image, kernel: int, stride: int = 1) -> Image:
        """A depthwise convolution with bias and ReLU."""
        shape = (1, kernel, kernel, x.channels)
        options = "DepthwiseConv2DOptions"
        return self._layer("DEPTHWISE_CONV_2D", options, x, shape, 3, stride, True)

    def addition(self, left: Image, right: Image) -> Image:
        """The sum of two tensors, and ReLU."""
        result = self._image(left.size, left.channels, AFTER_RELU)
        self._file.operator(
            "ADD", [left.tensor, right.tensor], [result.tensor], "AddOptions",
            FusedActivationFunction=RELU,
        )  # fmt: skip
        return result

    def max_pool(self, x: Image, window: int, stride: int) -> Image:
        """The largest value in each window."""
        return self._pool("MAX_POOL_2D", x, window, stride)

    def average_pool(self, x: Image) -> Image:
        """The mean of the whole image."""
        return self._pool("AVERAGE_POOL_2D", x, max(x.size), max(x.size))

    def finish(self, x: Image, classes: int, *, softmax: bool = False) -> bytes:
        """The file, after a fully connected layer, and softmax if that is wanted."""
        inputs = math.prod(x.size) * x.channels
        flat = self._file.tensor([1, inputs], scale=SCALE, zero_point=AFTER_RELU)
        shape = self._file.tensor([2], "int32", data=np.array([1, inputs], np.int32))
        self._file.operator("RESHAPE", [x.tensor, shape], [flat], "ReshapeOptions")
        output = self._file.tensor([1, classes], scale=SCALE, zero_point=SIGNED, name="output")
        constants = self._weights((classes, inputs), 0, per_channel=False)
        self._file.operator(
            "FULLY_CONNECTED", [flat, *constants], [output], "FullyConnectedOptions"
        )
        if softmax:
            logits = output
            output = self._file.tensor([1, classes], scale=1 / 256, zero_point=-128, name="shares")
            self._file.operator("SOFTMAX", [logits], [output], "SoftmaxOptions", Beta=1.0)
        return self._file.finish([self.input.tensor], [output])

    def _layer(
        self,
        code: str,
        options: str,
        x: Image,
        shape: tuple[int, ...],
        axis: int,
        stride: int,
        relu: bool,
    ) -> Image:
        size = (-(-x.size[0] // stride), -(-x.size[1] // stride))
        result = self._image(size, shape[axis], AFTER_RELU if relu else SIGNED)
        steps = {"Padding": tflite.Padding.SAME, "StrideH": stride, "StrideW": stride}
        if axis == 3:
            steps["DepthMultiplier"] = 1
        if relu:
            steps["FusedActivationFunction"] = RELU
        constants = self._weights(shape, axis)
        self._file.operator(code, [x.tensor, *constants], [result.tensor], options, **steps)
        return result

    def _pool(self, code: str, x: Image, window: int, stride: int) -> Image:
        size = (-(-x.size[0] // stride), -(-x.size[1] // stride))
        result = self._image(size, x.channels, AFTER_RELU)
        self._file.operator(
            code, [x.tensor], [result.tensor], "Pool2DOptions", Padding=tflite.Padding.SAME,
            StrideH=stride, StrideW=stride, FilterHeight=window, FilterWidth=window,
        )  # fmt: skip
        return result

    def _image(self, size: tuple[int, int], channels: int, zero_point: int) -> Image:
        shape = [1, *size, channels]
        tensor = self._file.tensor(shape, scale=SCALE, zero_point=zero_point)
        return Image(tensor, size, channels)

    def _weights(
        self, shape: tuple[int, ...], axis: int, *, per_channel: bool = True
    ) -> tuple[int, int]:
        """Constant weights and bias of a layer whose output channels lie along an axis."""
        outputs = shape[axis]
        weights = self._random.integers(-127, 128, shape).astype(np.int8)
        # A sum of that many products of independent values spreads as the root of their number.
        deviation = 127 / math.sqrt(3) * SPREAD * math.sqrt(math.prod(shape) / outputs)
        scales = SPREAD / deviation * self._random.uniform(0.7, 1.4, outputs if per_channel else 1)
        bias = self._random.normal(0, deviation / 4, outputs).astype(np.int32)
        return (
            self._file.tensor(shape, scale=scales, axis=axis, data=weights),
            self._file.tensor([outputs], "int32", scale=SCALE * scales, data=bias),
        )


def mobilenet(size: int = 96, alpha: float = 0.25) -> bytes:
    """MobileNetV1 for `size` x `size` x 3, two classes (A. Howard et al., 2017, table 1)."""
    net = ImageNetwork(size, size, 3)
    x = net.convolution(net.input, int(32 * alpha), 3, 2)
    for filters, stride in MOBILENET_BLOCKS:
        x = net.depthwise(x, 3, stride)
        x = net.convolution(x, int(filters * alpha), 1)
    return net.finish(net.average_pool(x), 2)


def resnet18(size: int = 224, width: int = 64) -> bytes:
    """ResNet-18 for `size` x `size` x 3, 1000 classes (K. He et al., 2015, table 1).

    Args:
        size: of the input.
        width: channels of the first stage; the others have the usual multiples.
    """
    net = ImageNetwork(size, size, 3)
    x = net.max_pool(net.convolution(net.input, width, 7, 2), 3, 2)
    for filters, first_stride in RESNET18_STAGES:
        filters = filters * width // 64
        for stride in (first_stride, 1):
            main = net.convolution(x, filters, 3, stride)
            main = net.convolution(main, filters, 3, relu=False)
            shortcut = x
            if filters != x.channels:
                shortcut = net.convolution(x, filters, 1, stride, relu=False)
            x = net.addition(main, shortcut)
    return net.finish(net.average_pool(x), 1000)


def chain(layers: int, equal: bool) -> bytes:
    """Convolutions of 3x3, one behind the other, on an image of 8 x 8.

    Args:
        layers: how many.
        equal: whether all have 64 channels; else no two have as many: from 16 to 115.
    """
    most = 100
    if layers > most:
        raise ValueError(f"a chain has at most {most} layers")
    net = ImageNetwork(8, 8, 64)
    x = net.input
    for number in range(layers):
        x = net.convolution(x, 64 if equal else 16 + number * most // layers, 3)
    return net.finish(x, 2)
