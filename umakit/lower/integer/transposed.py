# SPDX-License-Identifier: Apache-2.0
"""Integer transposed convolutions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.lower.integer.convolution import (
    Linear,
    channel_count,
    image_size,
    place,
    product,
)
from umakit.operators.kernels.loops import (
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
        data_shape: [N, H, W, I], or [N, I, H, W] for NCHW.
        data_dtype: of the data.
        layer: the constants, weights [O, KH, KW, I / groups] or [O, I / groups, KH, KW]; the
            window has the holes of the dilation in it (`with_holes`).
    """
    height, width = image_size(known, data_shape)
    kernel_height, kernel_width = image_size(known, layer.weights.shape)
    rows, columns = image_size(known, known.output_shape)
    outputs, channels = layer.weights.shape[0], channel_count(known, layer.weights.shape)
    per_group = outputs // known.groups
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
            channel = tirx.floordiv(o, int32(per_group)) * int32(channels) + i
            element = data[tuple(place(known, n, iy, ix, channel))]
            weight = weights[tuple(place(known, o, ky, kx, i))]
            return add_to(total, int32(0), product(element, weight, known.input_zero_point))

        return sequence(
            tirx.AllocBuffer(total),
            set_to(total, int32(0), bias[o]),
            loops([("row", row_count), ("column", column_count), ("i", channels)], term),
            store_rescaled(
                output, place(known, n, y, x, o), total_of(total, int32(0)),
                layer.factor(multipliers, shifts, o), known,
            ),
        )  # fmt: skip

    extents = [("n", data_shape[0]), ("y", rows), ("x", columns), ("o", outputs)]
    return kernel([data, weights, bias, multipliers, shifts, output], loops(extents, one))


def with_holes(known: Conv2dTranspose, layer: Linear) -> Linear:
    """Weights of a dilated window with zeros between its elements."""
    if known.dilation == (1, 1):
        return layer
    axes = (2, 3) if known.layout == "NCHW" else (1, 2)
    shape = list(layer.weights.shape)
    elements = [slice(None)] * 4
    for axis, dilation in zip(axes, known.dilation, strict=True):
        shape[axis] = (shape[axis] - 1) * dilation + 1
        elements[axis] = slice(None, None, dilation)
    weights = np.zeros(shape, layer.weights.dtype)
    weights[tuple(elements)] = layer.weights
    return replace(layer, weights=weights)


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
