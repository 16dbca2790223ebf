# SPDX-License-Identifier: Apache-2.0
"""Integer additions, subtractions, multiplications and changes of scale."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from umakit import tvm_api
from umakit.operators.kernels.elementwise import binary_kernel, broadcast, factor_by_sign
from umakit.operators.kernels.loops import (
    bound,
    buffer,
    buffers,
    int32,
    kernel,
    loop,
    sequence,
    store_rescaled,
    unflatten,
)
from umakit.operators.numeric.requantize import requantize as scaled_by
from umakit.quantization.further_operators import Prelu
from umakit.quantization.operators import Add, Multiply, Quantize, Subtract

tirx = tvm_api.tirx
Shapes = list[tuple[int, ...]]
Combine = Callable[[Any, Any], tuple[list[Any], Any]]
"""(left element, right element) -> statements, int32 value to rescale."""


def quantize(known: Quantize, shape: tuple[int, ...]) -> Any:
    """Kernel (data, scale, output) from float32 to integers, ties away from zero."""
    data, scale = buffer("data", shape, "float32"), buffer("scale", [1], "float32")
    output = buffer("output", known.output_shape, known.output_dtype)

    def one(i: Any) -> Any:
        quotient, whole = tirx.Var("quotient", "float32"), tirx.Var("whole", "float32")
        rest, half = quotient - whole, tvm_api.float_value(0.5)
        up, down, zero = (tvm_api.float_value(float(step)) for step in (1, -1, 0))
        step = tirx.Select(rest >= half, up, tirx.Select(rest <= -half, down, zero))
        # Clipped before the conversion, which C leaves undefined for large numbers.
        low, high = (tvm_api.float_value(b - known.output_zero_point) for b in known.clip)
        rounded = tirx.max(tirx.min(whole + step, high), low)
        place = unflatten(i, known.output_shape)
        integer = int32(rounded) + int32(known.output_zero_point)
        return sequence(
            tirx.Bind(quotient, data[tuple(unflatten(i, shape))] / scale[int32(0)]),
            tirx.Bind(whole, tirx.trunc(quotient)),
            tirx.BufferStore(output, integer.astype(known.output_dtype), place),
        )

    return kernel([data, scale, output], loop("i", math.prod(shape), one))


def add(known: Add, shapes: Shapes, dtypes: list[str]) -> Any:
    """Kernel (left, right, output) of a sum or difference."""
    factor = (known.multipliers[2], known.shifts[2])
    return binary_kernel(known, shapes, dtypes, partial(total_of_both, known), factor)


def total_of_both(known: Add, left: Any, right: Any) -> tuple[list[Any], Any]:
    """Statements, and the sum or difference of two elements on the common scale."""
    values, statements = [], []
    for name, element, zero_point, by, shift in zip(
        ("left", "right"), (left, right), known.zero_points, known.multipliers[:2],
        known.shifts[:2], strict=True,
    ):  # fmt: skip
        shifted = (int32(element) - int32(zero_point)) * int32(1 << known.left_shift)
        product = scaled_by(shifted, int32(by), int32(shift), known.arithmetic)
        part, value = bound(f"scaled_{name}", product)
        statements += part
        values.append(value)
    first, second = values
    return statements, first - second if isinstance(known, Subtract) else first + second


def multiplication(known: Multiply, shapes: Shapes, dtypes: list[str]) -> Any:
    """Kernel (left, right, output) of a product."""
    left_zero, right_zero = known.zero_points

    def combine(left: Any, right: Any) -> tuple[list[Any], Any]:
        return [], (int32(left) - int32(left_zero)) * (int32(right) - int32(right_zero))

    return binary_kernel(known, shapes, dtypes, combine, (known.multiplier, known.shift))


def prelu(known: Prelu, shapes: Shapes, dtypes: list[str]) -> Any:
    """Kernel (data, slopes, output) of the same with slopes that are a tensor."""
    data, slopes = buffers(("data", "slopes"), shapes, dtypes)
    output = buffer("output", known.output_shape, known.output_dtype)

    def one(i: Any) -> Any:
        value, slope = tirx.Var("value", "int32"), tirx.Var("slope", "int32")
        place = unflatten(i, known.output_shape)
        element = data[tuple(broadcast(place, shapes[0]))]
        product = tirx.Select(value < int32(0), value * slope, value)
        factor = factor_by_sign(value, known.multipliers, known.shifts)
        return sequence(
            tirx.Bind(value, int32(element) - int32(known.zero_points[0])),
            tirx.Bind(slope, int32(slopes[tuple(broadcast(place, shapes[1]))])
                      - int32(known.zero_points[1])),
            store_rescaled(output, place, product, factor, known),
        )  # fmt: skip

    return kernel([data, slopes, output], loop("i", math.prod(known.output_shape), one))
