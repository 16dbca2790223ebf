# SPDX-License-Identifier: Apache-2.0
"""The sizes of a layer that determine its possible tilings."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache

from umakit import patterns
from umakit.machine.systolic import Product


class Kind(Enum):
    """The operation of a layer; a fully connected layer is a convolution of a one-column image."""

    CONVOLUTION = "convolution"
    DEPTHWISE = "depthwise"
    MAX_POOL = "max_pool"
    AVERAGE_POOL = "average_pool"


@dataclass(frozen=True)
class Layer:
    """The sizes of a layer. Pairs are (along height, along width).

    Attributes:
        kind: operation.
        images: batch size.
        input_size, output_size: height and width of the input and of the output.
        input_channels, output_channels: channels of an image of the input and of the output.
        kernel, strides, dilation: parameters of the window.
        padding: rows above and columns left of the image.
        channels_first: whether input and output have the layout NCHW instead of NHWC.
        scales: number of requantization multipliers: 1, or one per output channel; 0 for pools.
        stored_channels: output channels, including those that pad the last block of weights.
        adds: whether the layer adds a second tensor of the output's shape to the result.
    """

    kind: Kind
    images: int
    input_size: tuple[int, int]
    output_size: tuple[int, int]
    input_channels: int
    output_channels: int
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    channels_first: bool = False
    scales: int = 1
    stored_channels: int = 0
    adds: bool = False

    @classmethod
    def of(cls, composite: patterns.Composite) -> Layer:
        """Take the sizes from a composite of `umakit.patterns`.

        Composites are `QConv2d`, `QDepthwise`, `QDense`, `QMaxPool2d` and `QAveragePool2d`.

        Raises:
            TypeError: the composite is of another kind.
        """
        if isinstance(composite, patterns.QDense):
            return _dense(composite)
        if isinstance(composite, patterns.QConv2d | patterns.QDepthwise):
            return _convolution(composite)
        if isinstance(composite, patterns.QPool2d):
            return _pool(composite)
        raise TypeError(f"{type(composite).__name__} is not cut into tiles")

    @property
    def is_pool(self) -> bool:
        """Whether the layer is a pooling layer, which has no weights."""
        return self.kind in (Kind.MAX_POOL, Kind.AVERAGE_POOL)

    @property
    def per_channel(self) -> bool:
        """Whether output channel o reads only input channel o / multiplier."""
        return self.kind is not Kind.CONVOLUTION

    @property
    def multiplier(self) -> int:
        """The number of output channels per input channel of a depthwise layer."""
        return self.output_channels // self.input_channels

    @property
    def window(self) -> int:
        """The number of positions of the kernel."""
        return self.kernel[0] * self.kernel[1]

    @property
    def product(self) -> Product:
        """The matrix product of one image; for a depthwise convolution, k counts one channel."""
        height, width = self.output_size
        k = self.window * (1 if self.per_channel else self.input_channels)
        return Product(height * width, self.output_channels, k)

    @property
    def macs(self) -> int:
        """The number of multiply-accumulates of all images; 0 for pools."""
        return 0 if self.is_pool else self.images * self.product.macs

    @property
    def data_bytes(self) -> int:
        """The size of the input in bytes."""
        return self.images * self.input_size[0] * self.input_size[1] * self.input_channels

    @property
    def result_bytes(self) -> int:
        """The size of the output in bytes."""
        return self.images * self.output_size[0] * self.output_size[1] * self.output_channels

    @property
    def weights_bytes(self) -> int:
        """The size of the weights in the array's layout in bytes; 0 for pools."""
        return self.weights_of(self.stored_channels)

    def weights_of(self, channels: int) -> int:
        """Return the bytes of the weights of some output channels."""
        if self.is_pool:
            return 0
        inputs = 1 if self.per_channel else self.input_channels
        return self.window * inputs * channels

    @property
    def stored_scales(self) -> int:
        """The number of multipliers in memory, and of shifts."""
        return self.stored_channels if self.scales > 1 else self.scales

    @property
    def parameters_bytes(self) -> int:
        """The total size of bias, multipliers and shifts in bytes."""
        return self._parameters_of(self.stored_channels)

    @property
    def parameter_sizes(self) -> tuple[int, ...]:
        """The sizes of bias, multipliers and shifts in bytes; empty for pools."""
        if self.is_pool:
            return ()
        return 4 * self.stored_channels, 4 * self.stored_scales, self.stored_scales

    def _parameters_of(self, channels: int) -> int:
        if self.is_pool:
            return 0
        return 4 * channels + 5 * (channels if self.scales > 1 else self.scales)

    def _covered(self, axis: int) -> int:
        """Return the number of rows or columns of the data inside windows."""
        return _elements_covered(
            self.input_size[axis], self.output_size[axis], self.kernel[axis], self.strides[axis],
            self.padding[axis], self.dilation[axis],
        )  # fmt: skip

    @property
    def compulsory_bytes(self) -> int:
        """The number of bytes of operands and result that cross the bus at least once.

        Only rows and columns of the data inside windows count: strides may be larger than windows.
        Weights, bias, multipliers and shifts count without the padding of blocks of weights.
        """
        return sum(self.compulsory.values())

    @property
    def compulsory(self) -> dict[str, int]:
        """The compulsory bytes of each tensor, by its name in `TENSORS`."""
        (height, width), (rows, columns) = self.input_size, map(self._covered, (0, 1))
        data = self.data_bytes // (height * width) * rows * columns
        return {
            "data": data,
            "weights": self.weights_of(self.output_channels),
            "parameters": self._parameters_of(self.output_channels),
            "addend": self.result_bytes if self.adds else 0,
            "result": self.result_bytes,
        }

    @property
    def stored(self) -> dict[str, int]:
        """The compulsory bytes by tensor, with the padding of blocks of weights."""
        constants = {"weights": self.weights_bytes, "parameters": self.parameters_bytes}
        return {**self.compulsory, **constants}

    @property
    def stored_bytes(self) -> int:
        """The compulsory bytes, with the padding of blocks of weights."""
        return sum(self.stored.values())


@cache
def _elements_covered(
    size: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int
) -> int:
    covered = {
        output * stride - padding + tap * dilation
        for output in range(outputs)
        for tap in range(kernel)
    }
    return len(covered & set(range(size)))


def _dense(dense: patterns.QDense) -> Layer:
    """Return a fully connected layer as a 1x1 convolution of an image of one column."""
    size = (dense.rows, 1)
    return Layer(
        Kind.CONVOLUTION, 1, size, size, dense.inputs, dense.outputs, (1, 1),
        scales=_scales(dense), stored_channels=dense.outputs + dense.fill,
    )  # fmt: skip


def _convolution(conv: patterns.QConv2d | patterns.QDepthwise) -> Layer:
    is_depthwise = isinstance(conv, patterns.QDepthwise)
    return Layer(
        Kind.DEPTHWISE if is_depthwise else Kind.CONVOLUTION, *_sizes(conv), conv.kernel,
        *_window(conv), conv.dilation, conv.data_layout == "NCHW", _scales(conv),
        conv.output_channels + conv.fill, isinstance(conv, patterns.QConv2dAdd),
    )  # fmt: skip


def _scales(weighted: patterns.Weighted) -> int:
    """Return the number of multipliers; one channel's multiplier may be expanded to a block."""
    if weighted.scales > 1 or not weighted.expanded:
        return weighted.scales
    return int(weighted.stored_shapes["multipliers"][0])


def _pool(pool: patterns.QPool2d) -> Layer:
    is_maximum = isinstance(pool, patterns.QMaxPool2d)
    return Layer(
        Kind.MAX_POOL if is_maximum else Kind.AVERAGE_POOL, *_sizes(pool), pool.window,
        *_window(pool), channels_first=pool.data_layout == "NCHW", scales=0,
        stored_channels=pool.output_channels,
    )  # fmt: skip


def _sizes(
    composite: patterns.QConvolution | patterns.QPool2d,
) -> tuple[int, tuple[int, int], tuple[int, int], int, int]:
    return (
        composite.batch,
        (composite.height, composite.width),
        (composite.output_height, composite.output_width),
        composite.input_channels,
        composite.output_channels,
    )


def _window(
    composite: patterns.QConvolution | patterns.QPool2d,
) -> tuple[tuple[int, int], tuple[int, int]]:
    top, left, *_ = composite.padding
    return composite.strides, (top, left)
