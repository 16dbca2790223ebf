# SPDX-License-Identifier: Apache-2.0
"""Products of matrices that are both data."""

from __future__ import annotations

import math
from typing import Any

from umakit import tvm_api
from umakit.operators.kernels.elementwise import broadcast
from umakit.operators.kernels.loops import (
    TILE,
    accumulators,
    add_to,
    buffer,
    buffers,
    int32,
    int64,
    kernel,
    loop,
    loops,
    sequence,
    set_to,
    store_rescaled,
    tiles,
    total_of,
    unflatten,
)
from umakit.quantization.further_operators import BatchMatmul

tirx = tvm_api.tirx


def batch_matmul(known: BatchMatmul, shapes: list[tuple[int, ...]], dtypes: list[str]) -> Any:
    """Kernel (left, right, output) of products of matrices, whose leading axes broadcast.

    Where rows of the right matrix are contiguous, the sums of a tile of a row of the result are
    kept side by side; where its columns are, each sum is one run.

    Args:
        known: parameters of the operator.
        shapes, dtypes: of the operands.
    """
    operands = buffers(("left", "right"), shapes, dtypes)
    output = buffer("output", known.output_shape, known.output_dtype)
    *batch, rows, columns = known.output_shape
    depth = shapes[0][-2] if known.adjoint[0] else shapes[0][-1]
    wide = any(dtype.endswith("16") for dtype in dtypes)
    width = 1 if known.adjoint[1] else min(TILE, columns)
    sums = _sums(width, wide)
    factor = (int32(known.multiplier), int32(known.shift))

    def element(side: int, number: Any, outer: Any, inner: Any) -> Any:
        shape = shapes[side]
        places = broadcast(unflatten(number, batch), shape[:-2]) if batch else []
        if known.adjoint[side]:
            outer, inner = inner, outer
        value = int32(operands[side][(*places, outer, inner)]) - int32(known.zero_points[side])
        return int64(value) if wide else value

    def one_row(number: Any, row: Any) -> Any:
        def one_tile(first: Any, count: Any) -> Any:
            def term(k: Any, c: Any) -> Any:
                product = element(0, number, row, k) * element(1, number, k, first + c)
                return add_to(sums, c, product)

            place = [*unflatten(number, batch), row]
            return sequence(
                tirx.AllocBuffer(sums),
                loop("c", count, lambda c: set_to(sums, c, int32(0))),
                loops([("k", depth), ("c", count)], term),
                loop("c", count, lambda c: store_rescaled(
                    output, [*place, first + c], total_of(sums, c), factor, known
                )),
            )  # fmt: skip

        if known.adjoint[1]:
            return loop("column", columns, lambda column: one_tile(column, 1))
        return tiles(columns, one_tile)

    body = loops([("number", math.prod(batch)), ("row", rows)], one_row)
    return kernel([*operands, output], body)


def _sums(count: int, wide: bool) -> Any:
    """A local array of sums, of 64 bits for products of 16-bit numbers, as the references have.

    Those do not overflow. Were they unsigned, TVM would take what is cast from them for positive.
    """
    return tirx.decl_buffer([count], "int64", "sum", scope="local") if wide else accumulators(count)
