# SPDX-License-Identifier: Apache-2.0
"""Integer convolutions and matrix products by dot-product instructions.

The windows of a few positions of the result are copied next to each other (im2col), with padding,
and multiplied by packed weights, block by block of output channels; then a row of sums is
requantized. Padding has the value of the zero point, so that the bias includes the zero point of
all data. Windows with the same layout in the data are not copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from umakit import tvm_api
from umakit.operators.kernels import loops as ir
from umakit.operators.kernels.convolution import Constants
from umakit.operators.kernels.dot_forms import PREFIX, DotForm, rounds
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.parameters import CommonScaleParameters, Parameters
from umakit.operators.tensors import Array
from umakit.tvm_api import Buffer, PrimExpr, Stmt, int32, tirx

MOST_SUMS = 256
"""Sums of a position that are kept at once, unless fewer are asked for."""

DATA = ("int8", "uint8")

OFFSETS = {("uint8", "int8"): -128, ("int8", "uint8"): 128}
"""Offset of data that are copied as another dtype."""

Function = tuple[tvm_api.PrimFunc, list[Array], str]
"""A prim func (data, weights, bias, multipliers, shifts, output), its constants, and the layout of
its weights."""


def suits(parameters: Parameters, dtype: str, layer: Constants) -> bool:
    """Whether a layer suits these kernels: 8-bit data and weights, 32-bit accumulators."""
    return (
        dtype in DATA
        and parameters.output_dtype in DATA
        and str(layer.weights.dtype) == "int8"
        and layer.bits == 32
        and rounds(parameters.arithmetic)
    )


def call(function: str, *arguments: int | PrimExpr) -> Stmt:
    """Return a statement that calls a C function.

    Args:
        arguments: TIR expressions; Python integers become int32.
    """
    values = [int32(each) if isinstance(each, int) else each for each in arguments]
    return tirx.Evaluate(tirx.call_extern("int32", function, *values))


def address(tensor: Buffer, *indices: ir.Extent) -> PrimExpr:
    """Return a pointer to an element of a parameter."""
    pointer: PrimExpr = tirx.address_of(tensor[tuple(map(int32, indices))])
    return pointer


def local_address(tensor: Buffer, number: ir.Extent) -> PrimExpr:
    """Return a pointer to an element of a local array of the kernel.

    TVM shrinks local arrays to the accessed elements; here all elements count as accessed.
    """
    pointer: PrimExpr = tensor.access_ptr("rw", offset=int32(number))
    return pointer


@dataclass(frozen=True)
class Layer:
    """A layer with rescaled sums of products as results.

    Attributes:
        constants: constants, with the zero point of the data in the bias.
        zero_point: value of padding, in the dtype of windows.
    """

    form: DotForm
    parameters: Parameters
    constants: Constants
    zero_point: int

    @classmethod
    def of(
        cls, form: DotForm, parameters: Parameters, dtype: str, layer: Constants, window: str
    ) -> Layer:
        """Return a layer; `window` is the dtype of the data in products."""
        zero_point: int = parameters.input_zero_point  # type: ignore[attr-defined]
        zero_point += OFFSETS.get((dtype, window), 0)
        return cls(form, parameters, layer.without_zero_point(zero_point), zero_point)

    def buffers(self, weights: Array) -> list[Buffer]:
        """Return the buffers of the constants, with packed weights."""
        _, bias, multipliers, shifts = self.constants.buffers()
        packed = ir.buffer("weights", [weights.size], str(weights.dtype))
        return [packed, bias, multipliers, shifts]

    def results(
        self,
        output: PrimExpr,
        sums: PrimExpr,
        first: ir.Extent,
        count: ir.Extent,
        constants: Sequence[Buffer],
    ) -> Stmt:
        """Return the call that rescales a row of sums.

        Args:
            output, sums: pointers.
            first: first channel of the row.
            constants: buffers of bias, multipliers and shifts.
        """
        parameters = self.parameters
        bias, multipliers, shifts = constants
        own = self.constants.multipliers.size > 1
        start = first if own else 0
        rounding = parameters.arithmetic
        assert isinstance(rounding, Arithmetic)
        return call(
            self.form.results(rounding, parameters.output_dtype),
            output, sums, count,
            address(bias, first), address(multipliers, start), address(shifts, start),
            int(own), parameters.output_zero_point, *parameters.clip,
        )  # fmt: skip


@dataclass(frozen=True)
class Windows:
    """Windows multiplied at once.

    Attributes:
        elements: number of elements of a padded window.
        results: (window, channel) -> pointer to the result.
    """

    first: PrimExpr
    step: int
    count: int
    elements: int
    results: Callable[[PrimExpr, ir.Extent], PrimExpr]


def sums_at_once(form: DotForm, outputs: int, most: int) -> int:
    """Return the number of sums of a position kept at once.

    Args:
        most: largest number of sums, of whole blocks of weights.
    """
    return min(most, form.blocks(outputs) * form.channels)


def multiply_windows(
    layer: Layer,
    constants: Sequence[Buffer],
    windows: Windows,
    outputs: int,
    most_sums: int,
    group: ir.Extent = 0,
) -> Stmt:
    """Return statements that multiply windows by the weights of all channels of a group.

    Args:
        constants: buffers of packed weights, bias, multipliers and shifts.
    """
    form, (weights, *others) = layer.form, constants
    width = sums_at_once(form, outputs, most_sums)
    sums = tirx.decl_buffer([windows.count * width], "int32", "sums", scope="local")
    whole = form.blocks(outputs) * form.channels * windows.elements
    group_start, group_channel = int32(group) * int32(whole), int32(group) * int32(outputs)

    def tile(first: ir.Extent, count: int) -> Stmt:
        start = group_start + int32(first) * int32(windows.elements)
        channel = group_channel + int32(first)
        return ir.sequence(
            call(
                form.function("products"), local_address(sums, 0), width,
                windows.first, windows.step, windows.count,
                address(weights, start), windows.elements, form.blocks(count),
            ),
            ir.loop("position", windows.count, lambda p: layer.results(
                windows.results(p, channel), local_address(sums, p * int32(width)), channel, count,
                others,
            )),
        )  # fmt: skip

    tiles = ir.loop("tile", outputs // width, lambda t: tile(t * int32(width), width))
    parts = [tiles] if outputs >= width else []
    if outputs % width:
        parts.append(tile(outputs - outputs % width, outputs % width))
    return ir.sequence(tirx.AllocBuffer(sums), *parts)


def dense(
    form: DotForm,
    parameters: Parameters,
    shape: tuple[int, ...],
    dtype: str,
    constants: Constants,
    positions: int = 0,
    most_sums: int = MOST_SUMS,
) -> Function:
    """Return the kernel of a matrix product.

    Args:
        shape: [rows, inputs] of the data.
        constants: weights int8[O, I].
        positions: rows multiplied at once; 0 for the maximum.
    """
    rows, inputs = shape
    layer = Layer.of(form, parameters, dtype, constants, form.window)
    packed = form.packed(constants.weights)
    buffers = layer.buffers(packed)
    data = ir.buffer("data", shape, dtype)
    output = ir.buffer("output", parameters.output_shape, parameters.output_dtype)
    outputs, elements = len(constants.bias), form.filled(inputs)
    count = min(positions or form.positions, rows)
    copies = not lie_as_copied(form, dtype, inputs)
    windows = tirx.decl_buffer([count * elements], form.window, "windows", scope="local")

    def at_rows(first: PrimExpr) -> Stmt:
        copy = ir.loop("row", count if copies else 0, lambda row: call(
            form.function(f"copy_{dtype}"), local_address(windows, row * int32(elements)),
            address(data, first + row, 0), inputs,
        ))  # fmt: skip
        here = Windows(
            local_address(windows, 0) if copies else address(data, first, 0),
            elements, count, elements,
            lambda p, channel: address(output, first + p, channel),
        )  # fmt: skip
        return ir.sequence(
            *([copy] if copies else []), multiply_windows(layer, buffers, here, outputs, most_sums)
        )

    body = ir.blocks(rows, at_rows, count, "row_block")
    if copies:
        body = ir.sequence(tirx.AllocBuffer(windows), *filled_up(windows, count, inputs), body)
    arrays = [packed.reshape(-1), *layer.constants.arrays()[1:]]
    return ir.kernel([data, *buffers, output], body), arrays, form.layout("I")


def lie_as_copied(form: DotForm, dtype: str, elements: int) -> bool:
    return form.window == dtype and form.filled(elements) == elements


def filled_up(windows: Buffer, count: int, elements: int) -> list[Stmt]:
    size = tvm_api.buffer_shape(windows)[0] // count
    fill = f"{PREFIX}plain_fill_{tvm_api.buffer_dtype(windows)}"
    if size == elements:
        return []
    return [call(fill, local_address(windows, p * size + elements), size - elements, 0)
            for p in range(count)]  # fmt: skip


def addition(
    form: DotForm, parameters: CommonScaleParameters, shape: tuple[int, ...], dtype: str
) -> tvm_api.PrimFunc:
    """Return the kernel (left, right, output) of an addition of TensorFlow Lite."""
    left, right, output = (ir.buffer(name, shape, dtype) for name in ("left", "right", "output"))
    origin = [0] * len(shape)
    factors = zip(parameters.multipliers, parameters.shifts, strict=True)
    body = call(
        form.function(f"add_tflm_{dtype}"),
        *(address(each, *origin) for each in (output, left, right)), math.prod(shape),
        *parameters.zero_points, parameters.left_shift, *(n for factor in factors for n in factor),
        parameters.output_zero_point, *parameters.clip,
    )  # fmt: skip
    return ir.kernel([left, right, output], body).with_attr(ir.ELEMENTWISE, True)
