# SPDX-License-Identifier: Apache-2.0
"""Integer convolutions of data in NCHW, without a transposition.

Ungrouped convolutions are in `gathered`, for both layouts. This file has convolutions with groups
or few output channels: the positions of a result row are computed together, so that the innermost
loop runs along a row of the image.
"""

from __future__ import annotations

from collections.abc import Callable

from umakit.operators.kernels import loops as ir
from umakit.operators.kernels.convolution import Convolution, product
from umakit.operators.kernels.windows import Axis, Span
from umakit.tvm_api import PrimExpr, PrimFunc, Stmt, int32, tirx

UNROLLED = 4
"""Most columns of a window whose products are added in one go."""


def conv2d(layer: Convolution) -> PrimFunc:
    """Return the kernel (data, weights, bias, multipliers, shifts, output) of data in NCHW."""
    vertical, horizontal = layer.axes
    data, weights, bias, *_ = layer.buffers
    accumulator = ir.accumulators(min(ir.TILE, horizontal.outputs), layer.layer.bits)
    outputs, per_group_in = layer.layer.weights.shape[:2]
    per_group_out = outputs // layer.parameters.groups

    def one_row(n: PrimExpr, o: PrimExpr, y: PrimExpr) -> Stmt:
        channel = tirx.floordiv(o, int32(per_group_out)) * int32(per_group_in)
        first_row, row_count = vertical.clipped(y)

        def one_tile(first: PrimExpr, width: ir.Extent) -> Stmt:
            def add_term(c: PrimExpr, ky: PrimExpr, kx: PrimExpr, x: PrimExpr) -> Stmt:
                iy, ix = vertical.source(y, ky), horizontal.source(first + x, kx)
                term = product(
                    data[n, channel + c, iy, ix], weights[o, c, ky, kx], layer.zero_point
                )
                return ir.add_to(accumulator, x, term)

            def weight_row(c: PrimExpr, row: PrimExpr) -> Stmt:
                return _along_row(
                    horizontal, first, width, lambda kx, x: add_term(c, first_row + row, kx, x)
                )

            return ir.sequence(
                tirx.AllocBuffer(accumulator),
                ir.loop("position", width, lambda x: ir.set_to(accumulator, x, bias[o])),
                ir.loops([("input_channel", per_group_in), ("row", row_count)], weight_row),
                ir.loop("position", width, lambda x: layer.store(
                    [n, o, y, first + x], ir.total_of(accumulator, x), o
                )),
            )  # fmt: skip

        return ir.tiles(horizontal.outputs, one_tile)

    extents = [
        ("image", layer.data_shape[0]), ("output_channel", outputs),
        ("output_row", vertical.outputs),
    ]  # fmt: skip
    return ir.kernel(layer.buffers, ir.loops(extents, one_row))


def _along_row(
    axis: Axis, first: PrimExpr, width: ir.Extent, add_term: Callable[[PrimExpr, PrimExpr], Stmt]
) -> Stmt:
    """Return the statements that multiply a row of the window at all positions of a tile.

    If the whole row of the window is inside the image, true except for a few positions at either
    end, one loop adds its products.

    Args:
        add_term: (element of the window, position in the tile) -> statements.
    """

    def one_by_one(elements: Callable[[PrimExpr], list[Span]]) -> Stmt:
        def between(kx: PrimExpr, begin: PrimExpr, end: PrimExpr) -> Stmt:
            return ir.loop("position", end - begin, lambda x: add_term(kx, begin + x))

        return ir.loop(
            "kernel_column",
            axis.extent,
            lambda kx: ir.sequence(*(between(kx, *pair) for pair in elements(kx))),
        )

    if axis.extent > UNROLLED:
        return one_by_one(lambda kx: [_positions(axis, kx, first, width)])
    begin, _ = _positions(axis, int32(0), first, width)
    _, last = _positions(axis, int32(axis.extent - 1), first, width)
    end = tirx.max(begin, last)

    def outside(kx: PrimExpr) -> list[Span]:
        first_of, end_of = _positions(axis, kx, first, width)
        before = [(first_of, tirx.min(begin, end_of))] if axis.reaches_before else []
        return [*before, (end, end_of)] if axis.reaches_after else before

    inside = ir.loop("position", end - begin, lambda x: ir.sequence(*(
        add_term(int32(kx), begin + x) for kx in range(axis.extent)
    )))  # fmt: skip
    return inside if axis.inside else ir.sequence(inside, one_by_one(outside))


def _positions(axis: Axis, element: PrimExpr, first: PrimExpr, width: ir.Extent) -> Span:
    """Return the positions of a tile at which an element of the window is inside the image.

    Returns:
        First position relative to the tile, and end position; the end is smaller for no positions.
    """
    if axis.inside:
        return int32(0), int32(width)
    # Position p reads p * stride + offset, which must lie in [0, size).
    offset = element * int32(axis.dilation) - int32(axis.before)
    begin = tirx.max(_ceiling(int32(0) - offset, axis.stride) - first, int32(0))
    end = tirx.min(_ceiling(int32(axis.size) - offset, axis.stride) - first, int32(width))
    return begin, end


def _ceiling(distance: PrimExpr, stride: int) -> PrimExpr:
    """Return max(0, distance) / stride, rounded up."""
    positive = tirx.max(distance, int32(0))
    if stride == 1:
        return positive
    return tirx.truncdiv(positive + int32(stride - 1), int32(stride))
