# SPDX-License-Identifier: Apache-2.0
"""Kernels of pools, of data in either layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from umakit.operators.kernels import loops as ir
from umakit.operators.kernels.convolution import at_positions, channel_count, image_size, place
from umakit.operators.kernels.windows import Axis, Span
from umakit.operators.parameters import Pair, Pool2d
from umakit.operators.registry import KernelOfOperands, Shapes
from umakit.tvm_api import Buffer, PrimExpr, PrimFunc, Stmt, int32, tirx


def pool_of_operands(reduction: Callable[[int, PrimExpr], WindowReduction]) -> KernelOfOperands:
    """Return a function that makes the kernel (data, output) of a pool without change of scale."""

    def function(parameters: Any, shapes: Shapes, dtypes: list[str]) -> PrimFunc:
        output = ir.buffer("output", parameters.output_shape, parameters.output_dtype)

        def store(at: list[PrimExpr], value: PrimExpr, _: PrimExpr) -> Stmt:
            return ir.store_clipped(output, at, value, parameters)

        dilation = getattr(parameters, "dilation", (1, 1))
        return pool_kernel(parameters, shapes[0], dtypes[0], [output], reduction, store, dilation)

    return function


def pool_kernel(
    parameters: Pool2d,
    data_shape: tuple[int, ...],
    data_dtype: str,
    results: list[Buffer],
    reduction: Callable[[int, PrimExpr], WindowReduction],
    store: Callable[[list[PrimExpr], PrimExpr, PrimExpr], Stmt],
    dilation: Pair = (1, 1),
) -> PrimFunc:
    """Return the kernel (data, results) of a pool.

    In NHWC the channels of a position are computed together, in NCHW one after the other.

    Args:
        data_shape: [N, H, W, C] or [N, C, H, W], by the layout of the parameters.
        results: buffers after the data, the output last.
        reduction: (channels computed together, elements of the window) -> the reduction.
        store: (indices, int32 result, elements of the window) -> statement.
    """
    batch, channels = data_shape[0], channel_count(parameters, data_shape)
    planes = parameters.layout == "NCHW"
    data = ir.buffer("data", data_shape, data_dtype)
    vertical, horizontal = _axes(parameters, data_shape, dilation)

    def one_position(
        image: PrimExpr, y: PrimExpr, x: PrimExpr, in_rows: Span, in_columns: Span
    ) -> Stmt:
        elements = in_rows[1] * in_columns[1]
        n = tirx.floordiv(image, int32(channels)) if planes else image

        def element(row: PrimExpr, column: PrimExpr, c: PrimExpr) -> PrimExpr:
            iy = vertical.source(y, in_rows[0] + row)
            ix = horizontal.source(x, in_columns[0] + column)
            return int32(data[tuple(place(parameters, n, iy, ix, c))])

        def one_tile(first: PrimExpr, width: ir.Extent) -> Stmt:
            kind = reduction(1 if planes else min(ir.TILE, channels), elements)
            window = [("row", in_rows[1]), ("column", in_columns[1]), ("channel", width)]
            return ir.sequence(
                tirx.AllocBuffer(kind.results),
                ir.loop("channel", width, kind.start),
                ir.loops(window, lambda row, column, c: kind.update(
                    c, element(row, column, first + c)
                )),
                ir.loop("channel", width, lambda c: kind.finish(c, lambda value: store(
                    place(parameters, n, y, x, first + c), value, elements
                ))),
            )  # fmt: skip

        if planes:
            return one_tile(tirx.floormod(image, int32(channels)), 1)
        return ir.tiles(channels, one_tile)

    images = batch * channels if planes else batch
    body = at_positions(images, vertical, horizontal, one_position)
    return ir.kernel([data, *results], body)


def _axes(parameters: Pool2d, data_shape: tuple[int, ...], dilation: Pair) -> tuple[Axis, Axis]:
    sizes, outputs = (
        image_size(parameters, data_shape),
        image_size(parameters, parameters.output_shape),
    )
    vertical, horizontal = (
        Axis(
            sizes[axis], outputs[axis], parameters.window[axis], parameters.strides[axis],
            dilation[axis],
            parameters.padding[axis],
        )
        for axis in range(2)
    )  # fmt: skip
    return vertical, horizontal


@dataclass(frozen=True)
class WindowReduction:
    """The reduction of a window to one number, for each of several channels.

    Attributes:
        results: local array with one element per channel.
        start: channel -> statement before the window.
        update: (channel, int32 element of the window) -> statement.
        finish: (channel, int32 result -> statement) -> statements after the window.
    """

    results: Buffer
    start: Callable[[PrimExpr], Stmt]
    update: Callable[[PrimExpr, PrimExpr], Stmt]
    finish: Callable[[PrimExpr, Callable[[PrimExpr], Stmt]], Stmt]


def largest(channels: int, count: PrimExpr) -> WindowReduction:
    """Return the reduction to the largest element of a window."""
    results = tirx.decl_buffer([channels], "int32", "largest", scope="local")
    return WindowReduction(
        results,
        lambda c: tirx.BufferStore(results, int32(-(2**31)), [c]),
        lambda c, value: tirx.BufferStore(results, tirx.max(results[c], value), [c]),
        lambda c, store: store(results[c]),
    )
