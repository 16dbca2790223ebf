# SPDX-License-Identifier: Apache-2.0
"""Integer pools, of data in either layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from umakit import tvm_api
from umakit.lower.integer.convolution import at_positions, channel_count, image_size, place
from umakit.operators.kernels.loops import (
    TILE,
    accumulators,
    add_element_to,
    buffer,
    buffers,
    int32,
    kernel,
    loop,
    loops,
    sequence,
    set_to,
    store_clipped,
    store_rescaled,
    tiles,
)
from umakit.operators.kernels.windows import Axis
from umakit.quantization.onnx_operators import DilatedMaxPool2d, MeanPool2d
from umakit.quantization.operators import AveragePool2d, Pool2d

tirx = tvm_api.tirx


def pool2d(known: Pool2d, data_shape: tuple[int, ...], data_dtype: str) -> Any:
    """Kernel (data, output) of an average or max pool; padding does not take part.

    Args:
        known: parameters of the operator.
        data_shape: [N, H, W, C] or [N, C, H, W], as the parameters say.
        data_dtype: of the data.
    """
    output = buffer("output", known.output_shape, known.output_dtype)
    pool = _average if isinstance(known, AveragePool2d) else _largest

    def store(at: list[Any], value: Any, _: Any) -> Any:
        return store_clipped(output, at, value, known)

    return _pool(known, data_shape, data_dtype, [output], pool, store)


def mean_pool2d(known: MeanPool2d, shapes: list[tuple[int, ...]], dtypes: list[str]) -> Any:
    """Kernel (data, multipliers, shifts, output) of a mean with another scale than the data's.

    Args:
        known: parameters of the operator.
        shapes, dtypes: of data, multipliers and shifts.
    """
    by = buffers(("multipliers", "shifts"), shapes[1:], dtypes[1:])
    output = buffer("output", known.output_shape, known.output_dtype)

    def sums(channels: int, _: Any) -> _Kind:
        total = accumulators(channels)
        return _Kind(
            total,
            lambda c: set_to(total, c, int32(0)),
            lambda c, value: add_element_to(total, c, value - int32(known.input_zero_point)),
            lambda c, store: store(int32(total[c])),
        )

    def store(at: list[Any], value: Any, elements: Any) -> Any:
        index = int32(0) if known.counts_padding else elements - int32(1)
        return store_rescaled(output, at, value, (by[0][index], by[1][index]), known)

    return _pool(known, shapes[0], dtypes[0], [*by, output], sums, store)


def _pool(
    known: Pool2d, data_shape: tuple[int, ...], data_dtype: str, results: list[Any],
    pool: Callable[[int, Any], _Kind], store: Callable[[list[Any], Any, Any], Any],
) -> Any:  # fmt: skip
    """Kernel (data, results) of a pool.

    In NHWC the channels of a position are computed side by side, in NCHW one after the other.

    Args:
        pool: (channels at once, elements of the window) -> how a window becomes one number.
        store: (indices, int32 result, elements of the window) -> statement.
    """
    batch, channels = data_shape[0], channel_count(known, data_shape)
    planes = known.layout == "NCHW"
    data = buffer("data", data_shape, data_dtype)
    vertical, horizontal = _axes(known, data_shape)

    def one_position(image: Any, y: Any, x: Any, in_rows: Any, in_columns: Any) -> Any:
        elements = in_rows[1] * in_columns[1]
        n = tirx.floordiv(image, int32(channels)) if planes else image

        def element(row: Any, column: Any, c: Any) -> Any:
            iy = vertical.source(y, in_rows[0] + row)
            ix = horizontal.source(x, in_columns[0] + column)
            return int32(data[tuple(place(known, n, iy, ix, c))])

        def one_tile(first: Any, width: Any) -> Any:
            kind = pool(1 if planes else min(TILE, channels), elements)
            window = [("row", in_rows[1]), ("column", in_columns[1]), ("c", width)]
            return sequence(
                tirx.AllocBuffer(kind.results),
                loop("c", width, kind.start),
                loops(window, lambda row, column, c: kind.update(
                    c, element(row, column, first + c)
                )),
                loop("c", width, lambda c: kind.finish(c, lambda value: store(
                    place(known, n, y, x, first + c), value, elements
                ))),
            )  # fmt: skip

        if planes:
            return one_tile(tirx.floormod(image, int32(channels)), 1)
        return tiles(channels, one_tile)

    images = batch * channels if planes else batch
    body = at_positions(images, vertical, horizontal, one_position)
    return kernel([data, *results], body)


def _axes(known: Pool2d, data_shape: tuple[int, ...]) -> tuple[Axis, Axis]:
    """Rows and columns of a pool's window."""
    dilation = known.dilation if isinstance(known, DilatedMaxPool2d) else (1, 1)
    sizes, outputs = image_size(known, data_shape), image_size(known, known.output_shape)
    vertical, horizontal = (
        Axis(
            sizes[axis], outputs[axis], known.window[axis], known.strides[axis], dilation[axis],
            known.padding[axis],
        )
        for axis in range(2)
    )  # fmt: skip
    return vertical, horizontal


@dataclass(frozen=True)
class _Kind:
    """How a window becomes one number, for each of several channels.

    Attributes:
        results: local array, one element for each channel.
        start: channel -> statement before the window.
        update: (channel, int32 element of the window) -> statement.
        finish: (channel, int32 result -> statement) -> statements after the window.
    """

    results: Any
    start: Callable[[Any], Any]
    update: Callable[[Any, Any], Any]
    finish: Callable[[Any, Callable[[Any], Any]], Any]


def _average(channels: int, count: Any) -> _Kind:
    """Means of windows of `count` elements, ties away from zero."""
    sums = accumulators(channels)
    half = tirx.truncdiv(count, int32(2))

    def finish(c: Any, store: Callable[[Any], Any]) -> Any:
        total = tirx.Var("total", "int32")
        away = tirx.Select(total > int32(0), total + half, total - half)
        return sequence(tirx.Bind(total, int32(sums[c])), store(tirx.truncdiv(away, count)))

    def add(c: Any, value: Any) -> Any:
        return add_element_to(sums, c, value)

    return _Kind(sums, lambda c: set_to(sums, c, int32(0)), add, finish)


def _largest(channels: int, count: Any) -> _Kind:
    """The largest of each window."""
    results = tirx.decl_buffer([channels], "int32", "largest", scope="local")
    return _Kind(
        results,
        lambda c: tirx.BufferStore(results, int32(-(2**31)), [c]),
        lambda c, value: tirx.BufferStore(results, tirx.max(results[c], value), [c]),
        lambda c, store: store(results[c]),
    )
