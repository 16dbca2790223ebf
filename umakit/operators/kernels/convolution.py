# SPDX-License-Identifier: Apache-2.0
"""Kernels of convolutions in NHWC, and shared parts of kernels of layers with weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from umakit import tvm_api
from umakit.operators.kernels import loops as ir
from umakit.operators.kernels.windows import Axis, Span
from umakit.operators.parameters import ConvolutionParameters, WindowParameters
from umakit.operators.tensors import Array
from umakit.tvm_api import Buffer, PrimExpr, PrimFunc, Stmt, int32, tirx

PositionBody = Callable[[PrimExpr, PrimExpr, PrimExpr, Span, Span], Stmt]
"""(image, row, column, rows of the window, its columns) -> statements."""


SHORT_RUN = 32
"""Products in a row of the window below which output channels make the longer vectors."""


FEW_CHANNELS = 8
"""Output channels below which, in NCHW, positions make the longer vectors."""


@dataclass(frozen=True)
class Constants:
    """The constants of a linear layer.

    Attributes:
        weights: int8 or int16, output channels first.
        bias: int32[O], or int64[O] for 64-bit accumulators.
        multipliers, shifts: one, or one per output channel.
    """

    weights: Array
    bias: Array
    multipliers: Array
    shifts: Array

    def without_zero_point(self, zero_point: int) -> Constants:
        """Move the data's zero point into the bias: sum((x - z) w) = sum(x w) - z sum(w).

        This holds for wrapping integers, if no padding is left out of the sum.
        """
        if zero_point == 0:
            return self
        sums = self.weights.reshape(len(self.bias), -1).astype(np.int64).sum(axis=1)
        moved = (self.bias.astype(np.int64) - zero_point * sums).view(np.uint64)
        bits = np.uint64(2**self.bits - 1)
        bias = (moved & bits).astype(f"uint{self.bits}").view(self.bias.dtype)
        return Constants(self.weights, bias, self.multipliers, self.shifts)

    @property
    def bits(self) -> int:
        """Number of bits of accumulators."""
        return 8 * self.bias.itemsize

    def arrays(self) -> list[Array]:
        """The constants in the order of a kernel's parameters."""
        return [self.weights, self.bias, self.multipliers, self.shifts]

    def buffers(self) -> list[Buffer]:
        """Return the buffers of a kernel's parameters for the constants."""
        names = ("weights", "bias", "multipliers", "shifts")
        return [
            ir.buffer(name, array.shape, str(array.dtype))
            for name, array in zip(names, self.arrays(), strict=True)
        ]

    def factor(
        self, multipliers: Buffer, shifts: Buffer, channel: PrimExpr
    ) -> tuple[PrimExpr, PrimExpr]:
        """Return the multiplier and shift of a channel's accumulator."""
        index = channel if self.multipliers.size > 1 else int32(0)
        return multipliers[index], shifts[index]


def constants_of(call: tvm_api.Call) -> Constants:
    """Return the constants among the operands of a call: all operands but the data."""
    arrays = [tvm_api.constant_array(argument) for argument in call.args[1:]]
    weights, bias, multipliers, shifts = (array for array in arrays if array is not None)
    return Constants(weights, bias, multipliers, shifts)


def as_operands(arrays: Sequence[Array]) -> list[tvm_api.GenericConst]:
    """Return arrays as constants of Relax."""
    return [tvm_api.relax.const(np.ascontiguousarray(a), str(a.dtype)) for a in arrays]


def product(data: PrimExpr, weight: PrimExpr, zero_point: int) -> PrimExpr:
    """Return (data - zero point) * weight in 32 bits, with 16-bit factors visible to compilers."""
    return int32(shifted(data, zero_point)) * int32(weight.astype("int16"))


def shifted(data: PrimExpr, zero_point: int) -> PrimExpr:
    """Return data - zero point in 16 bits, or in 32 bits if 16 bits do not suffice."""
    dtype = tvm_api.dtype_of(data)
    if dtype == "uint16" or (dtype == "int16" and zero_point):
        return int32(data) - int32(zero_point)
    value = data.astype("int16")
    return value - tirx.IntImm("int16", zero_point) if zero_point else value


def image_size(parameters: WindowParameters, shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of data, a result or a window in the operator's layout."""
    return (shape[2], shape[3]) if parameters.layout == "NCHW" else (shape[1], shape[2])


def channel_count(parameters: WindowParameters, shape: tuple[int, ...]) -> int:
    """Channels of data or a result in the operator's layout."""
    return shape[1] if parameters.layout == "NCHW" else shape[3]


def place(
    parameters: WindowParameters, n: PrimExpr, y: PrimExpr, x: PrimExpr, c: PrimExpr
) -> list[PrimExpr]:
    """Indices of an element of data or a result in the operator's layout."""
    return [n, c, y, x] if parameters.layout == "NCHW" else [n, y, x, c]


def window_axes(
    parameters: ConvolutionParameters, data_shape: tuple[int, ...], layer: Constants
) -> tuple[Axis, Axis]:
    """Rows and columns of a convolution's window."""
    height, width = image_size(parameters, data_shape)
    kernel_height, kernel_width = image_size(parameters, layer.weights.shape)
    top, left, _, _ = parameters.padding
    rows, columns = image_size(parameters, parameters.output_shape)
    (vertical, horizontal), (down, right) = parameters.strides, parameters.dilation
    return (
        Axis(height, rows, kernel_height, vertical, down, top),
        Axis(width, columns, kernel_width, horizontal, right, left),
    )


@dataclass(frozen=True)
class Convolution:
    """A convolution, with the parts that all its kernels share.

    Attributes:
        data_shape: shape of the data in the operator's layout.
        layer: the constants, weights in the operator's layout.
        zero_point: zero point of the data; 0 if the bias includes it.
    """

    parameters: ConvolutionParameters
    data_shape: tuple[int, ...]
    data_dtype: str
    layer: Constants
    zero_point: int

    @cached_property
    def axes(self) -> tuple[Axis, Axis]:
        """Rows and columns of the window."""
        return window_axes(self.parameters, self.data_shape, self.layer)

    @cached_property
    def buffers(self) -> list[Buffer]:
        """Data, weights, bias, multipliers, shifts and output: the parameters of a kernel."""
        data = ir.buffer("data", self.data_shape, self.data_dtype)
        output = ir.buffer("output", self.parameters.output_shape, self.parameters.output_dtype)
        return [data, *self.layer.buffers(), output]

    @property
    def depthwise(self) -> bool:
        """Whether each group has one input channel."""
        return is_depthwise(self.parameters, self.data_shape)

    @property
    def pads(self) -> bool:
        """Whether a window reaches outside the image."""
        return not all(axis.inside for axis in self.axes)

    def store(self, place: list[PrimExpr], total: PrimExpr, channel: PrimExpr) -> Stmt:
        """Rescale the sum of an output channel and store it."""
        *_, multipliers, shifts, output = self.buffers
        factor = self.layer.factor(multipliers, shifts, channel)
        return ir.store_rescaled(output, place, total, factor, self.parameters)


def conv2d(layer: Convolution) -> PrimFunc:
    """Return the kernel (data, weights, bias, multipliers, shifts, output) of data in NHWC.

    The accumulators of a block of output channels are in registers, so that an element of the data
    is loaded once for the block. If possible, a row of the window and its channels are one
    contiguous run.
    """
    groups, (vertical, horizontal) = layer.parameters.groups, layer.axes
    data, weights, bias, *_ = layer.buffers
    inputs, outputs = layer.data_shape[3] // groups, layer.parameters.output_shape[3] // groups
    block = min(ir.BLOCK, outputs)
    accumulator = ir.accumulators(block, layer.layer.bits)
    contiguous = groups == 1 and horizontal.dilation == 1

    def one_position(n: PrimExpr, y: PrimExpr, x: PrimExpr, rows: Span, columns: Span) -> Stmt:
        def one_block(first: PrimExpr) -> Stmt:
            channel = tirx.floordiv(first, int32(outputs)) * int32(inputs)

            def terms(row: PrimExpr, column: PrimExpr, i: PrimExpr) -> Stmt:
                ky, kx = rows[0] + row, columns[0] + column
                iy, ix = vertical.source(y, ky), horizontal.source(x, kx)
                return ir.add_products(
                    accumulator, [shifted(data[n, iy, ix, channel + i], layer.zero_point)],
                    [weights[first + int32(c), ky, kx, i] for c in range(block)],
                )  # fmt: skip

            return ir.sequence(
                tirx.AllocBuffer(accumulator),
                ir.loop("channel", block, lambda c: ir.set_to(accumulator, c, bias[first + c])),
                window_loops(rows[1], columns[1], inputs, contiguous, terms),
                ir.loop("channel", block, lambda c: layer.store(
                    [n, y, x, first + c], ir.total_of(accumulator, c), first + c
                )),
            )  # fmt: skip

        return ir.loop(
            "group", groups,
            lambda group: ir.blocks(
                outputs, lambda first: one_block(group * int32(outputs) + first)
            ),
        )  # fmt: skip

    body = at_positions(layer.data_shape[0], vertical, horizontal, one_position)
    return ir.kernel(layer.buffers, body)


def window_loops(
    rows: PrimExpr, columns: PrimExpr, channels: int, contiguous: bool, body: Callable[..., Stmt]
) -> Stmt:
    """Loops over a window.

    Args:
        contiguous: whether a row of the window and its channels are one run in memory, and one
            loop.
        body: (row, column, channel) -> statements.
    """
    if not contiguous:
        return ir.loops([("row", rows), ("column", columns), ("input_channel", channels)], body)

    def run(row: PrimExpr, i: PrimExpr) -> Stmt:
        return body(row, tirx.floordiv(i, int32(channels)), tirx.floormod(i, int32(channels)))

    return ir.loops([("row", rows), ("product", columns * channels)], run)


def at_positions(batch: int, vertical: Axis, horizontal: Axis, body: PositionBody) -> Stmt:
    """Loops over all positions of a window.

    Args:
        body: (image, row, column) -> statements.
    """

    def position(n: PrimExpr, y: PrimExpr, x: PrimExpr) -> Stmt:
        return body(n, y, x, vertical.clipped(y), horizontal.clipped(x))

    rows, columns = vertical.outputs, horizontal.outputs
    extents = [("image", batch), ("output_row", rows), ("output_column", columns)]
    return ir.loops(extents, position)


def tiled_conv2d(layer: Convolution) -> PrimFunc:
    """Return the kernel of `conv2d` that computes a tile of output channels together.

    The kernel is faster for depthwise convolutions in NHWC, and for convolutions with windows too
    small for `gathered`. Weights are ordered by `channels_last`, so that the innermost loop, over
    output channels, is contiguous.
    """
    parameters, (vertical, horizontal) = layer.parameters, layer.axes
    channels = channel_count(parameters, layer.data_shape)
    outputs = channel_count(parameters, parameters.output_shape)
    last = channels_last(parameters, layer.layer.weights)
    weights = ir.buffer("weights", last.shape, str(last.dtype))
    data, _, bias, *others = layer.buffers
    accumulator = ir.accumulators(min(ir.TILE, outputs), layer.layer.bits)

    def one_position(n: PrimExpr, y: PrimExpr, x: PrimExpr, rows: Span, columns: Span) -> Stmt:
        def term(row: PrimExpr, column: PrimExpr, i: PrimExpr, channel: PrimExpr) -> PrimExpr:
            ky, kx = rows[0] + row, columns[0] + column
            source = tirx.floordiv(channel, int32(outputs // channels)) if layer.depthwise else i
            iy, ix = vertical.source(y, ky), horizontal.source(x, kx)
            value = data[tuple(place(parameters, n, iy, ix, source))]
            return product(value, weights[ky, kx, i, channel], layer.zero_point)

        def one_tile(first: PrimExpr, width: ir.Extent) -> Stmt:
            window = [("row", rows[1]), ("column", columns[1]), ("input_channel", last.shape[2])]
            return ir.sequence(
                tirx.AllocBuffer(accumulator),
                ir.loop("channel", width, lambda c: ir.set_to(accumulator, c, bias[first + c])),
                ir.loops([*window, ("channel", width)], lambda row, column, i, c: ir.add_to(
                    accumulator, c, term(row, column, i, first + c)
                )),
                ir.loop("channel", width, lambda c: layer.store(
                    place(parameters, n, y, x, first + c), ir.total_of(accumulator, c), first + c
                )),
            )  # fmt: skip

        return ir.tiles(outputs, one_tile)

    body = at_positions(layer.data_shape[0], vertical, horizontal, one_position)
    return ir.kernel([data, weights, bias, *others], body)


def channels_last(parameters: ConvolutionParameters, weights: Array) -> Array:
    """Weights as [KH, KW, I, O]."""
    order = (2, 3, 1, 0) if parameters.layout == "NCHW" else (1, 2, 3, 0)
    return np.ascontiguousarray(weights.transpose(order))


def is_depthwise(parameters: ConvolutionParameters, data_shape: tuple[int, ...]) -> bool:
    """Whether each group has one input channel."""
    return parameters.groups == channel_count(parameters, data_shape) and parameters.groups > 1


def suits_tiles(layer: Convolution) -> bool:
    """Whether `tiled_conv2d` is the fastest kernel."""
    outputs = len(layer.layer.bias)
    if layer.parameters.layout == "NCHW":
        return layer.parameters.groups == 1 and outputs >= FEW_CHANNELS
    if layer.depthwise:
        return True
    run = layer.layer.weights[0, 0].size
    return layer.parameters.groups == 1 and run < SHORT_RUN <= 2 * outputs
