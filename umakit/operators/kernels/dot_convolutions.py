# SPDX-License-Identifier: Apache-2.0
"""Convolutions by dot-product instructions: copies of windows, and depthwise convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from umakit import tvm_api
from umakit.operators.kernels import dot_products as dots
from umakit.operators.kernels import loops as ir
from umakit.operators.kernels.convolution import Constants, is_depthwise, window_axes
from umakit.operators.kernels.dot_forms import PREFIX, DotForm
from umakit.operators.kernels.windows import Axis, Span
from umakit.operators.parameters import ConvolutionParameters
from umakit.tvm_api import Buffer, PrimExpr, Stmt, int32, tirx


def suits_convolution(
    form: DotForm,
    parameters: ConvolutionParameters,
    shape: tuple[int, ...],
    dtype: str,
    layer: Constants,
) -> bool:
    """Whether a convolution suits these kernels; depthwise ones have one result per channel."""
    if parameters.layout != "NHWC" or not dots.suits(parameters, dtype, layer):
        return False
    if not is_depthwise(parameters, shape):
        return True
    return shape[3] == len(layer.bias) and layer.weights.min() >= form.least_depthwise_weight


def conv2d(
    form: DotForm,
    parameters: ConvolutionParameters,
    shape: tuple[int, ...],
    dtype: str,
    constants: Constants,
    at_once: int = 0,
    most_sums: int = dots.MOST_SUMS,
) -> dots.Function:
    """Return the kernel of a convolution in NHWC, with any number of groups.

    Args:
        shape: [N, H, W, C] of the data.
        constants: weights int8[O, KH, KW, I / groups].
        at_once: positions multiplied at once; 0 for the maximum.
    """
    if is_depthwise(parameters, shape):
        return _depthwise(form, parameters, shape, dtype, constants)
    layer = dots.Layer.of(form, parameters, dtype, constants, form.window)
    outputs, elements = len(constants.bias) // parameters.groups, constants.weights[0].size
    parts = np.split(constants.weights.reshape(len(constants.bias), -1), parameters.groups)
    packed = np.concatenate([form.packed(part).reshape(-1) for part in parts])
    buffers = layer.buffers(packed)
    axes = window_axes(parameters, shape, constants)
    data = ir.buffer("data", shape, dtype)
    output = ir.buffer("output", parameters.output_shape, parameters.output_dtype)
    positions = (shape[0], axes[0].outputs, axes[1].outputs)
    total, filled = math.prod(positions), form.filled(elements)
    count = min(at_once or form.positions, total)
    copies = not (_is_pointwise(parameters, axes) and dots.lie_as_copied(form, dtype, elements))
    windows = tirx.decl_buffer([count * filled], form.window, "windows", scope="local")
    channels = shape[3] // parameters.groups
    copy = _Copy(form.function(f"copy_{dtype}"), data, windows, axes, channels, layer.zero_point)

    def at_positions(group: ir.Extent, first: PrimExpr) -> Stmt:
        channel = int32(group) * int32(channels)
        in_data = dots.address(data, *ir.unflatten(first, positions), 0)
        here = dots.Windows(
            dots.local_address(windows, 0) if copies else in_data, filled, count, filled,
            lambda p, channel: dots.address(output, *ir.unflatten(first + p, positions), channel),
        )  # fmt: skip
        products = dots.multiply_windows(layer, buffers, here, outputs, most_sums, group)
        if not copies:
            return products
        copied = ir.loop("position", count, lambda p: copy.of(
            ir.unflatten(first + p, positions), p * int32(filled), channel
        ))  # fmt: skip
        return ir.sequence(copied, products)

    body = ir.loop("group", parameters.groups, lambda group: ir.blocks(
        total, lambda first: at_positions(group, first), count, "position_block"
    ))  # fmt: skip
    if copies:
        body = ir.sequence(
            tirx.AllocBuffer(windows), *dots.filled_up(windows, count, elements), body
        )
    function = ir.kernel([data, *buffers, output], body)
    return function, [packed, *layer.constants.arrays()[1:]], form.layout("HWI")


def _is_pointwise(parameters: ConvolutionParameters, axes: tuple[Axis, Axis]) -> bool:
    one = all(axis.extent == 1 and axis.stride == 1 and axis.inside for axis in axes)
    return one and parameters.groups == 1


@dataclass(frozen=True)
class _Copy:
    """Copies of windows, with padding.

    Attributes:
        data: the data, NHWC.
    """

    function: str
    data: Buffer
    windows: Buffer
    axes: tuple[Axis, Axis]
    channels: int
    zero_point: int

    def of(self, place: Sequence[PrimExpr], start: ir.Extent, channel: ir.Extent = 0) -> Stmt:
        """Return statements that copy a window.

        Args:
            start: number of the first element of the copy.
            channel: first channel of the data.
        """
        vertical, horizontal = self.axes
        (_, rows), (_, columns) = self.spans(place)
        whole_rows = horizontal.dilation == 1
        whole_rows = whole_rows and self.channels == tvm_api.buffer_shape(self.data)[3]
        if whole_rows:
            length = columns * int32(self.channels)
            moved = ir.loop(
                "row", rows, lambda row: self._run(place, (row, int32(0)), start, channel, length)
            )
            if horizontal.leaves:  # no copies of negative lengths, from and to outside of arrays
                moved = tirx.IfThenElse(columns > int32(0), moved, None)
        else:
            length = int32(self.channels)
            moved = ir.loops(
                [("row", rows), ("column", columns)],
                lambda *element: self._run(place, element, start, channel, length),
            )
        if self.inside:
            return moved
        size = vertical.extent * horizontal.extent * self.channels
        fill = f"{PREFIX}plain_fill_{tvm_api.buffer_dtype(self.windows)}"
        filling = dots.call(fill, dots.local_address(self.windows, start), size, self.zero_point)
        return ir.sequence(tirx.IfThenElse(self.is_partial(place), filling, None), moved)

    @property
    def inside(self) -> bool:
        """Whether all windows lie inside the data."""
        return all(axis.inside for axis in self.axes)

    def spans(self, place: Sequence[PrimExpr]) -> tuple[Span, Span]:
        """Return the rows and columns of a window inside the data."""
        _, y, x = place
        return self.axes[0].clipped(y), self.axes[1].clipped(x)

    def is_partial(self, place: Sequence[PrimExpr]) -> PrimExpr:
        """Return the condition that a part of a window lies in the padding."""
        (_, rows), (_, columns) = self.spans(place)
        return tirx.Or(rows < int32(self.axes[0].extent), columns < int32(self.axes[1].extent))

    def _run(
        self,
        place: Sequence[PrimExpr],
        element: Sequence[PrimExpr],
        start: ir.Extent,
        channel: ir.Extent,
        length: PrimExpr,
    ) -> Stmt:
        (n, y, x), (vertical, horizontal) = place, self.axes
        (top, _), (left, _) = self.spans(place)
        ky, kx = top + element[0], left + element[1]
        number = (ky * int32(horizontal.extent) + kx) * int32(self.channels) + int32(start)
        source = (n, vertical.source(y, ky), horizontal.source(x, kx), channel)
        return dots.call(
            self.function,
            dots.local_address(self.windows, number),
            dots.address(self.data, *source),
            length,
        )


def _depthwise(
    form: DotForm,
    parameters: ConvolutionParameters,
    shape: tuple[int, ...],
    dtype: str,
    constants: Constants,
) -> dots.Function:
    """Return the kernel of a depthwise convolution, which copies only windows with padding."""
    layer = dots.Layer.of(form, parameters, dtype, constants, dtype)
    channels = shape[3]
    packed = form.packed_depthwise(constants.weights.reshape(channels, -1))
    buffers = layer.buffers(packed)
    data = ir.buffer("data", shape, dtype)
    output = ir.buffer("output", parameters.output_shape, parameters.output_dtype)
    axes = vertical, horizontal = window_axes(parameters, shape, constants)
    size = vertical.extent * horizontal.extent * channels
    windows = tirx.decl_buffer([size], dtype, "window", scope="local")
    sums = tirx.decl_buffer([channels], "int32", "sums", scope="local")
    plain = f"{PREFIX}plain_copy_{dtype}_{dtype}"
    function = form.function("copy_int8") if (dtype, form.window) == ("int8", "int8") else plain
    copy = _Copy(function, data, windows, axes, channels, layer.zero_point)

    def multiply(first: PrimExpr, row_step: int, column_step: int) -> Stmt:
        return dots.call(
            form.function(f"depthwise_{dtype}"), dots.local_address(sums, 0),
            first, row_step, column_step, dots.address(buffers[0], 0),
            vertical.extent, horizontal.extent, channels,
        )  # fmt: skip

    def at(*place: PrimExpr) -> Stmt:
        n, y, x = place
        zero = int32(0)
        start = dots.address(data, n, vertical.source(y, zero), horizontal.source(x, zero), zero)
        row_step = shape[2] * channels * vertical.dilation
        summed = multiply(start, row_step, channels * horizontal.dilation)
        if not copy.inside:
            copied = multiply(
                dots.local_address(windows, 0), horizontal.extent * channels, channels
            )
            summed = tirx.IfThenElse(
                copy.is_partial(place), ir.sequence(copy.of(place, 0), copied), summed
            )
        result = layer.results(
            dots.address(output, n, y, x, 0), dots.local_address(sums, 0), 0, channels, buffers[1:]
        )
        return ir.sequence(summed, result)

    extents = [("image", shape[0]), ("row", vertical.outputs), ("column", horizontal.outputs)]
    allocated = [sums] if copy.inside else [sums, windows]
    body = ir.sequence(*(tirx.AllocBuffer(each) for each in allocated), ir.loops(extents, at, 1))
    arrays = [packed.reshape(-1), *layer.constants.arrays()[1:]]
    layout = f"HWO{form.depthwise_group}i" if form.depthwise_group > 1 else "HWO"
    return ir.kernel([data, *buffers, output], body), arrays, layout
