# SPDX-License-Identifier: Apache-2.0
"""Activation functions of TensorFlow Lite."""

from __future__ import annotations

import math
from typing import Any

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.tflite import TfliteConverter, TfliteOperator, imported, register_all

relax = tvm_api.relax


def logistic(converter: TfliteConverter, operator: TfliteOperator) -> Any:
    """LOGISTIC."""
    return converter.island(operator, relax.op.sigmoid)


def tanh(converter: TfliteConverter, operator: TfliteOperator) -> Any:
    """TANH."""
    return converter.island(operator, relax.op.tanh)


def leaky_relu(converter: TfliteConverter, operator: TfliteOperator) -> Any:
    """LEAKY_RELU."""
    slope = float(converter.options(operator, "LeakyReluOptions").Alpha())
    if not math.isfinite(slope):
        raise ModelError(f"its alpha is {slope}")
    return converter.island(operator, lambda data: relax.op.nn.leakyrelu(data, slope))


def hard_swish(converter: TfliteConverter, operator: TfliteOperator) -> Any:
    """HARD_SWISH as x * min(max(x + 3, 0), 6) / 6."""

    def function(data: Any) -> Any:
        moved = relax.op.add(data, relax.const(3.0, "float32"))
        ramp = relax.op.clip(moved, tvm_api.float_value(0.0), tvm_api.float_value(6.0))
        product = relax.op.multiply(data, ramp)
        return relax.op.multiply(product, relax.const(1 / 6, "float32"))

    return converter.island(operator, function)


def elu(converter: TfliteConverter, operator: TfliteOperator) -> Any:
    """ELU as max(x, 0) + min(exp(x) - 1, 0)."""

    def function(data: Any) -> Any:
        emit, zero, one = converter.emit, *(relax.const(n, "float32") for n in (0.0, 1.0))
        negative = relax.op.minimum(emit(relax.op.subtract(emit(relax.op.exp(data)), one)), zero)
        return relax.op.add(emit(relax.op.nn.relu(data)), emit(negative))

    return converter.island(operator, function)


def prelu(converter: TfliteConverter, operator: TfliteOperator) -> Any:
    """PRELU as max(x, 0) + min(x, 0) * slopes."""
    data, slopes = (converter.dequantized(number) for number in operator.inputs)
    emit, zero = converter.emit, relax.const(0.0, "float32")
    negative = relax.op.multiply(emit(relax.op.minimum(data, zero)), slopes)
    value = relax.op.add(emit(relax.op.nn.relu(data)), emit(negative))
    return converter.quantized(operator, value)


def softmax(converter: TfliteConverter, operator: TfliteOperator) -> Any:
    """SOFTMAX over the last axis, with a factor of 1."""
    beta = converter.options(operator, "SoftmaxOptions").Beta()
    if beta != 1.0:
        raise ModelError(f"its beta is {beta}, only 1 is supported")
    return converter.imported(operator)


EIGHT_BITS = ("float32", "int8", "uint8")
INT16_RESULT = ("int8", "int16")
"""Only the result of a softmax of 8 bits has 16 that are not symmetric."""

register_all(("RELU",), imported, *EIGHT_BITS, "int16")
register_all(("RELU6",), imported, *EIGHT_BITS, "int16", same_scale=True)
register_all(("LEAKY_RELU",), leaky_relu, *EIGHT_BITS, "int16")
register_all(("LOGISTIC",), logistic, *EIGHT_BITS, "int16")
register_all(("TANH",), tanh, *EIGHT_BITS, "int16")
register_all(("ELU",), elu, "float32", "int8")
register_all(("HARD_SWISH",), hard_swish, "float32", "int8")
register_all(("PRELU",), prelu, "float32", "int8", "int16", weights=True)
register_all(("SOFTMAX",), softmax, *EIGHT_BITS, "int16", INT16_RESULT, asymmetric=(INT16_RESULT,))
