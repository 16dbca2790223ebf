# SPDX-License-Identifier: Apache-2.0
"""CPU kernels of the integer operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.errors import LoweringError
from umakit.lower.integer import (
    channels_first,
    convolution,
    elementwise,
    float32_kernels,
    gathered,
    lookup,
    pooling,
    softmax,
    transposed,
)
from umakit.quantization.further_operators import Conv2dTranspose, Lookup, Mean
from umakit.quantization.onnx_operators import Float32Product, Float32Sum, GlobalAveragePool
from umakit.quantization.operators import (
    PREFIX,
    Add,
    AveragePool2d,
    Conv2d,
    Dense,
    MaxPool2d,
    Multiply,
    Parameters,
    Quantize,
    Requantize,
    Softmax,
    Subtract,
)

__all__ = ["legalizations"]

Rule = Callable[[Any, Any], Any]
"""(block builder, call) -> call_tir."""


def legalizations() -> dict[str, Rule]:
    """Rules for `LegalizeOps`, by operator."""
    rules: dict[str, Rule] = {
        Conv2d.operator: _conv2d,
        Dense.operator: _dense,
        Softmax.operator: _softmax,
        Requantize.operator: _requantize,
        Multiply.operator: _multiply,
        Quantize.operator: _quantize,
        Conv2dTranspose.operator: _conv2d_transpose,
        Mean.operator: _mean,
    }
    rules |= {kind.operator: _add_of(kind) for kind in (Add, Subtract)}
    rules |= {kind.operator: _pool_of(kind) for kind in (AveragePool2d, MaxPool2d)}
    rules |= {
        Lookup.operator: _rule_of(Lookup, lookup.lookup),
        Float32Sum.operator: _rule_of(Float32Sum, float32_kernels.pair),
        Float32Product.operator: _rule_of(Float32Product, float32_kernels.pair),
        GlobalAveragePool.operator: _rule_of(
            GlobalAveragePool, float32_kernels.global_average_pool
        ),
    }
    return {f"relax.{PREFIX}{operator}": rule for operator, rule in rules.items()}


def _call(builder: Any, call: Any, function: Any, operands: list[Any]) -> Any:
    name = tvm_api.operator_name(call).replace(".", "_")
    variable = builder.add_func(function, name)
    return tvm_api.relax.call_tir(variable, tvm_api.relax.Tuple(operands), call.ty)


def _shape(expression: Any) -> tuple[int, ...]:
    shape = tvm_api.static_shape(expression)
    if shape is None:
        raise LoweringError("an integer operator's operand has no static shape")
    return shape


def _linear(call: Any) -> convolution.Linear:
    arrays = [tvm_api.constant_array(argument) for argument in call.args[1:]]
    weights, bias, multipliers, shifts = (array for array in arrays if array is not None)
    return convolution.Linear(weights, bias, multipliers, shifts)


def _constants(arrays: list[Any]) -> list[Any]:
    return [tvm_api.relax.const(np.ascontiguousarray(a), str(a.dtype)) for a in arrays]


def _conv2d(builder: Any, call: Any) -> Any:
    known, layer, data = Conv2d.of(call), _linear(call), call.args[0]
    shape, dtype, zero_point = _shape(data), tvm_api.dtype_of(data), known.input_zero_point
    gather = gathered.suits(known, shape, layer)
    if not gather and not convolution.pads(known, shape, layer):
        layer, zero_point = layer.without_zero_point(zero_point), 0
    arrays = layer.arrays()
    if gather:
        function = gathered.conv2d(known, shape, dtype, layer, zero_point)
    elif convolution.suits_tiles(known, shape, layer):
        function = convolution.tiled_conv2d(known, shape, dtype, layer, zero_point)
        arrays[0] = convolution.channels_last(known, layer.weights)
    elif known.layout == "NCHW":
        function = channels_first.conv2d(known, shape, dtype, layer, zero_point)
    else:
        function = convolution.conv2d(known, shape, dtype, layer, zero_point)
    return _call(builder, call, function, [data, *_constants(arrays)])


def _dense(builder: Any, call: Any) -> Any:
    known, data = Dense.of(call), call.args[0]
    layer = _linear(call).without_zero_point(known.input_zero_point)
    function = convolution.dense(known, _shape(data), tvm_api.dtype_of(data), layer)
    return _call(builder, call, function, [data, *_constants(layer.arrays())])


def _conv2d_transpose(builder: Any, call: Any) -> Any:
    data, layer = call.args[0], _linear(call)
    function = transposed.conv2d_transpose(
        Conv2dTranspose.of(call), _shape(data), tvm_api.dtype_of(data), layer
    )
    return _call(builder, call, function, [data, *_constants(layer.arrays())])


def _mean(builder: Any, call: Any) -> Any:
    data = call.args[0]
    function = lookup.mean(Mean.of(call), _shape(data), tvm_api.dtype_of(data))
    return _call(builder, call, function, [data])


def _softmax(builder: Any, call: Any) -> Any:
    data = call.args[0]
    function = softmax.softmax(Softmax.of(call), _shape(data), tvm_api.dtype_of(data))
    return _call(builder, call, function, list(call.args))


def _requantize(builder: Any, call: Any) -> Any:
    shapes, dtypes = _operands(call)
    function = elementwise.requantize(Requantize.of(call), shapes, dtypes)
    return _call(builder, call, function, list(call.args))


def _quantize(builder: Any, call: Any) -> Any:
    function = elementwise.quantize(Quantize.of(call), _shape(call.args[0]))
    return _call(builder, call, function, list(call.args))


def _multiply(builder: Any, call: Any) -> Any:
    shapes, dtypes = _operands(call)
    function = elementwise.multiplication(Multiply.of(call), shapes, dtypes)
    return _call(builder, call, function, list(call.args))


def _operands(call: Any) -> tuple[list[tuple[int, ...]], list[str]]:
    return [_shape(arg) for arg in call.args], [tvm_api.dtype_of(arg) for arg in call.args]


def _rule_of(kind: type[Parameters], function_of: Callable[..., Any]) -> Rule:
    """A rule for a kernel (parameters, shapes, dtypes) -> prim func."""

    def rule(builder: Any, call: Any) -> Any:
        function = function_of(kind.of(call), *_operands(call))
        return _call(builder, call, function, list(call.args))

    return rule


def _add_of(kind: type[Add]) -> Rule:
    def rule(builder: Any, call: Any) -> Any:
        shapes, dtypes = _operands(call)
        function = elementwise.add(kind.of(call), shapes, dtypes)
        return _call(builder, call, function, list(call.args))

    return rule


def _pool_of(kind: type[AveragePool2d] | type[MaxPool2d]) -> Rule:
    def rule(builder: Any, call: Any) -> Any:
        data = call.args[0]
        known = kind.of(call)
        pool = channels_first.pool2d if known.layout == "NCHW" else pooling.pool2d
        function = pool(known, _shape(data), tvm_api.dtype_of(data))
        return _call(builder, call, function, [data])

    return rule
