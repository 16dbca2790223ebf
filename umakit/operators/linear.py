# SPDX-License-Identifier: Apache-2.0
"""CONV_2D, DEPTHWISE_CONV_2D, FULLY_CONNECTED and TRANSPOSE_CONV of TensorFlow Lite."""

from __future__ import annotations

import math
from typing import Any

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.tflite import (
    PADDING_SAME,
    QUANTIZED,
    TYPE_INT32,
    TfliteConverter,
    TfliteOperator,
    check_steps,
    register_all,
)

relax = tvm_api.relax


WEIGHTS_NOT_SHUFFLED = 0
"""Of the schema's enumeration `FullyConnectedOptionsWeightsFormat`."""


def conv_2d(converter: TfliteConverter, operator: TfliteOperator) -> Any:
    """CONV_2D."""
    options = converter.options(operator, "Conv2DOptions")
    check_steps(options, "StrideH", "StrideW", "DilationHFactor", "DilationWFactor")
    check_wide_bias(converter, operator, operator.inputs[0], 2, options)
    return converter.imported(operator)


def depthwise_conv_2d(converter: TfliteConverter, operator: TfliteOperator) -> Any:
    """DEPTHWISE_CONV_2D."""
    options = converter.options(operator, "DepthwiseConv2DOptions")
    check_steps(options, "StrideH", "StrideW", "DilationHFactor", "DilationWFactor")
    check_wide_bias(converter, operator, operator.inputs[0], 2)
    return converter.imported(operator)


def fully_connected(converter: TfliteConverter, operator: TfliteOperator) -> Any:
    """FULLY_CONNECTED of rows; TVM does not flatten data of more dimensions."""
    options = converter.options(operator, "FullyConnectedOptions")
    check_wide_bias(converter, operator, operator.inputs[0], 2, options)
    if options.WeightsFormat() != WEIGHTS_NOT_SHUFFLED:
        raise ModelError("its weights are shuffled")
    inputs = converter.shape(operator.inputs[1])[-1]
    data = converter.value(operator.inputs[0])
    shape = tvm_api.static_shape(data) or ()
    rows = math.prod(shape) // inputs
    result_shape = converter.shape(operator.outputs[0])
    if rows * inputs != math.prod(shape):
        raise ModelError(f"its data of shape {list(shape)} is not rows of {inputs}")
    if shape != (rows, inputs):
        data = converter.emit(relax.op.reshape(data, (rows, inputs)))
    result = converter.emit(converter.imported(operator, {operator.inputs[0]: data}))
    if tvm_api.static_shape(result) == result_shape:
        return result
    return relax.op.reshape(result, result_shape)


def check_wide_bias(
    converter: TfliteConverter,
    operator: TfliteOperator,
    data: int,
    position: int,
    options: Any = None,
) -> None:
    """Refuse biases of other accumulators than those of kernels of 16-bit data.

    They have 64 bits, or those of the bias where the kernel has a choice, as in TensorFlow Lite
    Micro's conv.cc, fully_connected.cc, depthwise_conv.cc and transpose_conv.cc.

    Args:
        converter: of the operator.
        operator: a linear operator.
        data: its data.
        position: of the bias among the inputs.
        options: with `QuantizedBiasType`, where the kernel has a choice.

    Raises:
        ModelError: the bias has another dtype.
    """
    if converter.tensor(data).dtype != "int16":
        return
    number = operator.inputs[position] if len(operator.inputs) > position else -1
    dtype = converter.tensor(number).dtype if number >= 0 else "int64"
    allowed = ("int64",) if options is None else ("int64", "int32")
    if dtype not in allowed:
        raise ModelError(f"its bias is {dtype}, not {' or '.join(allowed)}")
    if options is not None and number < 0 and options.QuantizedBiasType() == TYPE_INT32:
        raise ModelError("it has no bias but sums of 32 bits")


def transposed_convolution(converter: TfliteConverter, operator: TfliteOperator) -> Any:
    """TRANSPOSE_CONV of (output shape, weights [O, KH, KW, I], data [N, H, W, I], bias)."""
    options = converter.options(operator, "TransposeConvOptions")
    data, weights, result = (
        converter.shape(number) for number in (*operator.inputs[2:0:-1], operator.outputs[0])
    )
    if len(data) != 4 or len(weights) != 4 or len(result) != 4 or weights[3] != data[3]:
        raise ModelError(f"weights of shape {list(weights)} do not fit its data")
    check_steps(options, "StrideH", "StrideW")
    check_wide_bias(converter, operator, operator.inputs[2], 3)
    strides = options.StrideH(), options.StrideW()
    same = options.Padding() == PADDING_SAME
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


register_all(("CONV_2D",), conv_2d, "float32", *QUANTIZED, weights=True)
register_all(("DEPTHWISE_CONV_2D",), depthwise_conv_2d, "float32", *QUANTIZED, weights=True)
register_all(("FULLY_CONNECTED",), fully_connected, "float32", *QUANTIZED, weights=True)
register_all(("TRANSPOSE_CONV",), transposed_convolution, "int8", "int16", data=2, weights=True)
