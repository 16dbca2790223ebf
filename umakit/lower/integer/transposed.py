# SPDX-License-Identifier: Apache-2.0
"""Integer transposed convolutions."""

from __future__ import annotations

from typing import Any

from umakit import tvm_api
from umakit.lower.integer.convolution import Linear, product
from umakit.lower.integer.loops import (
    accumulators,
    add_to,
    buffer,
    int32,
    kernel,
    loops,
    sequence,
    set_to,
    store_rescaled,
    total_of,
)
from umakit.quantization.further_operators import Conv2dTranspose

tirx = tvm_api.tirx


def conv2d_transpose(
    known: Conv2dTranspose, data_shape: tuple[int, ...], data_dtype: str, layer: Linear
) -> Any:
    """Kernel (data, weights, bias, multipliers, shifts, output) of a transposed convolution.

    The reference spreads each element over a window of 32-bit sums as large as the output; here
    each output gathers what it gets, in one sum.

    Args:
        known: parameters of the operator.
        data_shape: [N, H, W, I].
        data_dtype: of the data.
        layer: the constants, weights [O, KH, KW, I].
    """
    _, height, width, channels = data_shape
    outputs, kernel_height, kernel_width, _ = layer.weights.shape
    batch, rows, columns, _ = known.output_shape
    data = buffer("data", data_shape, data_dtype)
    weights, bias, multipliers, shifts = layer.buffers()
    output = buffer("output", known.output_shape, known.output_dtype)
    total = accumulators(1, layer.bits)
    vertical = _Axis(height, kernel_height, known.strides[0], known.padding[0])
    horizontal = _Axis(width, kernel_width, known.strides[1], known.padding[1])

    def one(n: Any, y: Any, x: Any, o: Any) -> Any:
        (first_row, row_count), (first_column, column_count) = (
            vertical.terms(y), horizontal.terms(x)
        )  # fmt: skip

        def term(row: Any, column: Any, i: Any) -> Any:
            iy, ky = vertical.pair(y, first_row + row)
            ix, kx = horizontal.pair(x, first_column + column)
            value = product(data[n, iy, ix, i], weights[o, ky, kx, i], known.input_zero_point)
            return add_to(total, int32(0), value)

        return sequence(
            tirx.AllocBuffer(total),
            set_to(total, int32(0), bias[o]),
            loops([("row", row_count), ("column", column_count), ("i", channels)], term),
            store_rescaled(
                output, [n, y, x, o], total_of(total, int32(0)),
                layer.factor(multipliers, shifts, o), known,
            ),
        )  # fmt: skip

    extents = [("n", batch), ("y", rows), ("x", columns), ("o", outputs)]
    return kernel([data, weights, bias, multipliers, shifts, output], loops(extents, one))


class _Axis:
    """Rows or columns: which elements of the data reach an output, by which of the window.

    With p = output + padding, element i reaches it through k = p - i * stride in [0, extent).
    Terms are counted by j = p // stride - i, for which k = p % stride + j * stride.
    """

    def __init__(self, size: int, extent: int, stride: int, before: int) -> None:
        self._size, self._extent = size, extent
        self._stride, self._before = stride, before

    def _split(self, position: Any) -> tuple[Any, Any]:
        """Quotient and remainder by the stride."""
        place = position + int32(self._before)
        return tirx.truncdiv(place, int32(self._stride)), tirx.truncmod(place, int32(self._stride))

    def terms(self, position: Any) -> tuple[Any, Any]:
        """First j, and the number of terms, which may be below 0 for none."""
        quotient, remainder = self._split(position)
        first = tirx.max(quotient - int32(self._size - 1), int32(0))
        inside = int32(self._extent - 1 + self._stride) - remainder
        end = tirx.min(tirx.truncdiv(inside, int32(self._stride)), quotient + int32(1))
        return first, end - first

    def pair(self, position: Any, j: Any) -> tuple[Any, Any]:
        """Element of the data and of the window of term j."""
        quotient, remainder = self._split(position)
        return quotient - j, remainder + j * int32(self._stride)
