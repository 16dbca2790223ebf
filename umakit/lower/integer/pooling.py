# SPDX-License-Identifier: Apache-2.0
"""Integer pools."""

from __future__ import annotations

from typing import Any

from umakit import tvm_api
from umakit.lower.integer.convolution import at_positions
from umakit.lower.integer.loops import (
    TILE,
    accumulators,
    buffer,
    int32,
    kernel,
    loop,
    loops,
    sequence,
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
    average = isinstance(known, AveragePool2d)
    data = buffer("data", data_shape, data_dtype)
    output = buffer("output", known.output_shape, known.output_dtype)
    results = accumulators(min(TILE, channels))
    start = 0 if average else -(2**31)

    def one_position(n: Any, y: Any, x: Any, in_rows: Any, in_columns: Any) -> Any:
        def update(c: Any, row: Any, column: Any, first: Any) -> Any:
            iy, ix = (
                axis.source(position, elements[0] + element)
                for axis, position, elements, element in (
                    (vertical, y, in_rows, row), (horizontal, x, in_columns, column),
                )
            )  # fmt: skip
            value = int32(data[n, iy, ix, first + c])
            combined = results[c] + value if average else tirx.max(results[c], value)
            return tirx.BufferStore(results, combined, [c])

        def one_tile(first: Any, count: Any, elements: Any) -> Any:
            return sequence(
                tirx.AllocBuffer(results),
                loop("c", count, lambda c: tirx.BufferStore(results, int32(start), [c])),
                loops(
                    [("row", in_rows[1]), ("column", in_columns[1]), ("c", count)],
                    lambda row, column, c: update(c, row, column, first),
                ),
                loop("c", count, lambda c: store_clipped(
                    output, [n, y, x, first + c],
                    _mean(results[c], elements) if average else results[c], known,
                )),
            )  # fmt: skip

        elements = in_rows[1] * in_columns[1]
        return tiles(channels, lambda first, count: one_tile(first, count, elements))

    body = at_positions(batch, vertical, horizontal, one_position)
    return kernel([data, output], body)


def _mean(total: Any, count: Any) -> Any:
    """total / count, ties away from zero."""
    half = tirx.truncdiv(count, int32(2))
    away = tirx.Select(total > int32(0), total + half, total - half)
    return tirx.truncdiv(away, count)
