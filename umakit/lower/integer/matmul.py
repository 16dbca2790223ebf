# SPDX-License-Identifier: Apache-2.0
"""Integer products of two matrices that are both data."""

from __future__ import annotations

from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.lower.integer.elementwise import broadcast
from umakit.lower.integer.loops import (
    TILE,
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
from umakit.quantization.fixed_point import ShiftRange
from umakit.quantization.float32 import int64
from umakit.quantization.onnx_operators import MatMul

tirx = tvm_api.tirx


def matmul(known: MatMul, shapes: list[tuple[int, ...]], dtypes: list[str]) -> Any:
    """Kernel (left, right, output) of a product of matrices, batches broadcast.

    The sums of a tile of a row of the result are kept side by side: rows of the right matrix are
    contiguous.

    Args:
        known: parameters of the operator.
        shapes, dtypes: of left and right.
    """
    left, right = (
        buffer(name, shape, dtype)
        for name, shape, dtype in zip(("left", "right"), shapes, dtypes, strict=True)
    )
    output = buffer("output", known.output_shape, known.output_dtype)
    *batch, rows, columns = known.output_shape
    inner = shapes[0][-1]
    at_most = (
        inner
        * _largest(dtypes[0], known.zero_points[0])
        * _largest(dtypes[1], known.zero_points[1])
    )
    bits = 32 if at_most < 2**31 else 64
    sums = accumulators(min(TILE, columns), bits)
    factor = (int32(known.multiplier), int32(known.shift), ShiftRange(known.shift, known.shift))

    def one_row(*place: Any) -> Any:
        *outer, row = place

        def term(first: Any, k: Any, c: Any) -> Any:
            here = broadcast(list(outer), shapes[0][:-2]), broadcast(list(outer), shapes[1][:-2])
            a = int32(left[(*here[0], row, k)]) - int32(known.zero_points[0])
            b = int32(right[(*here[1], k, first + c)]) - int32(known.zero_points[1])
            return add_to(sums, c, a * b if bits == 32 else int64(a) * int64(b))

        def one_tile(first: Any, width: Any) -> Any:
            return sequence(
                tirx.AllocBuffer(sums),
                loop("c", width, lambda c: set_to(sums, c, int32(0))),
                loops([("k", inner), ("c", width)], lambda k, c: term(first, k, c)),
                loop("c", width, lambda c: store_rescaled(
                    output, [*outer, row, first + c], total_of(sums, c), factor, known,
                    min(at_most, 2**31),
                )),
            )  # fmt: skip

        return tiles(columns, one_tile)

    extents = [*((f"b{axis}", extent) for axis, extent in enumerate(batch)), ("row", rows)]
    return kernel([left, right, output], loops(extents, one_row))


def _largest(dtype: str, zero_point: int) -> int:
    limits = np.iinfo(dtype)
    return max(abs(int(limits.min) - zero_point), abs(int(limits.max) - zero_point))
