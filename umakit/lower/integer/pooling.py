# SPDX-License-Identifier: Apache-2.0
"""Integer pools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from umakit import tvm_api
from umakit.lower.integer.convolution import at_positions
from umakit.lower.integer.loops import (
    TILE,
    accumulators,
    add_element_to,
    buffer,
    int32,
    kernel,
    loop,
    loops,
    sequence,
    set_to,
    store_clipped,
    tiles,
)
from umakit.lower.integer.windows import Axis
from umakit.quantization.operators import AveragePool2d, Pool2d

tirx = tvm_api.tirx


def pool2d(known: Pool2d, data_shape: tuple[int, ...], data_dtype: str) -> Any:
    """Kernel (data, output) of an average or max pool; padding does not take part.

    Args:
        known: parameters of the operator.
        data_shape: [N, H, W, C].
        data_dtype: of the data.
    """
    batch, height, width, channels = data_shape
    _, rows, columns, _ = known.output_shape
    top, left, _, _ = known.padding
    vertical = Axis(height, rows, known.window[0], known.strides[0], 1, top)
    horizontal = Axis(width, columns, known.window[1], known.strides[1], 1, left)
    data = buffer("data", data_shape, data_dtype)
    output = buffer("output", known.output_shape, known.output_dtype)
    pool = pool_of(known)

    def one_position(n: Any, y: Any, x: Any, in_rows: Any, in_columns: Any) -> Any:
        def element(row: Any, column: Any, c: Any) -> Any:
            iy = vertical.source(y, in_rows[0] + row)
            return int32(data[n, iy, horizontal.source(x, in_columns[0] + column), c])

        def one_tile(first: Any, width: Any) -> Any:
            kind = pool(min(TILE, channels), in_rows[1] * in_columns[1])
            window = [("row", in_rows[1]), ("column", in_columns[1]), ("c", width)]
            return sequence(
                tirx.AllocBuffer(kind.results),
                loop("c", width, kind.start),
                loops(window, lambda row, column, c: kind.update(
                    c, element(row, column, first + c)
                )),
                loop("c", width, lambda c: kind.finish(c, lambda value: store_clipped(
                    output, [n, y, x, first + c], value, known
                ))),
            )  # fmt: skip

        return tiles(channels, one_tile)

    body = at_positions(batch, vertical, horizontal, one_position)
    return kernel([data, output], body)


def pool_of(known: Pool2d) -> Callable[[int, Any], _Pool]:
    """(channels at once, elements of the window) -> how a window becomes one number."""
    return _average if isinstance(known, AveragePool2d) else _largest


@dataclass(frozen=True)
class _Pool:
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


def _average(channels: int, count: Any) -> _Pool:
    """Means of windows of `count` elements, ties away from zero."""
    sums = accumulators(channels)
    half = tirx.truncdiv(count, int32(2))

    def finish(c: Any, store: Callable[[Any], Any]) -> Any:
        total = tirx.Var("total", "int32")
        away = tirx.Select(total > int32(0), total + half, total - half)
        return sequence(tirx.Bind(total, int32(sums[c])), store(tirx.truncdiv(away, count)))

    def add(c: Any, value: Any) -> Any:
        return add_element_to(sums, c, value)

    return _Pool(sums, lambda c: set_to(sums, c, int32(0)), add, finish)


def _largest(channels: int, count: Any) -> _Pool:
    """The largest of each window."""
    results = tirx.decl_buffer([channels], "int32", "largest", scope="local")
    return _Pool(
        results,
        lambda c: tirx.BufferStore(results, int32(-(2**31)), [c]),
        lambda c, value: tirx.BufferStore(results, tirx.max(results[c], value), [c]),
        lambda c, store: store(results[c]),
    )
