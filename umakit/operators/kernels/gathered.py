# SPDX-License-Identifier: Apache-2.0
"""Integer convolutions as a matrix product: one or two windows times four output channels.

Eight accumulators are in registers: two elements of data and four weights make eight products. The
windows are copied first, like im2col for a whole image, with the zero point subtracted and padding
filled in. The copies have 16-bit numbers, which processors with vector units multiply fastest
(16-bit data minus a zero point takes 32 bits). The copy costs little compared to the products with
all output channels, and makes a window one contiguous run in either layout.
"""

from __future__ import annotations

import math

from umakit import tvm_api
from umakit.operators.kernels import loops as ir
from umakit.operators.kernels.convolution import (
    Convolution,
    image_size,
    place,
    shifted,
    window_loops,
)
from umakit.tvm_api import Buffer, PrimExpr, PrimFunc, Stmt, int32, tirx

Position = tuple[PrimExpr, PrimExpr, PrimExpr]
"""Image, row and column of the result."""

POSITIONS = 2
"""Most windows at once."""

SHORT_WINDOW = 8
"""Elements of a window below which other kernels are faster."""


def suits(layer: Convolution) -> bool:
    """Whether the kernel of this file is the fastest."""
    weights = layer.layer.weights
    return (
        layer.parameters.groups == 1
        and weights[0].size >= SHORT_WINDOW
        and len(weights) >= ir.BLOCK
    )


def conv2d(layer: Convolution) -> PrimFunc:
    """Kernel (data, weights, bias, multipliers, shifts, output) of an ungrouped convolution."""
    shape = layer.layer.weights.shape
    outputs, elements = len(layer.layer.bias), math.prod(shape[1:])
    rows, columns = image_size(layer.parameters, layer.parameters.output_shape)
    places = (layer.data_shape[0], rows, columns)
    count = min(POSITIONS, math.prod(places))
    data, weights, bias, *_ = layer.buffers
    accumulator = ir.accumulators(count * ir.BLOCK, layer.layer.bits)
    kind = tvm_api.dtype_of(shifted(data[(int32(0),) * 4], layer.zero_point))
    windows = tirx.decl_buffer([count, elements], kind, "windows", scope="local")

    def position(first: PrimExpr, p: PrimExpr) -> Position:
        n, y, x = ir.unflatten(first + p, places)
        return n, y, x

    def one_block(first: PrimExpr, channel: PrimExpr) -> Stmt:
        def result(p: PrimExpr, c: PrimExpr) -> Stmt:
            total = ir.total_with(accumulator, p * int32(ir.BLOCK) + c, bias[channel + c])
            at = place(layer.parameters, *position(first, p), channel + c)
            return layer.store(at, total, channel + c)

        def products(i: PrimExpr) -> Stmt:
            factors = [
                weights[(channel + int32(c), *ir.unflatten(i, shape[1:]))] for c in range(ir.BLOCK)
            ]
            return ir.add_products(
                accumulator, [windows[int32(p), i] for p in range(count)], factors
            )

        return ir.sequence(
            tirx.AllocBuffer(accumulator),
            ir.loop("sum_index", count * ir.BLOCK, lambda i: ir.set_to(accumulator, i, int32(0))),
            ir.loop("product", elements, products),
            ir.loops([("position", count), ("channel", ir.BLOCK)], result),
        )

    def at_positions(first: PrimExpr) -> Stmt:
        copy = ir.loop("position", count, lambda p: _copy(layer, windows, position(first, p), p))
        return ir.sequence(
            tirx.AllocBuffer(windows), copy, ir.blocks(outputs, lambda c: one_block(first, c))
        )

    body = ir.blocks(math.prod(places), at_positions, count, "position_block")
    return ir.kernel(layer.buffers, body)


def _copy(layer: Convolution, windows: Buffer, place_of: Position, number: PrimExpr) -> Stmt:
    """Return statements that copy a window in the order of its weights.

    Args:
        windows: buffer of the copy, [window, element].
    """
    (n, y, x), (vertical, horizontal) = place_of, layer.axes
    elements = tvm_api.buffer_shape(windows)[1]
    channels = elements // (vertical.extent * horizontal.extent)
    (first_row, rows), (first_column, columns) = vertical.clipped(y), horizontal.clipped(x)
    planes = layer.parameters.layout == "NCHW"

    def move(row: PrimExpr, column: PrimExpr, i: PrimExpr) -> Stmt:
        ky, kx = first_row + row, first_column + column
        index = (ky * int32(horizontal.extent) + kx) * int32(channels) + i
        if planes:
            index = (i * int32(vertical.extent) + ky) * int32(horizontal.extent) + kx
        source = place(layer.parameters, n, vertical.source(y, ky), horizontal.source(x, kx), i)
        value = shifted(layer.buffers[0][tuple(source)], layer.zero_point)
        return tirx.BufferStore(windows, value, [number, index])

    if planes:
        moved = ir.loops(
            [("input_channel", channels), ("row", rows), ("column", columns)],
            lambda i, row, column: move(row, column, i),
        )
    else:
        moved = window_loops(rows, columns, channels, horizontal.dilation == 1, move)
    if not layer.pads:
        return moved
    zero = tirx.const(0, tvm_api.buffer_dtype(windows))
    fill = ir.loop("product", elements, lambda i: tirx.BufferStore(windows, zero, [number, i]))
    partial = tirx.Or(rows < int32(vertical.extent), columns < int32(horizontal.extent))
    return ir.sequence(tirx.IfThenElse(partial, fill, None), moved)
