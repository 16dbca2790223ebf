# SPDX-License-Identifier: Apache-2.0
"""Parameters of integer operators, derived from scales and zero points.

The formulas are those of TensorFlow Lite Micro's kernels ("prepare" functions), in the same
precision: float32 scales are multiplied and divided in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.operators.islands import Result
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.numeric.float32 import LARGEST_FACTOR
from umakit.operators.numeric.multipliers import (
    check_headroom,
    exact_multipliers,
    fixed_points,
    multiplier_of,
    reduced_multipliers,
)
from umakit.operators.requantize import change_of_scale as requantize
from umakit.operators.tensors import NotAnIsland, Quantized, Weights
from umakit.quantization.operators import (
    Add,
    AveragePool2d,
    Conv2d,
    Dense,
    MaxPool2d,
    Multiply,
    Parameters,
    Pool2d,
    Subtract,
)
from umakit.quantization.windows import Window

Array = npt.NDArray[Any]

Bias = Weights | npt.NDArray[Any] | None
"""Integers, or the real numbers that a model adds (only where it means reals)."""

ONE = np.float32(1)
ADD_LEFT_SHIFTS = {"int8": 20, "uint8": 20, "int16": 15}
"""TensorFlow Lite's left shift of the operands of an addition."""

MOST_OF_A_WIDE_BIAS = 2.0**46
BIAS_TOLERANCE = 0.02
"""How far, in steps of the result, a bias's scale may be from that of the accumulator."""


def conv2d(
    result: Result, source: Quantized, weights: Weights, bias: Bias, rounding: Arithmetic
) -> Any:
    """A `quantized.conv2d` call.

    Raises:
        NotAnIsland: a layout other than NHWC, or scales that integers cannot express.
    """
    window = Window.of(result.call.attrs)
    known = Conv2d(
        **result.common(rounding),
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilation,
        groups=int(result.call.attrs.groups),
        input_zero_point=source.scale.zero_point,
        layout=window.layout,
    )
    weights = window.ordered(weights, str(result.call.attrs.kernel_layout))
    operands = linear_operands(result, source, weights, bias, rounding)
    return known.call([source.integers, *operands], result.span)


def dense(
    builder: Any,
    result: Result,
    source: Quantized,
    weights: Weights,
    bias: Bias,
    rounding: Arithmetic,
) -> Any:
    """A `quantized.dense` call, reshaped if the data has more than two dimensions.

    Raises:
        NotAnIsland: scales that integers cannot express.
    """
    if weights.integers.ndim != 2:
        raise NotAnIsland("the weights are no matrix")
    weights = weights.transposed([1, 0])
    outputs, inputs = weights.integers.shape
    shape = tvm_api.static_shape(source.integers) or ()
    rows = int(np.prod(shape[:-1]))
    operands = linear_operands(result, source, weights, bias, rounding)
    fields = result.common(rounding) | {"output_shape": (rows, outputs)}
    known = Dense(**fields, input_zero_point=source.scale.zero_point)
    reshape = tvm_api.relax.op.reshape
    data = source.integers
    if len(shape) != 2:
        data = builder.emit(tvm_api.make_call(reshape(data, (rows, inputs)), span=result.span))
    call = known.call([data, *operands], result.span)
    if len(shape) == 2:
        return call
    return tvm_api.make_call(reshape(builder.emit(call), result.shape), span=result.span)


def _factors(source: Quantized, weights: Weights, result: Result, rounding: Arithmetic) -> Array:
    """What a linear layer's sums are multiplied with, one factor or one for each channel.

    ONNX Runtime computes them in float32. For TensorFlow Lite they are float64, unlike LiteRT,
    which multiplies the scales in float32 if there is one for all: so it is here for uint8, which
    only LiteRT computes (`GetQuantizedConvolutionMultipler`).
    """
    # Where integers of 16 bits are rounded once, as exact as can be.
    kind: Any = np.float32 if rounding is Arithmetic.ORT else np.float64
    legacy = rounding is Arithmetic.TFLM and source.scale.dtype == "uint8"
    of_scales = np.float32 if legacy else kind
    product = of_scales(source.scale.scale) * weights.channel_scales().astype(of_scales)
    factors: Array = product.astype(kind) / kind(result.scale.scale)
    if rounding is Arithmetic.ORT and not (factors < LARGEST_FACTOR).all():
        raise NotAnIsland("the result's scale is too small for the operands'")
    return np.asarray(factors, np.float64)


def linear_operands(
    result: Result, source: Quantized, weights: Weights, bias: Bias, rounding: Arithmetic
) -> list[Any]:
    """Weights, bias, multipliers and shifts as constants.

    Raises:
        NotAnIsland: dtypes or scales that integers cannot express.
    """
    if weights.integers.dtype not in (np.int8, np.int16):
        raise NotAnIsland(f"the weights are {weights.integers.dtype}, not of 8 bits")
    channels = weights.integers.shape[0]
    factors = _factors(source, weights, result, rounding)
    # TensorFlow Lite's convolutions of 16 bits sum in 64, unless their bias has 32.
    narrow = isinstance(bias, Weights) and bias.integers.dtype != np.int64
    wide = rounding is Arithmetic.TFLM and source.scale.dtype == "int16" and not narrow
    dtype = np.dtype(np.int64 if wide else np.int32)
    if isinstance(bias, np.ndarray):
        bias = _rounded_bias(bias, source, weights, dtype)
    biases = np.zeros(channels, dtype) if bias is None else _bias(bias, channels, dtype)
    if bias is not None:
        accumulator = source.scale.scale * weights.channel_scales()
        difference = np.abs(bias.scales.reshape(-1).astype(np.float64) - accumulator)
        if (difference > BIAS_TOLERANCE * result.scale.scale).any():
            raise NotAnIsland("the bias has another scale than the products")
    if rounding is Arithmetic.EVEN:
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


def _rounded_bias(
    bias: Array, source: Quantized, weights: Weights, dtype: np.dtype[Any]
) -> Weights:
    """Real numbers as integers of the scale of the products, the nearest, ties to even.

    That is at most half a step of the sums away from what the model adds.

    Raises:
        NotAnIsland: a number has more bits than sums.
    """
    scales = np.float32(source.scale.scale) * weights.channel_scales().astype(np.float32)
    scales = np.broadcast_to(scales, (weights.integers.shape[0],))
    if bias.size != scales.size:
        raise NotAnIsland("the bias is not one number for each output channel")
    quotients = np.rint(bias.reshape(-1).astype(np.float64) / scales.astype(np.float64))
    # `not <`, so that no number is refused too.
    if not (np.abs(quotients) < 2.0 ** (8 * dtype.itemsize - 2)).all():
        raise NotAnIsland("the bias is too large for the scale of the products")
    return Weights(quotients.astype(dtype), scales)


def _bias(bias: Weights, channels: int, dtype: np.dtype[Any]) -> Array:
    if bias.integers.dtype != dtype or bias.integers.size != channels:
        raise NotAnIsland(f"the bias is not one {dtype} for each output channel")
    if (np.abs(bias.integers.astype(np.float64)) >= MOST_OF_A_WIDE_BIAS).any():
        raise NotAnIsland("the bias is too large for its products")
    return bias.integers.reshape(-1)


def elementwise(result: Result, operands: Sequence[Quantized], rounding: Arithmetic) -> Parameters:
    """Parameters of an addition, subtraction or multiplication.

    Raises:
        NotAnIsland: scales that integers cannot express.
    """
    left, right = (operand.scale for operand in operands)
    fields = result.common(rounding) | {"zero_points": (left.zero_point, right.zero_point)}
    output = float(result.scale.scale)
    operator = tvm_api.operator_name(result.call)
    if operator == "multiply":
        factor = fixed_points([float(left.scale) * float(right.scale) / output])
        check_headroom(left.magnitude * right.magnitude, int(factor.shifts[0]), rounding)
        return Multiply(
            **fields, multiplier=int(factor.multipliers[0]), shift=int(factor.shifts[0])
        )
    left_shift = ADD_LEFT_SHIFTS[result.scale.dtype]
    twice_largest = 2.0 * float(max(left.scale, right.scale))
    factors = [
        float(left.scale) / twice_largest,
        float(right.scale) / twice_largest,
        twice_largest / (2.0**left_shift * output),
    ]
    if factors[2] >= 1.0:
        raise NotAnIsland("the result's scale is too small for the operands'")
    scaled = fixed_points(factors)
    kind = Subtract if operator == "subtract" else Add
    first, second, third = (int(value) for value in scaled.multipliers)
    shifts = [int(value) for value in scaled.shifts]
    return kind(
        **fields,
        left_shift=left_shift,
        multipliers=(first, second, third),
        shifts=(shifts[0], shifts[1], shifts[2]),
    )


def pool(result: Result, source: Quantized, rounding: Arithmetic) -> Any:
    """A call of a pool.

    Raises:
        NotAnIsland: scales or attributes that the integer operator does not have.
    """
    operator = tvm_api.operator_name(result.call)
    if source.scale != result.scale:
        raise NotAnIsland("a pool's input and output have different scales")
    kind = AveragePool2d if operator == "nn.avg_pool2d" else MaxPool2d
    return pool2d(kind, result, result.call, rounding).call([source.integers], result.span)


def pool2d(kind: type[Pool2d], result: Result, call: Any, rounding: Arithmetic) -> Pool2d:
    """Parameters of a pool.

    Args:
        kind: of pool.
        result: what becomes of it.
        call: a Relax pooling operator.
        rounding: unused by pools, but part of all parameters.

    Raises:
        NotAnIsland: attributes that the integer pools do not have.
    """
    attributes = call.attrs
    window = Window.of(attributes)
    if window.dilation != (1, 1) or bool(attributes.ceil_mode):
        raise NotAnIsland("a pool is dilated or rounds its size up")
    counts_padding = bool(getattr(attributes, "count_include_pad", False)) and any(window.padding)
    if kind is AveragePool2d and counts_padding:
        raise NotAnIsland("an average pool counts padding")
    return kind(
        **result.common(rounding),
        strides=window.strides,
        padding=window.padding,
        window=window.size,
        layout=window.layout,
    )


__all__ = [
    "Result",
    "check_headroom",
    "exact_multipliers",
    "fixed_points",
    "multiplier_of",
    "reduced_multipliers",
    "requantize",
]

__all__ = [
    "Result", "check_headroom", "exact_multipliers", "fixed_points", "multiplier_of",
    "reduced_multipliers", "requantize",
]  # fmt: skip
