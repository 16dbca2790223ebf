# SPDX-License-Identifier: Apache-2.0
"""Integer convolutions as a matrix product: one or two windows times four output channels.

Eight accumulators are in registers: two elements of data and four weights make eight products. The
windows are copied first, like im2col for a whole image, with the zero point subtracted and padding
filled in. The copies have 16-bit numbers, which processors with vector units multiply fastest
(16-bit data minus a zero point takes 32 bits). The copy costs little compared to the products with
all output channels, and makes a window one contiguous run in either layout.
"""

from __future__ import annotations

from collections.abc import Callable

from umakit import tvm_api
from umakit.operators.kernels.convolution import (
    Constants,
    image_size,
    place,
    shifted,
    window_axes,
    window_loops,
)
from umakit.operators.kernels.loops import (
    BLOCK,
    accumulators,
    add_products,
    blocks,
    buffer,
    int32,
    kernel,
    loop,
    loops,
    sequence,
    set_to,
    store_rescaled,
    total_with,
    unflatten,
)
from umakit.operators.kernels.windows import Axis
from umakit.operators.parameters import ConvolutionParameters

tirx = tvm_api.tirx

Position = tuple[tvm_api.PrimExpr, tvm_api.PrimExpr, tvm_api.PrimExpr]
"""Image, row and column of the result."""

POSITIONS = 2
"""Most windows at once."""

SHORT_WINDOW = 8
"""Elements of a window below which other kernels are faster."""


def suits(parameters: ConvolutionParameters, data_shape: tuple[int, ...], layer: Constants) -> bool:
    """Whether the kernel of this file is the fastest."""
    return (
        parameters.groups == 1
        and layer.weights[0].size >= SHORT_WINDOW
        and len(layer.bias) >= BLOCK
    )


def conv2d(
    parameters: ConvolutionParameters,
    data_shape: tuple[int, ...],
    data_dtype: str,
    layer: Constants,
    zero_point: int,
) -> tvm_api.PrimFunc:
    """Kernel (data, weights, bias, multipliers, shifts, output) of an ungrouped convolution.

    Args:
        parameters: parameters of the operator.
        data_shape: shape in the operator's layout.
        data_dtype: dtype of the data.
        layer: the constants, weights in the operator's layout.
        zero_point: zero point of the data.
    """
    outputs, elements = len(layer.bias), layer.weights[0].size
    rows, columns = image_size(parameters, parameters.output_shape)
    positions = data_shape[0] * rows * columns
    count = min(POSITIONS, positions)
    data = buffer("data", data_shape, data_dtype)
    weights, bias, multipliers, shifts = layer.buffers()
    output = buffer("output", parameters.output_shape, parameters.output_dtype)
    accumulator = accumulators(count * BLOCK, layer.bits)
    kind = tvm_api.dtype_of(shifted(data[(int32(0),) * 4], zero_point))
    windows = tirx.decl_buffer([count, elements], kind, "windows", scope="local")

    def position(first: tvm_api.PrimExpr, p: tvm_api.PrimExpr) -> Position:
        n, y, x = unflatten(first + p, (data_shape[0], rows, columns))
        return n, y, x

    def one_block(first: tvm_api.PrimExpr, channel: tvm_api.PrimExpr) -> tvm_api.Stmt:
        def each(
            body: Callable[[tvm_api.PrimExpr, tvm_api.PrimExpr, tvm_api.PrimExpr], tvm_api.Stmt],
        ) -> tvm_api.Stmt:
            return loops(
                [("position", count), ("channel", BLOCK)],
                lambda p, c: body(p, c, p * int32(BLOCK) + c),
            )

        return sequence(
            tirx.AllocBuffer(accumulator),
            loop("sum_index", count * BLOCK, lambda i: set_to(accumulator, i, int32(0))),
            loop("product", elements, lambda i: add_products(
                accumulator,
                [windows[int32(p), i] for p in range(count)],
                [
                    weights[(channel + int32(c), *unflatten(i, layer.weights.shape[1:]))]
                    for c in range(BLOCK)
                ],
            )),
            each(lambda p, c, number: store_rescaled(
                output, place(parameters, *position(first, p), channel + c),
                total_with(accumulator, number, bias[channel + c]),
                layer.factor(multipliers, shifts, channel + c), parameters,
            )),
        )  # fmt: skip

    def at_positions(first: tvm_api.PrimExpr) -> tvm_api.Stmt:
        axes = window_axes(parameters, data_shape, layer)
        copy = loop("position", count, lambda p: _copy(
            parameters, data, zero_point, windows, axes, (position(first, p), p)
        ))  # fmt: skip
        return sequence(
            tirx.AllocBuffer(windows), copy, blocks(outputs, lambda c: one_block(first, c))
        )

    body = blocks(positions, at_positions, count, "position_block")
    return kernel([data, weights, bias, multipliers, shifts, output], body)


def _copy(
    parameters: ConvolutionParameters,
    data: tvm_api.Buffer,
    zero_point: int,
    windows: tvm_api.Buffer,
    axes: tuple[Axis, Axis],
    where: tuple[Position, tvm_api.PrimExpr],
) -> tvm_api.Stmt:
    """Return statements that copy a window in the order of its weights.

    Args:
        parameters: parameters of the operator.
        data: the image.
        zero_point: zero point of the data.
        windows: buffer of the copy, [window, element].
        axes: rows and columns of the window.
        where: (image, row, column) of the window, and its index in `windows`.
    """
    (n, y, x), number = where
    vertical, horizontal = axes
    elements = tvm_api.buffer_shape(windows)[1]
    channels = elements // (vertical.extent * horizontal.extent)
    (first_row, rows), (first_column, columns) = vertical.clipped(y), horizontal.clipped(x)

    def move(row: tvm_api.PrimExpr, column: tvm_api.PrimExpr, i: tvm_api.PrimExpr) -> tvm_api.Stmt:
        ky, kx = first_row + row, first_column + column
        index = (ky * int32(horizontal.extent) + kx) * int32(channels) + i
        if parameters.layout == "NCHW":
            index = (i * int32(vertical.extent) + ky) * int32(horizontal.extent) + kx
        source = place(parameters, n, vertical.source(y, ky), horizontal.source(x, kx), i)
        value = shifted(data[tuple(source)], zero_point)
        return tirx.BufferStore(windows, value, [number, index])

    if parameters.layout == "NCHW":
        moved = loops(
            [("input_channel", channels), ("row", rows), ("column", columns)],
            lambda i, row, column: move(row, column, i),
        )
    else:
        moved = window_loops(rows, columns, channels, horizontal.dilation == 1, move)
    if vertical.inside and horizontal.inside:
        return moved
    zero = tirx.const(0, tvm_api.buffer_dtype(windows))
    fill = loop("product", elements, lambda i: tirx.BufferStore(windows, zero, [number, i]))
    partial = tirx.Or(rows < int32(vertical.extent), columns < int32(horizontal.extent))
    return sequence(tirx.IfThenElse(partial, fill, None), moved)
