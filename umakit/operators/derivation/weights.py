# SPDX-License-Identifier: Apache-2.0
"""Constants of layers with weights: weights, bias, multipliers and shifts.

The formulas are from TensorFlow Lite Micro's kernels ("prepare" functions), in the same precision:
float32 scales are multiplied and divided in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.operators.derivation.windows import Window, on_images
from umakit.operators.islands import Island, Network, Result
from umakit.operators.multipliers import exact_multipliers, fixed_points, reduced_multipliers
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.numeric.float32 import LARGEST_FACTOR
from umakit.operators.parameters import ConvolutionParameters
from umakit.operators.tensors import Array, NoIntegerForm, Quantized, Weights
from umakit.tvm_api import Call

Bias = Weights | Array | None
"""Integers, or the real numbers that a model adds (only where it means reals)."""


MOST_OF_A_WIDE_BIAS = 2.0**46
"""Bound within which products of 64-bit accumulators do not overflow."""


BIAS_TOLERANCE = 0.02
"""Largest deviation of a bias's scale from the accumulator's scale, in LSBs of the result: the
limit of TensorFlow Lite, which adds the integers of a bias whatever their scale is."""

BIAS_ERROR = 1e-3
"""Largest error of a bias whose integers are taken at the accumulator's scale, in LSBs of the
result. Rounded scales of quantizers make 1e-5."""


@dataclass(frozen=True)
class Layer:
    """A convolution or fully connected layer of an island.

    Attributes:
        bias: integers, real numbers, or None without a bias.
    """

    source: Quantized
    weights: Weights
    bias: Bias
    arithmetic: Arithmetic
    network: Network


def adds_bias(island: Island, operators: Sequence[str]) -> bool:
    """Whether an island is the sum of the result of a given operator and a bias."""
    if tvm_api.operator_name(island.call) != "add":
        return False
    first = island.definition(island.call.args[0])
    return tvm_api.operator_name(first) in operators


def read_layer(island: Island, operators: Sequence[str]) -> tuple[Island, Layer] | None:
    """Return the layer of an island that ends with a given operator, or with its bias.

    Returns:
        The island without the bias, and the layer; None for other sums.
    """
    bias = None
    if tvm_api.operator_name(island.call) == "add":
        if not adds_bias(island, operators):
            return None
        bias = island.call.args[1]
        layer = island.definition(island.call.args[0])
        assert isinstance(layer, Call)
        island = island.with_result(call=layer)
    source = island.operand()
    island.check_node(island.definition(island.call.args[1]))
    operator = tvm_api.operator_name(island.call)
    # Kernels of TensorFlow Lite Micro's convolutions take zero points of weights for 0.
    unsigned = source.scale.dtype == "uint8"
    symmetric = (operator != "matmul" and not unsigned) or source.scale.dtype == "int16"
    weights = island.weights(island.call.args[1], symmetric=symmetric)
    biases = None if bias is None else island.bias(bias)
    if isinstance(biases, np.ndarray):
        name = tvm_api.span_name(island.result.span) or operator
        island.network.rounded_biases.append(name)
    node = tvm_api.result_name(island.result.span)
    if node:
        island.network.weights[node] = weights
    return island, Layer(source, weights, biases, island.arithmetic_of(source), island.network)


def constant_operands(result: Result, layer: Layer) -> list[tvm_api.Expr]:
    """Return weights, bias, multipliers and shifts as constants."""
    if layer.weights.integers.dtype not in (np.int8, np.int16):
        raise NoIntegerForm(f"the weights are {layer.weights.integers.dtype}, not of 8 bits")
    source, weights, bias = layer.source, layer.weights, layer.bias
    arithmetic = layer.arithmetic
    channels = weights.integers.shape[0]
    factors = _factors(source, weights, result, arithmetic)
    # TensorFlow Lite's convolutions of 16 bits sum in 64, unless their bias has 32.
    narrow = isinstance(bias, Weights) and bias.integers.dtype != np.int64
    wide = arithmetic is Arithmetic.TFLM and source.scale.dtype == "int16" and not narrow
    dtype = np.dtype(np.int64 if wide else np.int32)
    if isinstance(bias, Weights) and not layer.network.within_nodes:
        bias = _with_scale_of_products(layer, result)
    if isinstance(bias, np.ndarray):
        bias = _rounded_bias(bias, source, weights, dtype)
    biases = np.zeros(channels, dtype) if bias is None else _bias(bias, channels, dtype)
    if bias is not None:
        accumulator = source.scale.scale * weights.channel_scales()
        difference = np.abs(bias.scales.reshape(-1).astype(np.float64) - accumulator)
        if (difference > BIAS_TOLERANCE * result.scale.scale).any():
            raise NoIntegerForm("the bias has another scale than the products")
    if arithmetic is Arithmetic.EVEN:
        sums = np.abs(weights.integers.reshape(channels, -1).astype(np.int64)).sum(axis=1)
        largest = np.abs(biases.astype(np.int64)) + source.scale.magnitude * sums
        scaled = exact_multipliers(factors, int(largest.max()))
        if largest.max() >= 2**31:
            biases = biases.astype(np.int64)
    else:
        scaled = fixed_points([float(factor) for factor in factors])
    scaled = reduced_multipliers(scaled) if wide else scaled
    arrays = (weights.integers, biases, scaled.multipliers, scaled.shifts)
    # Without a dtype, TVM would make int32 of int64.
    return [tvm_api.relax.const(np.ascontiguousarray(a), str(a.dtype)) for a in arrays]


def _factors(source: Quantized, weights: Weights, result: Result, arithmetic: Arithmetic) -> Array:
    """Return the factors of a linear layer's accumulators, one factor or one per channel.

    ONNX Runtime computes the factors in float32, TensorFlow Lite Micro in float64. LiteRT
    multiplies the scales in float32 if the weights have one scale
    (`GetQuantizedConvolutionMultipler`); this is reproduced for uint8, which only LiteRT supports.
    """
    # 16-bit integers are rounded once, as exactly as possible.
    kind: type[np.floating[Any]] = np.float32 if arithmetic is Arithmetic.ORT else np.float64
    legacy = arithmetic is Arithmetic.TFLM and source.scale.dtype == "uint8"
    of_scales = np.float32 if legacy else kind
    product = of_scales(source.scale.scale) * weights.channel_scales().astype(of_scales)
    factors: Array = product.astype(kind) / kind(result.scale.scale)
    if arithmetic is Arithmetic.ORT and not (factors < LARGEST_FACTOR).all():
        raise NoIntegerForm("the result's scale is too small for the operands'")
    return np.asarray(factors, np.float64)


def _with_scale_of_products(layer: Layer, result: Result) -> Bias:
    """Return the bias of a layer, as real numbers if its scale is not that of the products.

    Raises:
        NoIntegerForm: the model does not mean real numbers, so that rounded ones may be wrong.
    """
    bias = layer.bias
    assert isinstance(bias, Weights)
    integers, scales = bias.integers.ravel(), bias.scales.ravel().astype(np.float64)
    products = layer.source.scale.scale * layer.weights.channel_scales().astype(np.float64)
    errors = np.abs(integers * (scales - products)) / result.scale.scale
    if (errors <= BIAS_ERROR).all():
        return bias
    if not layer.network.means_reals:
        raise NoIntegerForm("the bias has another scale than the products")
    return (integers * scales).astype(np.float32)


def _rounded_bias(
    bias: Array, source: Quantized, weights: Weights, dtype: np.dtype[Any]
) -> Weights:
    """Return a real bias as integers of the products' scale, rounded to nearest, ties to even.

    The rounding error is at most half an LSB of the accumulators.
    """
    scales = np.float32(source.scale.scale) * weights.channel_scales().astype(np.float32)
    scales = np.broadcast_to(scales, (weights.integers.shape[0],))
    if bias.size != scales.size:
        raise NoIntegerForm("the bias is not one number for each output channel")
    quotients = np.rint(bias.reshape(-1).astype(np.float64) / scales.astype(np.float64))
    # `not <`, so that NaN is refused too.
    if not (np.abs(quotients) < 2.0 ** (8 * dtype.itemsize - 2)).all():
        raise NoIntegerForm("the bias is too large for the scale of the products")
    return Weights(quotients.astype(dtype), scales)


def _bias(bias: Weights, channels: int, dtype: np.dtype[Any]) -> Array:
    if bias.integers.dtype != dtype or bias.integers.size != channels:
        raise NoIntegerForm(f"the bias is not one {dtype} for each output channel")
    if (np.abs(bias.integers.astype(np.float64)) >= MOST_OF_A_WIDE_BIAS).any():
        raise NoIntegerForm("the bias is too large for its products")
    return bias.integers.reshape(-1)


Ordered = Callable[[Weights, Window, tvm_api.Node], Weights]
"""(weights of the model, window, attributes of the convolution) -> weights of the kernel."""


def ordered_weights(weights: Weights, window: Window, attributes: tvm_api.Node) -> Weights:
    """Weights as [O, KH, KW, I] for data in NHWC, as [O, I, KH, KW] for data in NCHW."""
    return window.ordered(weights, str(attributes.kernel_layout))


def convolution_call(
    kind: type[ConvolutionParameters],
    operators: Sequence[str],
    island: Island,
    *,
    ordered: Ordered = ordered_weights,
) -> Call | None:
    """Return a call (data, weights, bias, multipliers, shifts) of a convolution.

    Args:
        ordered: (weights, window, attributes) -> weights in the kernel's order.

    Returns:
        The call; None for sums other than a convolution plus a bias.
    """
    found = read_layer(island, operators)
    if found is None:
        return None
    without_bias, layer = found

    def convolve(image: Island, data: Quantized) -> Call:
        attributes = image.call.attrs
        window = Window.of(attributes)
        weights = ordered(layer.weights, window, attributes)
        parameters = kind(
            **image.result.common(layer.arithmetic),
            **window.common(),
            dilation=window.dilation,
            groups=int(attributes.groups),
            input_zero_point=data.scale.zero_point,
        )
        operands = constant_operands(image.result, replace(layer, source=data, weights=weights))
        return parameters.call([data.integers, *operands], image.result.span)

    return on_images(without_bias, layer.source, convolve)
