# SPDX-License-Identifier: Apache-2.0
"""What a driver has to compute with weights, as plain loops over the arrays that it gets.

A backend's composite runs as these loops until a TIR pass replaces them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from umakit import tvm_api
from umakit.operators.add import total_of_both
from umakit.operators.kernels.convolution import product
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
from umakit.operators.requantize import Requantize
from umakit.patterns.weighted import QConv2d, QConv2dAdd, QDense, Weighted

tirx = tvm_api.tirx


def linear_kernel(known: Weighted) -> Any:
    """The prim func of a composite, with its `POINTERS` as parameters."""
    if isinstance(known, QConv2dAdd):
        return _with_addition(_conv2d(known), known)
    if isinstance(known, QConv2d):
        return _conv2d(known)
    assert isinstance(known, QDense)
    return _dense(known)


def with_change_of_scale(function: Any, change: Requantize) -> Any:
    """A kernel followed by a second change of scale of its result, in place."""
    output = function.params[-1]
    factor = (int32(change.multiplier), int32(change.shift))

    def one(*place: Any) -> Any:
        value = int32(output[place]) - int32(change.input_zero_point)
        return store_rescaled(output, list(place), value, factor, change)

    return kernel(list(function.params), _behind(function, change.output_shape, one))


def _with_addition(function: Any, known: QConv2dAdd) -> Any:
    """A convolution followed by the addition of another tensor, in place."""
    data, *arrays, output = function.params
    addend, added = buffer("addend", known.output_shape, known.output_dtype), known.addition
    factor = (int32(added.multipliers[2]), int32(added.shifts[2]))

    def one(*place: Any) -> Any:
        statements, total = total_of_both(added, output[place], addend[place])
        return sequence(*statements, store_rescaled(output, list(place), total, factor, added))

    return kernel([data, addend, *arrays, output], _behind(function, known.output_shape, one))


def _behind(function: Any, shape: tuple[int, ...], one: Callable[..., Any]) -> Any:
    """The body of a kernel, and behind it a statement for each element of its result."""
    extents = [(f"i{axis}", n) for axis, n in enumerate(shape)]
    return sequence(function.body.block.body, loops(extents, one))


def _buffers(known: Weighted) -> list[Any]:
    """Weights, bias, multipliers and shifts, as the driver gets them."""
    return [
        buffer(name, shape, known.pointer_types[name])
        for name, shape in known.stored_shapes.items()
    ]


def _bits(known: Weighted) -> int:
    """Of sums: those of the bias."""
    return int(known.pointer_types["bias"].removeprefix("int"))


def _store(known: Any, buffers: list[Any], place: list[Any], channel: Any, total: Any) -> Any:
    """Rescale the sum of an output channel and store it."""
    *_, multipliers, shifts, output = buffers
    index = channel if known.scales > 1 else int32(0)
    factor = (multipliers[index], shifts[index])
    return store_rescaled(output, place, total_of(total, int32(0)), factor, known)


def _dense(known: QDense) -> Any:
    data = buffer("data", known.data_shape, known.data_dtype)
    output = buffer("output", known.output_shape, known.output_dtype)
    weights, bias, *factors = _buffers(known)
    zero_point = 0 if known.zero_point_in_bias else known.input_zero_point
    total = accumulators(1, _bits(known))

    def one(row: Any, o: Any) -> Any:
        def term(i: Any) -> Any:
            weight = weights[tuple(known.weight_layout.index(o, i))]
            return add_to(total, int32(0), product(data[row, i], weight, zero_point))

        return sequence(
            tirx.AllocBuffer(total),
            set_to(total, int32(0), bias[o]),
            loops([("i", known.inputs)], term),
            _store(known, [*factors, output], [row, o], o, total),
        )

    body = loops([("row", known.rows), ("o", known.outputs)], one)
    return kernel([data, weights, bias, *factors, output], body)


def _conv2d(known: QConv2d) -> Any:
    data = buffer("data", known.data_shape, known.data_dtype)
    output = buffer("output", known.output_shape, known.output_dtype)
    weights, bias, *factors = _buffers(known)
    total = accumulators(1, _bits(known))
    outputs, kernel_height, kernel_width, inputs = known.weights_shape
    per_group = outputs // known.groups

    def one(n: Any, y: Any, x: Any, o: Any) -> Any:
        def term(ky: Any, kx: Any, c: Any) -> Any:
            top, left = known.padding[:2]
            iy = y * int32(known.strides[0]) + ky * int32(known.dilation[0]) - int32(top)
            ix = x * int32(known.strides[1]) + kx * int32(known.dilation[1]) - int32(left)
            channel = tirx.floordiv(o, int32(per_group)) * int32(inputs) + c
            value = data[tuple(_place(known, n, iy, ix, channel))]
            weight = weights[tuple(known.weight_layout.index(o, ky, kx, c))]
            return _inside_or_padding(known, total, (iy, ix), value, weight)

        window = [("ky", kernel_height), ("kx", kernel_width), ("c", inputs)]
        return sequence(
            tirx.AllocBuffer(total),
            set_to(total, int32(0), bias[o]),
            loops(window, term),
            _store(known, [*factors, output], _place(known, n, y, x, o), o, total),
        )

    extents = [("n", known.batch), ("y", known.output_height), ("x", known.output_width)]
    body = loops([*extents, ("o", outputs)], one)
    return kernel([data, weights, bias, *factors, output], body)


def _inside_or_padding(
    known: QConv2d, total: Any, position: tuple[Any, Any], value: Any, weight: Any
) -> Any:
    """Add a product to the sum; outside the image the data are their zero point."""
    iy, ix = position
    folded = known.zero_point_in_bias
    add = add_to(total, int32(0), product(value, weight, 0 if folded else known.input_zero_point))
    if not any(known.padding):
        return add
    inside = tirx.all(
        iy >= int32(0), iy < int32(known.height), ix >= int32(0), ix < int32(known.width)
    )
    padding = None
    if folded and known.input_zero_point:
        padding = add_to(total, int32(0), int32(known.input_zero_point) * int32(weight))
    return tirx.IfThenElse(inside, add, padding)


def _place(known: QConv2d, n: Any, y: Any, x: Any, c: Any) -> list[Any]:
    """Indices of an element in the layout of the data."""
    place = {"N": n, "H": y, "W": x, "C": c}
    return [place[axis] for axis in known.data_layout]
