# SPDX-License-Identifier: Apache-2.0
"""Kernels of the operators of `umakit.quantization.onnx_operators`."""

from __future__ import annotations

import math
from typing import Any

from umakit import tvm_api
from umakit.operators.kernels.elementwise import broadcast
from umakit.operators.kernels.loops import (
    accumulators,
    add_element_to,
    buffer,
    buffers,
    int32,
    int64,
    kernel,
    loop,
    sequence,
    set_to,
    store_rescaled,
    store_shifted,
    unflatten,
)
from umakit.operators.numeric.requantize import header_call
from umakit.quantization.onnx_operators import Float32Pair, Float32Product, GlobalAveragePool

tirx = tvm_api.tirx
Shapes = list[tuple[int, ...]]


def pair(known: Float32Pair, shapes: Shapes, dtypes: list[str]) -> Any:
    """Kernel (left, right, output) of a sum or product."""
    left, right = buffers(("left", "right"), shapes, dtypes)
    output = buffer("output", known.output_shape, known.output_dtype)

    def one(i: Any) -> Any:
        place = unflatten(i, known.output_shape)
        a, b = (
            int32(operand[tuple(broadcast(place, shape))]) + int32(offset)
            for operand, shape, offset in zip((left, right), shapes, known.offsets, strict=True)
        )
        wide = any(dtype.endswith("16") for dtype in dtypes)
        value = _combined(known, *((int64(a), int64(b)) if wide else (a, b)))
        return store_shifted(output, place, value, known.output_offset, known)

    return kernel([left, right, output], loop("i", math.prod(known.output_shape), one))


def _combined(known: Float32Pair, a: Any, b: Any) -> Any:
    """The int32 result of two expressions, before the offset.

    The expressions are int32, or int64 where their product has more than 32 bits.

    The steps are those of `float32_pairs.exact_results`.
    """
    constant = int64(known.constant)
    if isinstance(known, Float32Product):
        parts = [int64(a * b) * int64(known.factors[0])]
        first, second = 0, None
    else:
        parts = [int64(a) * int64(known.factors[0]), int64(b) * int64(known.factors[1])]
        first, second = (0, 1) if known.scalar == 1 else (1, 0)
    if known.plain:
        # GCC 12 (-O2) loses the high bits of a number that is shifted by a constant and added to
        # next, when it vectorizes; not where the number is limited first. So limit it to what can
        # be stored.
        total = sum(parts[1:], parts[0]) + constant
        low, high = (bound - known.output_offset for bound in known.clip)
        limited = tirx.max(tirx.min(total >> int64(known.fraction_bits), int64(high)), int64(low))
        return limited.astype("int32")
    part = parts[first]
    if known.scalar or second is None:
        part = header_call("round_to_float32", part)
    total = header_call("round_to_float32", part + constant)
    if second is not None:
        total = header_call("round_to_float32", total + parts[second])
    return header_call("saturate", header_call("divide_to_even", total, known.fraction_bits))


def global_average_pool(known: GlobalAveragePool, shapes: Shapes, dtypes: list[str]) -> Any:
    """Kernel (data [N, C, ...], output)."""
    (shape,) = shapes
    data = buffer("data", shape, dtypes[0])
    output = buffer("output", known.output_shape, known.output_dtype)
    count = math.prod(shape[2:])
    total, zero = accumulators(1), int32(0)
    factor = (int32(known.multiplier), int32(known.shift))

    def one(channel: Any) -> Any:
        def element(i: Any) -> Any:
            value = int32(data[tuple(unflatten(channel * int32(count) + i, shape))])
            return value - int32(known.input_zero_point)

        return sequence(
            tirx.AllocBuffer(total),
            set_to(total, zero, zero),
            loop("i", count, lambda i: add_element_to(total, zero, element(i))),
            store_rescaled(
                output, unflatten(channel, known.output_shape), int32(total[zero]),
                factor, known,
            ),
        )  # fmt: skip

    return kernel([data, output], loop("channel", math.prod(shape[:2]), one))
