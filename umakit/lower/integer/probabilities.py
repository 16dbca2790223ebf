# SPDX-License-Identifier: Apache-2.0
"""Integer softmax by exact quotients of tabulated exponentials."""

from __future__ import annotations

import math
from typing import Any

from umakit import tvm_api
from umakit.operators.kernels.loops import (
    bound,
    buffer,
    int32,
    int64,
    kernel,
    loop,
    loops,
    sequence,
    set_to,
    store_shifted,
    unflatten,
)
from umakit.quantization.onnx_operators import Probabilities
from umakit.quantization.onnx_parameters import EXPONENTIAL_BITS

tirx = tvm_api.tirx


def probabilities(known: Probabilities, shapes: list[tuple[int, ...]], dtypes: list[str]) -> Any:
    """Kernel (data, table, output) of a softmax over an axis.

    Each element takes a division of 64 bits. Sums and products stay below 2**62.

    Args:
        known: parameters of the operator.
        shapes, dtypes: of data and table.
    """
    shape = shapes[0]
    before, length, after = shape[: known.axis], shape[known.axis], shape[known.axis + 1 :]
    data, table = buffer("data", shape, dtypes[0]), buffer("table", shapes[1], "int32")
    output = buffer("output", known.output_shape, known.output_dtype)
    largest = tirx.decl_buffer([1], "int32", "largest", scope="local")
    total = tirx.decl_buffer([1], "int64", "total", scope="local")
    zero = int32(0)

    def row(outer: Any, inner: Any) -> Any:
        def at(i: Any) -> list[Any]:
            return [*unflatten(outer, before), i, *unflatten(inner, after)]

        def element(i: Any) -> Any:
            return int32(data[tuple(at(i))])

        def add(i: Any) -> Any:
            statements, value = _exponential(table, shapes[1][0], largest[zero] - element(i))
            return sequence(*statements, set_to(total, zero, total[zero] + value))

        def quotient(i: Any) -> Any:
            statements, value = _exponential(table, shapes[1][0], largest[zero] - element(i))
            more, rounded = _quotient(value * int64(known.numerator), total[zero], known.exponent)
            store = store_shifted(output, at(i), rounded, known.output_zero_point, known)
            return sequence(*statements, *more, store)

        return sequence(
            tirx.AllocBuffer(largest),
            tirx.AllocBuffer(total),
            set_to(largest, zero, element(zero)),
            loop("i", length, lambda i: set_to(largest, zero, tirx.max(largest[zero], element(i)))),
            set_to(total, zero, int64(0)),
            loop("i", length, add),
            loop("i", length, quotient),
        )

    extents = [("outer", math.prod(before)), ("inner", math.prod(after))]
    # The table has a value for each distance from the largest element, which none is above.
    return kernel([data, table, output], loops(extents, row), inside=True)


def _exponential(table: Any, size: int, distance: Any) -> tuple[list[Any], Any]:
    """Statements and exp(-distance), int64, from a table of a size."""
    if size == 256:
        return bound("exponential", int64(table[distance]))
    coarse = int64(table[distance >> int32(8)])
    fine = int64(table[(distance & int32(255)) + int32(256)])
    return bound("exponential", (coarse * fine) >> int64(EXPONENTIAL_BITS))


def _quotient(numerator: Any, total: Any, exponent: int) -> tuple[list[Any], Any]:
    """numerator / (total * 2**exponent) to the nearest integer, ties to even; int32."""
    first, above = bound("numerator", numerator)
    second, below = bound("denominator", total << int64(exponent))
    third, whole = bound("quotient", tirx.truncdiv(above, below))
    doubled = (above - whole * below) * int64(2) + (whole & int64(1))
    rounded = (whole + int64(doubled > below)).astype("int32")
    return [*first, *second, *third], rounded
