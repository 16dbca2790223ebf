# SPDX-License-Identifier: Apache-2.0
"""`quantized.conv2d_transpose` (data, weights, bias, multipliers, shifts): transposed convolutions.

Weights are int8[O, KH, KW, I/groups], the bias int32[O].
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from umakit import tvm_api
from umakit.errors import BackendError, ModelError
from umakit.operators.derivation.weights import convolution_call, ordered_weights
from umakit.operators.derivation.windows import Window
from umakit.operators.drawings import spread
from umakit.operators.islands import Island
from umakit.operators.kernels import loops as ir
from umakit.operators.kernels.convolution import (
    Constants,
    as_operands,
    channel_count,
    constants_of,
    image_size,
    place,
    product,
)
from umakit.operators.offload import constraints as _c
from umakit.operators.offload.constraints import Constraint
from umakit.operators.offload.pattern_families import ConvolutionPattern
from umakit.operators.offload.reference import conv2d_transpose_loops
from umakit.operators.offload.weighted import QConvolution
from umakit.operators.parameters import ConvolutionParameters
from umakit.operators.registry import Order, Recognition, register, shape_of
from umakit.operators.tensors import NoIntegerForm, Weights
from umakit.operators.tflite import PADDING_SAME, TfliteNode, check_steps, check_wide_bias, converts
from umakit.tvm_api import Expr, PrimFunc, int32, relax, tirx

RELAX = ("nn.conv1d_transpose", "nn.conv2d_transpose")


@dataclass(frozen=True)
class Conv2dTranspose(ConvolutionParameters):
    """A transposed convolution: each element of the data is spread over a window of the result."""

    operator: ClassVar[str] = "conv2d_transpose"


def _derive(island: Island) -> Expr | None:
    return convolution_call(Conv2dTranspose, RELAX, island, ordered=_ordered)


def _ordered(weights: Weights, window: Window, attributes: tvm_api.Node) -> Weights:
    """Return weights in the kernel's order, with the output channels of all groups on one axis."""
    groups = int(attributes.groups)
    if groups != 1 and window.layout != "NCHW":
        raise NoIntegerForm("a transposed convolution has groups")
    ordered = ordered_weights(weights, window, attributes)
    return _outputs_of_all_groups(ordered, groups) if groups > 1 else ordered


def _outputs_of_all_groups(weights: Weights, groups: int) -> Weights:
    """Weights [O / groups, I, KH, KW] as [O, I / groups, KH, KW]."""
    outputs, inputs, *window = weights.integers.shape
    split = weights.reshaped((outputs, groups, inputs // groups, *window))
    together = split.transposed([1, 0, 2, 3, 4])
    return together.reshaped((groups * outputs, inputs // groups, *window))


def _kernel(parameters: Conv2dTranspose, call: tvm_api.Call) -> tuple[PrimFunc, list[Expr]]:
    constants, data = _with_holes(parameters, constants_of(call)), call.args[0]
    function = _loops(parameters, shape_of(data), tvm_api.dtype_of(data), constants)
    return function, [data, *as_operands(constants.arrays())]


def _loops(
    parameters: Conv2dTranspose, data_shape: tuple[int, ...], data_dtype: str, layer: Constants
) -> PrimFunc:
    """Kernel (data, weights, bias, multipliers, shifts, output) of a transposed convolution.

    The reference spreads each element over a window in an image of 32-bit accumulators; here each
    output element collects its contributions in one accumulator.

    Args:
        data_shape: [N, H, W, I], or [N, I, H, W] for NCHW.
        layer: the constants, weights [O, KH, KW, I / groups] or [O, I / groups, KH, KW]; a
            dilated window is filled with zeros (`_with_holes`).
    """
    height, width = image_size(parameters, data_shape)
    kernel_height, kernel_width = image_size(parameters, layer.weights.shape)
    rows, columns = image_size(parameters, parameters.output_shape)
    outputs, channels = layer.weights.shape[0], channel_count(parameters, layer.weights.shape)
    per_group = outputs // parameters.groups
    data = ir.buffer("data", data_shape, data_dtype)
    weights, bias, multipliers, shifts = layer.buffers()
    output = ir.buffer("output", parameters.output_shape, parameters.output_dtype)
    total = ir.accumulators(1, layer.bits)
    vertical = _Axis(height, kernel_height, parameters.strides[0], parameters.padding[0])
    horizontal = _Axis(width, kernel_width, parameters.strides[1], parameters.padding[1])

    def one(n: Expr, y: Expr, x: Expr, o: Expr) -> tvm_api.Stmt:
        (first_row, row_count), (first_column, column_count) = (
            vertical.terms(y), horizontal.terms(x)
        )  # fmt: skip

        def term(row: Expr, column: Expr, i: Expr) -> tvm_api.Stmt:
            iy, ky = vertical.pair(y, first_row + row)
            ix, kx = horizontal.pair(x, first_column + column)
            channel = tirx.floordiv(o, int32(per_group)) * int32(channels) + i
            element = data[tuple(place(parameters, n, iy, ix, channel))]
            weight = weights[tuple(place(parameters, o, ky, kx, i))]
            return ir.add_to(total, int32(0), product(element, weight, parameters.input_zero_point))

        return ir.sequence(
            tirx.AllocBuffer(total),
            ir.set_to(total, int32(0), bias[o]),
            ir.loops(
                [("row", row_count), ("column", column_count), ("input_channel", channels)], term
            ),
            ir.store_rescaled(
                output, place(parameters, n, y, x, o), ir.total_of(total, int32(0)),
                layer.factor(multipliers, shifts, o), parameters,
            ),
        )  # fmt: skip

    extents = [
        ("image", data_shape[0]), ("output_row", rows), ("output_column", columns),
        ("output_channel", outputs),
    ]  # fmt: skip
    return ir.kernel([data, weights, bias, multipliers, shifts, output], ir.loops(extents, one))


def _with_holes(parameters: Conv2dTranspose, layer: Constants) -> Constants:
    if parameters.dilation == (1, 1):
        return layer
    axes = (2, 3) if parameters.layout == "NCHW" else (1, 2)
    shape = list(layer.weights.shape)
    elements = [slice(None)] * 4
    for axis, dilation in zip(axes, parameters.dilation, strict=True):
        shape[axis] = (shape[axis] - 1) * dilation + 1
        elements[axis] = slice(None, None, dilation)
    weights = np.zeros(shape, layer.weights.dtype)
    weights[tuple(elements)] = layer.weights
    return replace(layer, weights=weights)


class _Axis:
    """Rows or columns: the elements of the data and window that contribute to an output element.

    With p = output + padding, element i contributes through k = p - i * stride in [0, extent).
    Terms are counted by j = p // stride - i, for which k = p % stride + j * stride.
    """

    def __init__(self, size: int, extent: int, stride: int, before: int) -> None:
        self._size, self._extent = size, extent
        self._stride, self._before = stride, before

    def _split(self, position: Expr) -> tuple[Expr, Expr]:
        place = position + int32(self._before)
        return tirx.truncdiv(place, int32(self._stride)), tirx.truncmod(place, int32(self._stride))

    def terms(self, position: Expr) -> tuple[Expr, Expr]:
        """Return the first j and the number of terms; a negative number means none."""
        quotient, remainder = self._split(position)
        first = tirx.max(quotient - int32(self._size - 1), int32(0))
        inside = int32(self._extent - 1 + self._stride) - remainder
        end = tirx.min(tirx.truncdiv(inside, int32(self._stride)), quotient + int32(1))
        return first, end - first

    def pair(self, position: Expr, j: Expr) -> tuple[Expr, Expr]:
        """Return the indices of term j in the data and in the window."""
        quotient, remainder = self._split(position)
        return quotient - j, remainder + j * int32(self._stride)


def _macs(call: tvm_api.Call, output: tuple[int, ...]) -> int:
    weights, data = (tvm_api.static_shape(argument) for argument in call.args[1::-1])
    if not weights or not data:
        return 0
    channels = data[str(call.attrs["layout"]).index("C")]
    return math.prod(data) // channels * math.prod(weights)


# --- offered to backends -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class QConv2dTranspose(Conv2dTranspose, QConvolution):
    """A transposed convolution: each element of the data is spread over a window of the result.

    `padding` is the number of results left out on each side.
    """

    def reference_kernel(self) -> PrimFunc:
        return conv2d_transpose_loops(self)


@dataclass(frozen=True, eq=False)
class qconv2d_transpose(ConvolutionPattern):
    """An integer transposed convolution; `fold_zero_point`, `weight_sums` and the
    padding `same` have no meaning.

    Attributes:
        groups: numbers of channel groups.
    """

    KIND = QConv2dTranspose
    OPERATOR = Conv2dTranspose

    name: str = "qconv2d_transpose"
    groups: int | Iterable[int] | None = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        for option in ("fold_zero_point", "weight_sums"):
            if getattr(self, option):
                raise BackendError(
                    f"{option}=True: results at the borders are sums of fewer weights",
                    where=self.name,
                    fix="leave it out",
                )
        if self.padding == "same":
            raise BackendError("padding='same' has no meaning", where=self.name, fix="give sides")
        super().__post_init__()

    def _own_constraints(self) -> list[Constraint]:
        return [
            _c.one_of(
                self.groups,
                lambda layer: layer.groups,
                lambda found, few: f"{found} groups: the accelerator has {few}",
            )
        ]


register(
    parameters=Conv2dTranspose,
    kernel=_kernel,
    recognitions=(
        Recognition(RELAX, _derive),
        Recognition(("add",), _derive, order=Order.SPECIAL),
    ),
    takes_clip=True,
    macs=_macs,
    drawing=spread.transposed_convolution(Conv2dTranspose),
    patterns=(qconv2d_transpose,),
)


@converts("TRANSPOSE_CONV", "float32", "int8", "int16", data=2, weights=True)
def convert(node: TfliteNode) -> Expr:
    """TRANSPOSE_CONV of (output shape, weights [O, KH, KW, I], data [N, H, W, I], bias)."""
    options = node.options("TransposeConvOptions")
    data, weights, result = (
        tensor.shape for tensor in (node.tensor(2), node.tensor(1), node.result)
    )
    if len(data) != 4 or len(weights) != 4 or len(result) != 4 or weights[3] != data[3]:
        raise ModelError(f"weights of shape {list(weights)} do not fit its data")
    check_steps(options, "StrideH", "StrideW")
    check_wide_bias(node, data=2, bias=3)
    strides = options.StrideH(), options.StrideW()
    same = options.Padding() == PADDING_SAME
    padding = [
        _transposed_padding(*sizes, same=same)
        for sizes in zip(data[1:3], result[1:3], weights[1:3], strides, strict=True)
    ]
    (top, bottom, more_rows), (left, right, more_columns) = padding
    dequantized = [node.dequantized(position) for position in (1, 2, 3) if node.has(position)]
    layouts, is_float = ("NHWC", "OHWI"), node.tensor(2).dtype == "float32"
    if is_float:  # the only layouts that TVM lowers
        layouts = "NCHW", "IOHW"
        for place, axes in enumerate(([3, 0, 1, 2], [0, 3, 1, 2])):
            dequantized[place] = node.emit(relax.op.permute_dims(dequantized[place], axes))
    value = relax.op.nn.conv2d_transpose(
        dequantized[1], dequantized[0], strides, (top, left, bottom, right),
        (more_rows, more_columns), data_layout=layouts[0], kernel_layout=layouts[1],
    )  # fmt: skip
    if is_float:
        value = relax.op.permute_dims(node.emit(value), [0, 2, 3, 1])
    if len(dequantized) > 2:
        value = relax.op.add(value, dequantized[2])
    return node.quantized(value, options.FusedActivationFunction())


def _transposed_padding(
    size: int, result: int, window: int, stride: int, *, same: bool
) -> tuple[int, int, int]:
    """Return the padding before and after, and the output padding, as in `padding.h`."""
    steps = -(-result // stride) if same else (result + stride - window) // stride
    before = max(0, (steps - 1) * stride + window - result) // 2
    rest = (size - 1) * stride + window - before - result
    if -rest >= stride:
        raise ModelError(f"its result of {result} rows or columns is larger than its windows reach")
    return before, max(rest, 0), max(-rest, 0)
