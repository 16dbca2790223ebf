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

import numpy as np

from umakit import tvm_api
from umakit.operators.kernels.convolution import Constants, is_depthwise, window_axes
from umakit.operators.kernels.dot_forms import PREFIX, DotForm, rounds
from umakit.operators.kernels.loops import (
    ELEMENTWISE,
    Extent,
    blocks,
    buffer,
    int32,
    kernel,
    loop,
    loops,
    sequence,
    unflatten,
)
from umakit.operators.kernels.windows import Axis, Span
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.parameters import CommonScaleParameters, ConvolutionParameters, Parameters
from umakit.operators.tensors import Array

tirx = tvm_api.tirx

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


def suits_convolution(
    form: DotForm,
    parameters: ConvolutionParameters,
    shape: tuple[int, ...],
    dtype: str,
    layer: Constants,
) -> bool:
    """Whether a convolution suits these kernels; depthwise convolutions with one result per
    channel."""
    if parameters.layout != "NHWC" or not suits(parameters, dtype, layer):
        return False
    if not is_depthwise(parameters, shape):
        return True
    return shape[3] == len(layer.bias) and layer.weights.min() >= form.least_depthwise_weight


def call(function: str, *arguments: int | tvm_api.PrimExpr) -> tvm_api.Stmt:
    """Return a statement that calls a C function.

    Args:
        function: name of the C function.
        arguments: TIR expressions; Python integers become int32.
    """
    values = [int32(each) if isinstance(each, int) else each for each in arguments]
    return tirx.Evaluate(tirx.call_extern("int32", function, *values))


def address(tensor: tvm_api.Buffer, *indices: Extent) -> tvm_api.PrimExpr:
    """Return a pointer to an element of a parameter."""
    pointer: tvm_api.PrimExpr = tirx.address_of(tensor[tuple(map(int32, indices))])
    return pointer


def local_address(tensor: tvm_api.Buffer, number: Extent) -> tvm_api.PrimExpr:
    """Return a pointer to an element of a local array of the kernel.

    TVM shrinks local arrays to the accessed elements; here all elements count as accessed.
    """
    pointer: tvm_api.PrimExpr = tensor.access_ptr("rw", offset=int32(number))
    return pointer


@dataclass(frozen=True)
class _Layer:
    """A layer with rescaled sums of products as results.

    Attributes:
        form: the instructions.
        parameters: parameters of the operator.
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
    ) -> _Layer:
        """Return a layer; `window` is the dtype of the data in products."""
        zero_point: int = parameters.input_zero_point  # type: ignore[attr-defined]
        zero_point += OFFSETS.get((dtype, window), 0)
        return cls(form, parameters, layer.without_zero_point(zero_point), zero_point)

    def buffers(self, weights: Array) -> list[tvm_api.Buffer]:
        """Return the buffers of the constants, with packed weights."""
        _, bias, multipliers, shifts = self.constants.buffers()
        packed = buffer("weights", [weights.size], str(weights.dtype))
        return [packed, bias, multipliers, shifts]

    def results(
        self,
        output: tvm_api.PrimExpr,
        sums: tvm_api.PrimExpr,
        first: Extent,
        count: Extent,
        constants: Sequence[tvm_api.Buffer],
    ) -> tvm_api.Stmt:
        """Return the call that rescales a row of sums.

        Args:
            output, sums: pointers.
            first: first channel of the row.
            count: number of channels.
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
class _Windows:
    """Windows multiplied at once.

    Attributes:
        first: pointer to the first element of the first window.
        step: distance between windows.
        count: number of windows.
        elements: number of elements of a padded window.
        results: (window, channel) -> pointer to the result.
    """

    first: tvm_api.PrimExpr
    step: int
    count: int
    elements: int
    results: Callable[[tvm_api.PrimExpr, Extent], tvm_api.PrimExpr]


def sums_at_once(form: DotForm, outputs: int, most: int) -> int:
    """Return the number of sums of a position kept at once.

    Args:
        form: the instructions.
        outputs: output channels of a group.
        most: largest number of sums, of whole blocks of weights.
    """
    return min(most, form.blocks(outputs) * form.channels)


def _multiply(
    layer: _Layer,
    constants: Sequence[tvm_api.Buffer],
    windows: _Windows,
    outputs: int,
    most_sums: int,
    group: Extent = 0,
) -> tvm_api.Stmt:
    """Return statements that multiply windows by the weights of all channels of a group.

    Args:
        layer: the layer.
        constants: buffers of packed weights, bias, multipliers and shifts.
        windows: the windows.
        outputs: output channels of a group.
        most_sums: sums of a position kept at once.
        group: number of the group.
    """
    form, (weights, *others) = layer.form, constants
    width = sums_at_once(form, outputs, most_sums)
    sums = tirx.decl_buffer([windows.count * width], "int32", "sums", scope="local")
    whole = form.blocks(outputs) * form.channels * windows.elements
    group_start, group_channel = int32(group) * int32(whole), int32(group) * int32(outputs)

    def tile(first: Extent, count: int) -> tvm_api.Stmt:
        start = group_start + int32(first) * int32(windows.elements)
        channel = group_channel + int32(first)
        return sequence(
            call(
                form.function("products"), local_address(sums, 0), width,
                windows.first, windows.step, windows.count,
                address(weights, start), windows.elements, form.blocks(count),
            ),
            loop("position", windows.count, lambda p: layer.results(
                windows.results(p, channel), local_address(sums, p * int32(width)), channel, count,
                others,
            )),
        )  # fmt: skip

    tiles = loop("tile", outputs // width, lambda t: tile(t * int32(width), width))
    parts = [tiles] if outputs >= width else []
    if outputs % width:
        parts.append(tile(outputs - outputs % width, outputs % width))
    return sequence(tirx.AllocBuffer(sums), *parts)


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
        form: the instructions.
        parameters: parameters of the operator.
        shape: [rows, inputs] of the data.
        dtype: dtype of the data.
        constants: weights int8[O, I].
        positions: rows multiplied at once; 0 for the maximum.
        most_sums: sums of a row kept at once.
    """
    rows, inputs = shape
    layer = _Layer.of(form, parameters, dtype, constants, form.window)
    packed = form.packed(constants.weights)
    buffers = layer.buffers(packed)
    data = buffer("data", shape, dtype)
    output = buffer("output", parameters.output_shape, parameters.output_dtype)
    outputs, elements = len(constants.bias), form.filled(inputs)
    count = min(positions or form.positions, rows)
    copies = not _lie_as_copied(form, dtype, inputs)
    windows = tirx.decl_buffer([count * elements], form.window, "windows", scope="local")

    def at_rows(first: tvm_api.PrimExpr) -> tvm_api.Stmt:
        copy = loop("row", count if copies else 0, lambda row: call(
            form.function(f"copy_{dtype}"), local_address(windows, row * int32(elements)),
            address(data, first + row, 0), inputs,
        ))  # fmt: skip
        here = _Windows(
            local_address(windows, 0) if copies else address(data, first, 0),
            elements, count, elements,
            lambda p, channel: address(output, first + p, channel),
        )  # fmt: skip
        return sequence(
            *([copy] if copies else []), _multiply(layer, buffers, here, outputs, most_sums)
        )

    body = blocks(rows, at_rows, count, "row_block")
    if copies:
        body = sequence(tirx.AllocBuffer(windows), *_filled_up(windows, count, inputs), body)
    arrays = [packed.reshape(-1), *layer.constants.arrays()[1:]]
    return kernel([data, *buffers, output], body), arrays, form.layout("I")


def _lie_as_copied(form: DotForm, dtype: str, elements: int) -> bool:
    return form.window == dtype and form.filled(elements) == elements


def _filled_up(windows: tvm_api.Buffer, count: int, elements: int) -> list[tvm_api.Stmt]:
    size = tvm_api.buffer_shape(windows)[0] // count
    fill = f"{PREFIX}plain_fill_{tvm_api.buffer_dtype(windows)}"
    if size == elements:
        return []
    return [call(fill, local_address(windows, p * size + elements), size - elements, 0)
            for p in range(count)]  # fmt: skip


def conv2d(
    form: DotForm,
    parameters: ConvolutionParameters,
    shape: tuple[int, ...],
    dtype: str,
    constants: Constants,
    at_once: int = 0,
    most_sums: int = MOST_SUMS,
) -> Function:
    """Return the kernel of a convolution in NHWC, with any number of groups.

    Args:
        form: the instructions.
        parameters: parameters of the operator.
        shape: [N, H, W, C] of the data.
        dtype: dtype of the data.
        constants: weights int8[O, KH, KW, I / groups].
        at_once: positions multiplied at once; 0 for the maximum.
        most_sums: sums of a position kept at once.
    """
    if is_depthwise(parameters, shape):
        return _depthwise(form, parameters, shape, dtype, constants)
    layer = _Layer.of(form, parameters, dtype, constants, form.window)
    outputs = len(constants.bias) // parameters.groups
    flat = constants.weights.reshape(len(constants.bias), -1)
    packed = np.concatenate(
        [form.packed(part).reshape(-1) for part in np.split(flat, parameters.groups)]
    )
    buffers = layer.buffers(packed)
    data = buffer("data", shape, dtype)
    output = buffer("output", parameters.output_shape, parameters.output_dtype)
    axes = window_axes(parameters, shape, constants)
    positions = (shape[0], axes[0].outputs, axes[1].outputs)
    total = math.prod(positions)
    count = min(at_once or form.positions, total)
    elements = flat.shape[1]
    filled = form.filled(elements)
    copies = not (_is_pointwise(parameters, axes) and _lie_as_copied(form, dtype, elements))
    windows = tirx.decl_buffer([count * filled], form.window, "windows", scope="local")
    channels = shape[3] // parameters.groups
    copy = _Copy(form.function(f"copy_{dtype}"), data, windows, axes, channels, layer.zero_point)

    def at_positions(group: Extent, first: tvm_api.PrimExpr) -> tvm_api.Stmt:
        channel = int32(group) * int32(channels)
        here = _Windows(
            local_address(windows, 0) if copies else address(data, *unflatten(first, positions), 0),
            filled, count, filled,
            lambda p, channel: address(output, *unflatten(first + p, positions), channel),
        )  # fmt: skip
        copied = loop("position", count if copies else 0, lambda p: copy.of(
            unflatten(first + p, positions), p * int32(filled), channel
        ))  # fmt: skip
        return sequence(
            *([copied] if copies else []),
            _multiply(layer, buffers, here, outputs, most_sums, group),
        )

    body = loop("group", parameters.groups, lambda group: blocks(
        total, lambda first: at_positions(group, first), count, "position_block"
    ))  # fmt: skip
    if copies:
        body = sequence(tirx.AllocBuffer(windows), *_filled_up(windows, count, elements), body)
    arrays = [packed, *layer.constants.arrays()[1:]]
    return kernel([data, *buffers, output], body), arrays, form.layout("HWI")


def _is_pointwise(parameters: ConvolutionParameters, axes: tuple[Axis, Axis]) -> bool:
    one = all(axis.extent == 1 and axis.stride == 1 and axis.inside for axis in axes)
    return one and parameters.groups == 1


@dataclass(frozen=True)
class _Copy:
    """Copies of windows, with padding.

    Attributes:
        function: C function that copies a number of elements.
        data: the data, NHWC.
        windows: buffer of the copies.
        axes: rows and columns of a window.
        channels: channels of an element of a window.
        zero_point: value of padding.
    """

    function: str
    data: tvm_api.Buffer
    windows: tvm_api.Buffer
    axes: tuple[Axis, Axis]
    channels: int
    zero_point: int

    def of(
        self, place: Sequence[tvm_api.PrimExpr], start: Extent, channel: Extent = 0
    ) -> tvm_api.Stmt:
        """Return statements that copy a window.

        Args:
            place: image, row and column of the result.
            start: number of the first element of the copy.
            channel: first channel of the data.
        """
        vertical, horizontal = self.axes
        (_, rows), (_, columns) = self.spans(place)
        whole_rows = horizontal.dilation == 1
        whole_rows = whole_rows and self.channels == tvm_api.buffer_shape(self.data)[3]
        if whole_rows:
            length = columns * int32(self.channels)
            moved = loop(
                "row", rows, lambda row: self._run(place, (row, int32(0)), start, channel, length)
            )
            if horizontal.leaves:  # no copies of negative lengths, from and to outside of arrays
                moved = tirx.IfThenElse(columns > int32(0), moved, None)
        else:
            length = int32(self.channels)
            moved = loops(
                [("row", rows), ("column", columns)],
                lambda *element: self._run(place, element, start, channel, length),
            )
        if self.inside:
            return moved
        size = vertical.extent * horizontal.extent * self.channels
        fill = f"{PREFIX}plain_fill_{tvm_api.buffer_dtype(self.windows)}"
        filling = call(fill, local_address(self.windows, start), size, self.zero_point)
        return sequence(tirx.IfThenElse(self.is_partial(place), filling, None), moved)

    @property
    def inside(self) -> bool:
        """Whether all windows lie inside the data."""
        return all(axis.inside for axis in self.axes)

    def spans(self, place: Sequence[tvm_api.PrimExpr]) -> tuple[Span, Span]:
        """Return the rows and columns of a window inside the data."""
        _, y, x = place
        return self.axes[0].clipped(y), self.axes[1].clipped(x)

    def is_partial(self, place: Sequence[tvm_api.PrimExpr]) -> tvm_api.PrimExpr:
        """Return the condition that a part of a window lies in the padding."""
        (_, rows), (_, columns) = self.spans(place)
        return tirx.Or(rows < int32(self.axes[0].extent), columns < int32(self.axes[1].extent))

    def _run(
        self,
        place: Sequence[tvm_api.PrimExpr],
        element: Sequence[tvm_api.PrimExpr],
        start: Extent,
        channel: Extent,
        length: tvm_api.PrimExpr,
    ) -> tvm_api.Stmt:
        (n, y, x), (vertical, horizontal) = place, self.axes
        (top, _), (left, _) = self.spans(place)
        ky, kx = top + element[0], left + element[1]
        number = (ky * int32(horizontal.extent) + kx) * int32(self.channels) + int32(start)
        source = (n, vertical.source(y, ky), horizontal.source(x, kx), channel)
        return call(
            self.function, local_address(self.windows, number), address(self.data, *source), length
        )


def _depthwise(
    form: DotForm,
    parameters: ConvolutionParameters,
    shape: tuple[int, ...],
    dtype: str,
    constants: Constants,
) -> Function:
    """Return the kernel of a depthwise convolution; only windows that reach into the padding are
    copied."""
    layer = _Layer.of(form, parameters, dtype, constants, dtype)
    channels = shape[3]
    packed = form.packed_depthwise(constants.weights.reshape(channels, -1))
    buffers = layer.buffers(packed)
    data = buffer("data", shape, dtype)
    output = buffer("output", parameters.output_shape, parameters.output_dtype)
    axes = vertical, horizontal = window_axes(parameters, shape, constants)
    size = vertical.extent * horizontal.extent * channels
    windows = tirx.decl_buffer([size], dtype, "window", scope="local")
    sums = tirx.decl_buffer([channels], "int32", "sums", scope="local")
    plain = f"{PREFIX}plain_copy_{dtype}_{dtype}"
    function = form.function("copy_int8") if (dtype, form.window) == ("int8", "int8") else plain
    copy = _Copy(function, data, windows, axes, channels, layer.zero_point)

    def multiply(first: tvm_api.PrimExpr, row_step: int, column_step: int) -> tvm_api.Stmt:
        return call(
            form.function(f"depthwise_{dtype}"), local_address(sums, 0),
            first, row_step, column_step, address(buffers[0], 0),
            vertical.extent, horizontal.extent, channels,
        )  # fmt: skip

    def at(*place: tvm_api.PrimExpr) -> tvm_api.Stmt:
        n, y, x = place
        zero = int32(0)
        start = address(data, n, vertical.source(y, zero), horizontal.source(x, zero), zero)
        row_step = shape[2] * channels * vertical.dilation
        summed = multiply(start, row_step, channels * horizontal.dilation)
        if not copy.inside:
            copied = multiply(local_address(windows, 0), horizontal.extent * channels, channels)
            summed = tirx.IfThenElse(
                copy.is_partial(place), sequence(copy.of(place, 0), copied), summed
            )
        result = layer.results(
            address(output, n, y, x, 0), local_address(sums, 0), 0, channels, buffers[1:]
        )
        return sequence(summed, result)

    extents = [("image", shape[0]), ("row", vertical.outputs), ("column", horizontal.outputs)]
    allocated = [sums] if copy.inside else [sums, windows]
    body = sequence(*(tirx.AllocBuffer(each) for each in allocated), loops(extents, at, 1))
    arrays = [packed.reshape(-1), *layer.constants.arrays()[1:]]
    layout = f"HWO{form.depthwise_group}i" if form.depthwise_group > 1 else "HWO"
    return kernel([data, *buffers, output], body), arrays, layout


def addition(
    form: DotForm, parameters: CommonScaleParameters, shape: tuple[int, ...], dtype: str
) -> tvm_api.PrimFunc:
    """Return the kernel (left, right, output) of an addition of TensorFlow Lite.

    Args:
        form: the instructions.
        parameters: parameters of the operator.
        shape: shape of both operands and the result.
        dtype: dtype of operands and result.
    """
    left, right, output = (buffer(name, shape, dtype) for name in ("left", "right", "output"))
    origin = [0] * len(shape)
    factors = zip(parameters.multipliers, parameters.shifts, strict=True)
    body = call(
        form.function(f"add_tflm_{dtype}"),
        *(address(each, *origin) for each in (output, left, right)), math.prod(shape),
        *parameters.zero_points, parameters.left_shift, *(n for factor in factors for n in factor),
        parameters.output_zero_point, *parameters.clip,
    )  # fmt: skip
    return kernel([left, right, output], body).with_attr(ELEMENTWISE, True)
