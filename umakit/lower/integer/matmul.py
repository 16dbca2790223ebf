# SPDX-License-Identifier: Apache-2.0
"""Products of matrices that are both data."""

from __future__ import annotations

import math
from typing import Any

from umakit import tvm_api
from umakit.lower.integer.elementwise import broadcast
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
    unflatten,
)
from umakit.quantization.further_operators import BatchMatmul

tirx = tvm_api.tirx


def batch_matmul(known: BatchMatmul, shapes: list[tuple[int, ...]], dtypes: list[str]) -> Any:
    """Kernel (left, right, output) of products of matrices, whose leading axes broadcast.

    Args:
        known: parameters of the operator.
        shapes, dtypes: of the operands.
    """
    operands = [
        buffer(name, shape, dtype)
        for name, shape, dtype in zip(("left", "right"), shapes, dtypes, strict=True)
    ]
    output = buffer("output", known.output_shape, known.output_dtype)
    *batch, rows, columns = known.output_shape
    depth = shapes[0][-2] if known.adjoint[0] else shapes[0][-1]
    # Sums of products of 16-bit numbers have 64 bits, as in the reference, and do not overflow.
    # Were they unsigned, TVM would take what is cast from them for positive.
    total = accumulators(1)
    if dtypes[0] == "int16":
        total = tirx.decl_buffer([1], "int64", "sum", scope="local")
    factor = (int32(known.multiplier), int32(known.shift))

    def element(side: int, number: Any, outer: Any, inner: Any) -> Any:
        shape = shapes[side]
        places = broadcast(unflatten(number, batch), shape[:-2]) if batch else []
        if known.adjoint[side]:
            outer, inner = inner, outer
        value = operands[side][(*places, outer, inner)]
        return int32(value) - int32(known.zero_points[side])

    def one(number: Any, row: Any, column: Any) -> Any:
        def term(k: Any) -> Any:
            product = element(0, number, row, k) * element(1, number, k, column)
            return add_to(total, int32(0), product)

        place = [*unflatten(number, batch), row, column]
        return sequence(
            tirx.AllocBuffer(total),
            set_to(total, int32(0), int32(0)),
            loops([("k", depth)], term),
            store_rescaled(output, place, total_of(total, int32(0)), factor, known),
        )

    extents = [("number", math.prod(batch)), ("row", rows), ("column", columns)]
    return kernel([*operands, output], loops(extents, one))
