# SPDX-License-Identifier: Apache-2.0
"""Reference for drivers of layers with weights: plain loops over the driver's arrays.

A backend's composite runs as these loops until a TIR pass replaces them. Layers are `Any`, because
their classes, `QConv2d` and `QDense`, import this file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from umakit.operators.kernels import loops as ir
from umakit.operators.kernels.convolution import product
from umakit.operators.offload.weighted import MORE_BITS, Weighted
from umakit.operators.requantize import Requantize
from umakit.tvm_api import Buffer, PrimExpr, PrimFunc, Stmt, int32, tirx


def with_change_of_scale(function: PrimFunc, change: Requantize) -> PrimFunc:
    """A kernel followed by a second requantization of its result, in place."""
    output = function.params[-1]
    factor = (int32(change.multiplier), int32(change.shift))

    def one(*place: PrimExpr) -> Stmt:
        value = int32(output[place]) - int32(change.input_zero_point)
        return ir.store_rescaled(output, list(place), value, factor, change)

    return ir.kernel(list(function.params), _behind(function, change.output_shape, one))


def with_addition(
    function: PrimFunc, layer: Any, total: Callable[..., tuple[Sequence[Stmt], PrimExpr]]
) -> PrimFunc:
    """A convolution followed by the addition of another tensor, in place.

    Args:
        layer: a `QConv2dAdd`.
        total: (parameters of the addition, left, right) -> statements, int32 accumulator.
    """
    data, *arrays, output = function.params
    addend, added = ir.buffer("addend", layer.output_shape, layer.output_dtype), layer.addition
    factor = (int32(added.multipliers[2]), int32(added.shifts[2]))

    def one(*place: PrimExpr) -> Stmt:
        statements, value = total(added, output[place], addend[place])
        return ir.sequence(
            *statements, ir.store_rescaled(output, list(place), value, factor, added)
        )

    return ir.kernel([data, addend, *arrays, output], _behind(function, layer.output_shape, one))


def _behind(function: PrimFunc, shape: tuple[int, ...], one: Callable[..., Stmt]) -> Stmt:
    extents = [(f"i{axis}", n) for axis, n in enumerate(shape)]
    return ir.sequence(function.body.block.body, ir.loops(extents, one))


def _buffers(layer: Weighted) -> list[Buffer]:
    """Weights, bias, multipliers, shifts and optional sums of weights, in the driver's form."""
    return [
        ir.buffer(name, shape, layer.pointer_types[name])
        for name, shape in layer.stored_shapes.items()
    ]


def _folded(layer: Weighted) -> bool:
    """Whether data are multiplied including their zero point, and padded with the zero point."""
    return layer.zero_point_in_bias or layer.sums


def _start(
    layer: Any, total: Buffer, bias: Buffer, factors: list[Buffer], channel: PrimExpr
) -> list[Stmt]:
    """Return statements that start a channel's sum, with the part of the zero point."""
    start = [ir.set_to(total, int32(0), bias[channel])]
    if layer.sums and not layer.zero_point_in_bias:
        sums = factors[-1]
        start.append(ir.add_to(total, int32(0), int32(-layer.input_zero_point) * sums[channel]))
    return start


def _bits(layer: Weighted) -> int:
    return int(layer.pointer_types["bias"].removeprefix("int"))


def _store(
    layer: Any, buffers: list[Buffer], place: list[PrimExpr], channel: PrimExpr, total: Buffer
) -> Stmt:
    multipliers, shifts, *_, output = buffers
    index = channel if layer.scales > 1 else int32(0)
    multiplier = int32(multipliers[index])
    if layer.wide_multipliers:
        multiplier = multiplier >> int32(MORE_BITS)
    factor = (multiplier, shifts[index])
    return ir.store_rescaled(output, place, ir.total_of(total, int32(0)), factor, layer)


def dense_loops(layer: Any) -> PrimFunc:
    """The prim func of a `QDense`."""
    data = ir.buffer("data", layer.data_shape, layer.data_dtype)
    output = ir.buffer("output", layer.output_shape, layer.output_dtype)
    weights, bias, *factors = _buffers(layer)
    zero_point = 0 if _folded(layer) else layer.input_zero_point
    total = ir.accumulators(1, _bits(layer))

    def one(row: PrimExpr, o: PrimExpr) -> Stmt:
        def term(i: PrimExpr) -> Stmt:
            weight = weights[tuple(layer.weight_layout.index(o, i))]
            return ir.add_to(total, int32(0), product(data[row, i], weight, zero_point))

        return ir.sequence(
            tirx.AllocBuffer(total),
            *_start(layer, total, bias, factors, o),
            ir.loops([("i", layer.inputs)], term),
            _store(layer, [*factors, output], [row, o], o, total),
        )

    body = ir.loops([("row", layer.rows), ("o", layer.outputs)], one)
    return ir.kernel([data, weights, bias, *factors, output], body)


def conv2d_loops(layer: Any) -> PrimFunc:
    """The prim func of a `QConv2d`."""

    def read(y: PrimExpr, x: PrimExpr, ky: PrimExpr, kx: PrimExpr) -> Read:
        top, left = layer.padding[:2]
        iy = y * int32(layer.strides[0]) + ky * int32(layer.dilation[0]) - int32(top)
        ix = x * int32(layer.strides[1]) + kx * int32(layer.dilation[1]) - int32(left)
        return iy, ix, partial(_inside_or_padding, layer, (iy, ix))

    return _window_loops(layer, read)


def conv2d_transpose_loops(layer: Any) -> PrimFunc:
    """The prim func of a `QConv2dTranspose`: each result collects its contributions."""

    def read(y: PrimExpr, x: PrimExpr, ky: PrimExpr, kx: PrimExpr) -> Read:
        top, left = layer.padding[:2]
        row = y + int32(top) - ky * int32(layer.dilation[0])
        column = x + int32(left) - kx * int32(layer.dilation[1])
        iy, on_row = _of_step(row, layer.strides[0], layer.height)
        ix, on_column = _of_step(column, layer.strides[1], layer.width)

        def add(total: Buffer, value: PrimExpr, weight: PrimExpr) -> Stmt:
            term = ir.add_to(total, int32(0), product(value, weight, layer.input_zero_point))
            return tirx.IfThenElse(tirx.all(*on_row, *on_column), term, None)

        return iy, ix, add

    return _window_loops(layer, read)


Read = tuple[PrimExpr, PrimExpr, Callable[..., Stmt]]
"""Row and column of an element of the data, and the function (total, value, weight) -> statement
that adds its product."""


def _window_loops(layer: Any, read: Callable[..., Read]) -> PrimFunc:
    """Return the prim func of a convolution or transposed convolution.

    Args:
        layer: a `QConv2d` or a `QConv2dTranspose`.
        read: (row and column of a result, row and column of the window) -> added terms.
    """
    data = ir.buffer("data", layer.data_shape, layer.data_dtype)
    output = ir.buffer("output", layer.output_shape, layer.output_dtype)
    weights, bias, *factors = _buffers(layer)
    total = ir.accumulators(1, _bits(layer))
    outputs, kernel_height, kernel_width, inputs = layer.weights_shape
    per_group = outputs // layer.groups

    def one(n: PrimExpr, y: PrimExpr, x: PrimExpr, o: PrimExpr) -> Stmt:
        def term(ky: PrimExpr, kx: PrimExpr, c: PrimExpr) -> Stmt:
            iy, ix, add = read(y, x, ky, kx)
            channel = tirx.floordiv(o, int32(per_group)) * int32(inputs) + c
            value = data[tuple(_place(layer, n, iy, ix, channel))]
            weight = weights[tuple(layer.weight_layout.index(o, ky, kx, c))]
            return add(total, value, weight)

        window = [("ky", kernel_height), ("kx", kernel_width), ("c", inputs)]
        return ir.sequence(
            tirx.AllocBuffer(total),
            *_start(layer, total, bias, factors, o),
            ir.loops(window, term),
            _store(layer, [*factors, output], _place(layer, n, y, x, o), o, total),
        )

    extents = [("n", layer.batch), ("y", layer.output_height), ("x", layer.output_width)]
    body = ir.loops([*extents, ("o", outputs)], one)
    return ir.kernel([data, weights, bias, *factors, output], body)


def _of_step(position: PrimExpr, stride: int, size: int) -> tuple[PrimExpr, list[PrimExpr]]:
    """Return the element that contributes to a position, and conditions that there is one."""
    index = tirx.truncdiv(position, int32(stride))
    whole = tirx.truncmod(position, int32(stride)) == int32(0)
    return index, [position >= int32(0), whole, index < int32(size)]


def _inside_or_padding(
    layer: Any,
    position: tuple[PrimExpr, PrimExpr],
    total: Buffer,
    value: PrimExpr,
    weight: PrimExpr,
) -> Stmt:
    """Return the statement that adds a product; outside the image the data is the zero point."""
    iy, ix = position
    folded = _folded(layer)
    add = ir.add_to(
        total, int32(0), product(value, weight, 0 if folded else layer.input_zero_point)
    )
    if not any(layer.padding):
        return add
    inside = tirx.all(
        iy >= int32(0), iy < int32(layer.height), ix >= int32(0), ix < int32(layer.width)
    )
    padding = None
    if folded and layer.input_zero_point:
        padding = ir.add_to(total, int32(0), int32(layer.input_zero_point) * int32(weight))
    return tirx.IfThenElse(inside, add, padding)


def _place(layer: Any, n: PrimExpr, y: PrimExpr, x: PrimExpr, c: PrimExpr) -> list[PrimExpr]:
    place = {"N": n, "H": y, "W": x, "C": c}
    return [place[axis] for axis in layer.data_layout]
