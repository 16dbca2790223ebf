# SPDX-License-Identifier: Apache-2.0
"""Converters of TensorFlow Lite operators that TVM's importer lacks, or imports another way.

Quantized arithmetic becomes an island between dequantize and quantize, whose integer form the
quantization stage knows. Operators that only move numbers are applied to the integers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import tflite

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.frontend.tflite.graph import TfliteOperator
from umakit.frontend.tflite.movements import MOVEMENTS, Convert

if TYPE_CHECKING:
    from umakit.frontend.tflite.converter import Converter

relax = tvm_api.relax

MOST_MATMUL_AXES = 5
"""Of an operand of BATCH_MATMUL."""

# --- activations --------------------------------------------------------------------------------


def logistic(converter: Converter, operator: TfliteOperator) -> Any:
    """LOGISTIC."""
    return converter.island(operator, relax.op.sigmoid)


def tanh(converter: Converter, operator: TfliteOperator) -> Any:
    """TANH."""
    return converter.island(operator, relax.op.tanh)


def leaky_relu(converter: Converter, operator: TfliteOperator) -> Any:
    """LEAKY_RELU."""
    slope = float(converter.options(operator, tflite.LeakyReluOptions).Alpha())
    if not math.isfinite(slope):
        raise ModelError(f"its alpha is {slope}")
    return converter.island(operator, lambda data: relax.op.nn.leakyrelu(data, slope))


def hard_swish(converter: Converter, operator: TfliteOperator) -> Any:
    """HARD_SWISH as x * min(max(x + 3, 0), 6) / 6."""

    def function(data: Any) -> Any:
        moved = relax.op.add(data, relax.const(3.0, "float32"))
        ramp = relax.op.clip(moved, tvm_api.float_value(0.0), tvm_api.float_value(6.0))
        product = relax.op.multiply(data, ramp)
        return relax.op.multiply(product, relax.const(1 / 6, "float32"))

    return converter.island(operator, function)


def elu(converter: Converter, operator: TfliteOperator) -> Any:
    """ELU as max(x, 0) + min(exp(x) - 1, 0)."""

    def function(data: Any) -> Any:
        emit, zero, one = converter.bb.emit, *(relax.const(n, "float32") for n in (0.0, 1.0))
        negative = relax.op.minimum(emit(relax.op.subtract(emit(relax.op.exp(data)), one)), zero)
        return relax.op.add(emit(relax.op.nn.relu(data)), emit(negative))

    return converter.island(operator, function)


def prelu(converter: Converter, operator: TfliteOperator) -> Any:
    """PRELU as max(x, 0) + min(x, 0) * slopes."""
    data, slopes = (converter.dequantized(number) for number in operator.inputs)
    emit, zero = converter.bb.emit, relax.const(0.0, "float32")
    negative = relax.op.multiply(emit(relax.op.minimum(data, zero)), slopes)
    value = relax.op.add(emit(relax.op.nn.relu(data)), emit(negative))
    return converter.quantized(operator, value)


# --- arithmetic ---------------------------------------------------------------------------------


def reduction(function: Any) -> Convert:
    """MEAN or SUM over constant axes."""

    def convert(converter: Converter, operator: TfliteOperator) -> Any:
        axes, keep = _reduced(converter, operator)
        return converter.island(operator, lambda data: function(data, axes, keep))

    return convert


def _reduced(converter: Converter, operator: TfliteOperator) -> tuple[list[int], bool]:
    """Axes, and whether they stay with one element."""
    keep = bool(converter.options(operator, tflite.ReducerOptions).KeepDims())
    rank = len(converter.shape(operator.inputs[0]))
    given = converter.integers(operator, 1)
    if not given or any(not -rank <= axis < rank for axis in given):
        raise ModelError(f"its axes are {given}")
    return sorted({axis % rank for axis in given}), keep


def place_of_extreme(function: Any) -> Convert:
    """ARG_MAX or ARG_MIN along a constant axis, as int32."""

    def convert(converter: Converter, operator: TfliteOperator) -> Any:
        rank = len(converter.shape(operator.inputs[0]))
        axes = converter.integers(operator, 1)
        if len(axes) != 1 or not -rank <= axes[0] < rank:
            raise ModelError(f"its axis is {axes}")
        places = function(converter.value(operator.inputs[0]), axes[0] % rank)
        return relax.op.astype(converter.bb.emit(places), "int32")

    return convert


def batch_matmul(converter: Converter, operator: TfliteOperator) -> Any:
    """BATCH_MATMUL of matrices whose leading axes broadcast."""
    options = converter.options(operator, tflite.BatchMatMulOptions)
    operands = []
    for number, adjoint in zip(operator.inputs, (options.AdjX(), options.AdjY()), strict=True):
        rank = len(converter.shape(number))
        if not 2 <= rank <= MOST_MATMUL_AXES:
            raise ModelError(f"an operand has {rank} axes")
        value = converter.dequantized(number)
        if adjoint:
            order = [*range(rank - 2), rank - 1, rank - 2]
            value = converter.bb.emit(relax.op.permute_dims(value, order))
        operands.append(value)
    return converter.quantized(operator, relax.op.matmul(*operands))


def transposed_convolution(converter: Converter, operator: TfliteOperator) -> Any:
    """TRANSPOSE_CONV of (output shape, weights [O, KH, KW, I], data [N, H, W, I], bias)."""
    options = converter.options(operator, tflite.TransposeConvOptions)
    data, weights, result = (
        converter.shape(number) for number in (*operator.inputs[2:0:-1], operator.outputs[0])
    )
    if len(data) != 4 or len(weights) != 4 or len(result) != 4 or weights[3] != data[3]:
        raise ModelError(f"weights of shape {list(weights)} do not fit its data")
    strides = options.StrideH(), options.StrideW()
    same = options.Padding() == tflite.Padding.SAME
    padding = [
        _transposed_padding(*sizes, same=same)
        for sizes in zip(data[1:3], result[1:3], weights[1:3], strides, strict=True)
    ]
    (top, bottom, more_rows), (left, right, more_columns) = padding
    dequantized = [converter.dequantized(number) for number in operator.inputs[1:]]
    value = relax.op.nn.conv2d_transpose(
        dequantized[1], dequantized[0], strides, (top, left, bottom, right),
        (more_rows, more_columns), data_layout="NHWC", kernel_layout="OHWI",
    )  # fmt: skip
    if len(dequantized) > 2:
        value = relax.op.add(value, dequantized[2])
    return converter.quantized(operator, value, options.FusedActivationFunction())


def _transposed_padding(
    size: int, result: int, window: int, stride: int, *, same: bool
) -> tuple[int, int, int]:
    """Padding before, after, and what the result is longer than the windows; `padding.h`.

    Raises:
        ModelError: a result that the windows do not reach.
    """
    steps = -(-result // stride) if same else (result + stride - window) // stride
    before = max(0, (steps - 1) * stride + window - result) // 2
    rest = (size - 1) * stride + window - before - result
    if -rest >= stride:
        raise ModelError(f"its result of {result} rows or columns is larger than its windows reach")
    return before, max(rest, 0), max(-rest, 0)


def quantize(converter: Converter, operator: TfliteOperator) -> Any:
    """QUANTIZE, of integers a change of scale; how reals are rounded, the islands know."""
    return converter.island(operator, lambda data: data)


def resize_bilinear(converter: Converter, operator: TfliteOperator) -> Any:
    """RESIZE_BILINEAR of [N, H, W, C]."""
    options = converter.options(operator, tflite.ResizeBilinearOptions)
    source, result = (converter.shape(item) for item in (operator.inputs[0], operator.outputs[0]))
    size = converter.integers(operator, 1)
    if len(source) != 4 or list(result[1:3]) != size:
        raise ModelError(f"its result has the shape {list(result)}")
    if options.AlignCorners() and options.HalfPixelCenters():
        raise ModelError("it aligns corners and has half-pixel centers")
    mode = "align_corners" if options.AlignCorners() else "asymmetric"
    if options.HalfPixelCenters():
        mode = "half_pixel"

    def function(data: Any) -> Any:
        return relax.op.image.resize2d(
            data, tuple(size), layout="NHWC", method="linear", coordinate_transformation_mode=mode
        )

    return converter.island(operator, function)


CONVERTERS: dict[str, Convert] = MOVEMENTS | {
    "ARG_MAX": place_of_extreme(relax.op.argmax),
    "ARG_MIN": place_of_extreme(relax.op.argmin),
    "BATCH_MATMUL": batch_matmul,
    "ELU": elu,
    "HARD_SWISH": hard_swish,
    "LEAKY_RELU": leaky_relu,
    "LOGISTIC": logistic,
    "MEAN": reduction(relax.op.mean),
    "PRELU": prelu,
    "QUANTIZE": quantize,
    "RESIZE_BILINEAR": resize_bilinear,
    "SUM": reduction(relax.op.sum),
    "TANH": tanh,
    "TRANSPOSE_CONV": transposed_convolution,
}
