# SPDX-License-Identifier: Apache-2.0
"""Integer additions, subtractions, multiplications and changes of scale."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from umakit import tvm_api
from umakit.lower.integer.loops import (
    bound,
    buffer,
    buffers,
    int32,
    kernel,
    loop,
    sequence,
    store_rescaled,
    store_shifted,
    unflatten,
)
from umakit.quantization.further_operators import LeakyRelu, Prelu
from umakit.quantization.operators import Add, Multiply, Parameters, Quantize, Requantize, Subtract
from umakit.quantization.requantize import requantize as scaled_by

tirx = tvm_api.tirx
Shapes = list[tuple[int, ...]]
Combine = Callable[[Any, Any], tuple[list[Any], Any]]
"""(left element, right element) -> statements, int32 value to rescale."""


def requantize(known: Requantize, shapes: Shapes, dtypes: list[str]) -> Any:
    """Kernel (data, output) of a change of scale."""
    data = buffer("data", shapes[0], dtypes[0])
    output = buffer("output", known.output_shape, known.output_dtype)
    factor = (int32(known.multiplier), int32(known.shift))

    def one(i: Any) -> Any:
        value = int32(data[tuple(unflatten(i, shapes[0]))]) - int32(known.input_zero_point)
        return store_rescaled(output, unflatten(i, known.output_shape), value, factor, known)

    return kernel([data, output], loop("i", math.prod(known.output_shape), one))


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
    return _binary(known, shapes, dtypes, partial(total_of_both, known), factor)


def total_of_both(known: Add, left: Any, right: Any) -> tuple[list[Any], Any]:
    """Statements, and the sum or difference of two elements on the common scale."""
    values, statements = [], []
    for name, element, zero_point, by, shift in zip(
        ("left", "right"), (left, right), known.zero_points, known.multipliers[:2],
        known.shifts[:2], strict=True,
    ):  # fmt: skip
        shifted = (int32(element) - int32(zero_point)) * int32(1 << known.left_shift)
        product = scaled_by(shifted, int32(by), int32(shift), known.rounding_mode)
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

    return _binary(known, shapes, dtypes, combine, (known.multiplier, known.shift))


def _binary(
    known: Parameters, shapes: Shapes, dtypes: list[str], combine: Combine, by: tuple[int, int]
) -> Any:
    """Kernel (left, right, output) that combines elements of tensors that broadcast."""
    operands = buffers(("left", "right"), shapes, dtypes)
    output = buffer("output", known.output_shape, known.output_dtype)
    factor = (int32(by[0]), int32(by[1]))

    def one(i: Any) -> Any:
        place = unflatten(i, known.output_shape)
        left, right = (
            operand[tuple(broadcast(place, shape))]
            for operand, shape in zip(operands, shapes, strict=True)
        )
        statements, value = combine(left, right)
        return sequence(*statements, store_rescaled(output, place, value, factor, known))

    return kernel([*operands, output], loop("i", math.prod(known.output_shape), one))


def leaky_relu(known: LeakyRelu, shapes: Shapes, dtypes: list[str]) -> Any:
    """Kernel (data, output) of x where it is positive, slope * x elsewhere."""
    data = buffer("data", shapes[0], dtypes[0])
    output = buffer("output", known.output_shape, known.output_dtype)

    def one(i: Any) -> Any:
        value = tirx.Var("value", "int32")
        element = int32(data[tuple(unflatten(i, shapes[0]))]) - int32(known.input_zero_point)
        factor = _factor_by_sign(value, known.multipliers, known.shifts)
        scaled = scaled_by(value, *factor, known.rounding_mode)
        result = tirx.Var("result", "int32")
        signed = result
        if known.negated:
            signed = tirx.Select(value < int32(0), int32(0) - result, result)
        place = unflatten(i, known.output_shape)
        return sequence(
            tirx.Bind(value, element),
            tirx.Bind(result, scaled),
            store_shifted(output, place, signed, known.output_zero_point, known),
        )

    return kernel([data, output], loop("i", math.prod(shapes[0]), one))


def prelu(known: Prelu, shapes: Shapes, dtypes: list[str]) -> Any:
    """Kernel (data, slopes, output) of the same with slopes that are a tensor."""
    data, slopes = buffers(("data", "slopes"), shapes, dtypes)
    output = buffer("output", known.output_shape, known.output_dtype)

    def one(i: Any) -> Any:
        value, slope = tirx.Var("value", "int32"), tirx.Var("slope", "int32")
        place = unflatten(i, known.output_shape)
        element = data[tuple(broadcast(place, shapes[0]))]
        product = tirx.Select(value < int32(0), value * slope, value)
        factor = _factor_by_sign(value, known.multipliers, known.shifts)
        return sequence(
            tirx.Bind(value, int32(element) - int32(known.zero_points[0])),
            tirx.Bind(slope, int32(slopes[tuple(broadcast(place, shapes[1]))])
                      - int32(known.zero_points[1])),
            store_rescaled(output, place, product, factor, known),
        )  # fmt: skip

    return kernel([data, slopes, output], loop("i", math.prod(known.output_shape), one))


def _factor_by_sign(
    value: Any, multipliers: tuple[int, int], shifts: tuple[int, int]
) -> tuple[Any, Any]:
    """The first factor for values of at least 0, the second for those below."""
    multiplier, shift = (
        tirx.Select(value < int32(0), int32(below), int32(above))
        for above, below in (multipliers, shifts)
    )
    return multiplier, shift


def broadcast(place: list[Any], shape: tuple[int, ...]) -> list[Any]:
    """Indices into an operand for a place of the result; axes of one element repeat."""
    own = place[len(place) - len(shape) :]
    return [int32(0) if n == 1 else i for i, n in zip(own, shape, strict=True)]
