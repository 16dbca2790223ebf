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
    images,
    interpolation,
    lookup,
    matmul,
    pooling,
    probabilities,
    softmax,
    transposed,
)
from umakit.operators import registry
from umakit.quantization.further_operators import (
    ArgMax,
    ArgMin,
    BatchMatmul,
    Conv2dTranspose,
    Mean,
    Prelu,
    ResizeBilinear,
    SigmoidLookup,
    SoftmaxLookup,
    Sum,
)
from umakit.quantization.onnx_operators import (
    DilatedMaxPool2d,
    Float32Product,
    Float32Sum,
    GlobalAveragePool,
    Interpolation,
    MeanPool2d,
    Probabilities,
)
from umakit.quantization.operators import (
    PREFIX,
    Add,
    AveragePool2d,
    Conv2d,
    Dense,
    MaxPool2d,
    Multiply,
    Parameters,
    Pool2d,
    Quantize,
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
        Multiply.operator: _multiply,
        Quantize.operator: _quantize,
        Conv2dTranspose.operator: _conv2d_transpose,
    }
    rules |= {kind.operator: _add_of(kind) for kind in (Add, Subtract)}
    pools: tuple[type[Pool2d], ...] = (AveragePool2d, MaxPool2d, DilatedMaxPool2d)
    rules |= {kind.operator: _pool_of(kind) for kind in pools}
    rules |= {kind.operator: _rule_of(kind, lookup.mean) for kind in (Mean, Sum)}
    rules |= {kind.operator: _rule_of(kind, images.arg_max) for kind in (ArgMax, ArgMin)}
    rules |= {
        BatchMatmul.operator: _rule_of(BatchMatmul, matmul.batch_matmul),
        Prelu.operator: _rule_of(Prelu, elementwise.prelu),
        ResizeBilinear.operator: _rule_of(ResizeBilinear, images.resize_bilinear),
        SigmoidLookup.operator: _rule_of(SigmoidLookup, interpolation.sigmoid_lookup),
        SoftmaxLookup.operator: _rule_of(SoftmaxLookup, interpolation.softmax_lookup),
        Interpolation.operator: _rule_of(Interpolation, lookup.interpolation),
        MeanPool2d.operator: _rule_of(MeanPool2d, pooling.mean_pool2d),
        Probabilities.operator: _rule_of(Probabilities, probabilities.probabilities),
        Float32Sum.operator: _rule_of(Float32Sum, float32_kernels.pair),
        Float32Product.operator: _rule_of(Float32Product, float32_kernels.pair),
        GlobalAveragePool.operator: _rule_of(
            GlobalAveragePool, float32_kernels.global_average_pool
        ),
    }
    own = {f"relax.{PREFIX}{operator}": rule for operator, rule in rules.items()}
    return registry.legalizations() | own


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
    known, data = Conv2dTranspose.of(call), call.args[0]
    layer = transposed.with_holes(known, _linear(call))
    function = transposed.conv2d_transpose(known, _shape(data), tvm_api.dtype_of(data), layer)
    return _call(builder, call, function, [data, *_constants(layer.arrays())])


def _softmax(builder: Any, call: Any) -> Any:
    data = call.args[0]
    function = softmax.softmax(Softmax.of(call), _shape(data), tvm_api.dtype_of(data))
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


def _pool_of(kind: type[Pool2d]) -> Rule:
    def rule(builder: Any, call: Any) -> Any:
        data = call.args[0]
        known = kind.of(call)
        function = pooling.pool2d(known, _shape(data), tvm_api.dtype_of(data))
        return _call(builder, call, function, [data])

    return rule
