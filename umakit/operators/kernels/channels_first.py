# SPDX-License-Identifier: Apache-2.0
"""Integer convolutions of data in NCHW, without a transposition.

Ungrouped convolutions are in `gathered`, for both layouts. This file has convolutions with groups
or few output channels: the positions of a result row are computed together, so that the innermost
loop runs along a row of the image.
"""

from __future__ import annotations

from collections.abc import Callable

from umakit import tvm_api
from umakit.operators.kernels.convolution import Constants, product, window_axes
from umakit.operators.kernels.loops import (
    TILE,
    Extent,
    accumulators,
    add_to,
    buffer,
    int32,
    kernel,
    loop,
    loops,
    sequence,
    set_to,
    store_rescaled,
    tiles,
    total_of,
)
from umakit.operators.kernels.windows import Axis, Span
from umakit.operators.parameters import ConvolutionParameters

tirx = tvm_api.tirx

UNROLLED = 4
"""Most columns of a window whose products are added in one go."""


def conv2d(
    parameters: ConvolutionParameters,
    data_shape: tuple[int, ...],
    data_dtype: str,
    layer: Constants,
    zero_point: int,
) -> tvm_api.PrimFunc:
    """Return the kernel (data, weights, bias, multipliers, shifts, output) of a convolution.

    Args:
        parameters: parameters of the operator.
        data_shape: [N, C, H, W].
        data_dtype: dtype of the data.
        layer: the constants; weights are [O, C / groups, KH, KW].
        zero_point: zero point of the data; 0 if the bias includes it.
    """
    vertical, horizontal = window_axes(parameters, data_shape, layer)
    data = buffer("data", data_shape, data_dtype)
    weights, bias, multipliers, shifts = layer.buffers()
    output = buffer("output", parameters.output_shape, parameters.output_dtype)
    accumulator = accumulators(min(TILE, horizontal.outputs), layer.bits)
    outputs, per_group_in = layer.weights.shape[:2]
    per_group_out = outputs // parameters.groups

    def one_row(n: tvm_api.PrimExpr, o: tvm_api.PrimExpr, y: tvm_api.PrimExpr) -> tvm_api.Stmt:
        channel = tirx.floordiv(o, int32(per_group_out)) * int32(per_group_in)
        first_row, row_count = vertical.clipped(y)

        def one_tile(first: tvm_api.PrimExpr, width: Extent) -> tvm_api.Stmt:
            def add_term(
                c: tvm_api.PrimExpr, ky: tvm_api.PrimExpr, kx: tvm_api.PrimExpr, x: tvm_api.PrimExpr
            ) -> tvm_api.Stmt:
                iy, ix = vertical.source(y, ky), horizontal.source(first + x, kx)
                value = data[n, channel + c, iy, ix]
                return add_to(accumulator, x, product(value, weights[o, c, ky, kx], zero_point))

            def weight_row(c: tvm_api.PrimExpr, row: tvm_api.PrimExpr) -> tvm_api.Stmt:
                return _along_row(
                    horizontal, first, width, lambda kx, x: add_term(c, first_row + row, kx, x)
                )

            return sequence(
                tirx.AllocBuffer(accumulator),
                loop("position", width, lambda x: set_to(accumulator, x, bias[o])),
                loops([("input_channel", per_group_in), ("row", row_count)], weight_row),
                loop("position", width, lambda x: store_rescaled(
                    output, [n, o, y, first + x], total_of(accumulator, x),
                    layer.factor(multipliers, shifts, o), parameters,
                )),
            )  # fmt: skip

        return tiles(horizontal.outputs, one_tile)

    extents = [
        ("image", data_shape[0]), ("output_channel", outputs), ("output_row", vertical.outputs),
    ]  # fmt: skip
    return kernel([data, weights, bias, multipliers, shifts, output], loops(extents, one_row))


def _along_row(
    axis: Axis,
    first: tvm_api.PrimExpr,
    width: Extent,
    add_term: Callable[[tvm_api.PrimExpr, tvm_api.PrimExpr], tvm_api.Stmt],
) -> tvm_api.Stmt:
    """Return the statements that multiply a row of the window at all positions of a tile.

    If the whole row of the window is inside the image, true except for a few positions at either
    end, one loop adds its products.

    Args:
        axis: columns of the window.
        first: position of the tile.
        width: width of the tile.
        add_term: (element of the window, position in the tile) -> statements.
    """

    def one_by_one(elements: Callable[[tvm_api.PrimExpr], list[Span]]) -> tvm_api.Stmt:
        def between(
            kx: tvm_api.PrimExpr, begin: tvm_api.PrimExpr, end: tvm_api.PrimExpr
        ) -> tvm_api.Stmt:
            return loop("position", end - begin, lambda x: add_term(kx, begin + x))

        return loop(
            "kernel_column",
            axis.extent,
            lambda kx: sequence(*(between(kx, *pair) for pair in elements(kx))),
        )

    if axis.extent > UNROLLED:
        return one_by_one(lambda kx: [_positions(axis, kx, first, width)])
    begin, _ = _positions(axis, int32(0), first, width)
    _, last = _positions(axis, int32(axis.extent - 1), first, width)
    end = tirx.max(begin, last)

    def outside(kx: tvm_api.PrimExpr) -> list[Span]:
        first_of, end_of = _positions(axis, kx, first, width)
        before = [(first_of, tirx.min(begin, end_of))] if axis.reaches_before else []
        return [*before, (end, end_of)] if axis.reaches_after else before

    inside = loop("position", end - begin, lambda x: sequence(*(
        add_term(int32(kx), begin + x) for kx in range(axis.extent)
    )))  # fmt: skip
    return inside if axis.inside else sequence(inside, one_by_one(outside))


def _positions(
    axis: Axis, element: tvm_api.PrimExpr, first: tvm_api.PrimExpr, width: Extent
) -> Span:
    """Return the positions of a tile at which an element of the window is inside the image.

    Args:
        axis: axis of the window.
        element: element of the window.
        first: position of the tile.
        width: width of the tile.

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


def _ceiling(distance: tvm_api.PrimExpr, stride: int) -> tvm_api.PrimExpr:
    """Return max(0, distance) / stride, rounded up."""
    positive = tirx.max(distance, int32(0))
    if stride == 1:
        return positive
    return tirx.truncdiv(positive + int32(stride - 1), int32(stride))
