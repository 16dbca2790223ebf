# SPDX-License-Identifier: Apache-2.0
"""Operators of TensorFlow Lite in NumPy: of float32, int8 and, where they exist, int16.

Integer arithmetic is that of TensorFlow Lite's specification of 8-bit quantization and of its
reference kernels; sums are float64, which holds all integers up to 2**53 exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy_fixed_point import (
    Array,
    doubling_high_product,
    exponential,
    hyperbolic_tangent,
    logistic,
    quantize_multiplier,
    reciprocal,
    rescaled,
    rescaled_wide,
    rounding_divide,
)
from numpy_tflite_data_movement import DATA_MOVEMENT
from numpy_tflite_tensors import Kernel, Operator, Tensor, round_away

SAME = 0
"""Of `Padding`."""


# --- linear operators ---------------------------------------------------------------------------


def convolution(operator: Operator) -> Array:
    x, weights, *rest = operator.inputs
    depthwise = operator.code == "DEPTHWISE_CONV_2D"
    options, result = operator.options, operator.outputs[0]
    steps = options.StrideH(), options.StrideW()
    dilation = max(options.DilationHFactor(), 1), max(options.DilationWFactor(), 1)
    extents = [(n - 1) * d + 1 for n, d in zip(weights.shape[1:3], dilation, strict=True)]
    widths = _padding(operator, extents)
    padded = np.pad(x.distances().astype(np.float64), [(0, 0), *widths, (0, 0)])
    taps = np.asarray(weights.value, np.float64)
    sums = np.zeros(result.shape)
    for ky, kx in np.ndindex(*weights.shape[1:3]):
        starts = ky * dilation[0], kx * dilation[1]
        rows, columns = (
            slice(start, start + (count - 1) * step + 1, step)
            for start, count, step in zip(starts, result.shape[1:3], steps, strict=True)
        )
        part = padded[:, rows, columns]
        if depthwise:
            sums += np.repeat(part, result.shape[3] // x.shape[3], axis=3) * taps[0, ky, kx]
        else:
            sums += _grouped_product(part, taps[:, ky, kx])
    return _linear_result(operator, sums, x, weights, rest)


def _padding(operator: Operator, extents: Sequence[int]) -> list[tuple[int, int]]:
    """Rows and columns that a window of some extents reaches beyond the image, on both sides."""
    options, widths = operator.options, []
    steps = options.StrideH(), options.StrideW()
    sizes = zip(operator.inputs[0].shape[1:3], operator.outputs[0].shape[1:3], strict=True)
    for (size, count), step, extent in zip(sizes, steps, extents, strict=True):
        missing = max((count - 1) * step + extent - size, 0)
        before = missing // 2 if options.Padding() == SAME else 0
        widths.append((before, missing - before))
    return widths


def _grouped_product(data: Array, weights: Array) -> Array:
    """[..., C] times [O, C / groups], each group of outputs from its own channels."""
    groups = data.shape[-1] // weights.shape[1]
    parts = zip(np.split(data, groups, -1), np.split(weights, groups), strict=True)
    return np.concatenate([part @ taps.T for part, taps in parts], -1)


def transposed_convolution(operator: Operator) -> Array:
    _, weights, x, *rest = operator.inputs
    options, result = operator.options, operator.outputs[0]
    steps, window = (options.StrideH(), options.StrideW()), weights.shape[1:3]
    data, taps = x.distances().astype(np.float64), np.asarray(weights.value, np.float64)
    before, canvas = [], [x.shape[0]]
    for axis in range(2):
        size, step, extent = result.shape[1 + axis], steps[axis], window[axis]
        forward = -(-size // step) if options.Padding() == SAME else (size - extent) // step + 1
        before.append(max((forward - 1) * step + extent - size, 0) // 2)
        canvas.append(max((x.shape[1 + axis] - 1) * step + extent, before[axis] + size))
    sums = np.zeros((*canvas, result.shape[3]))
    for ky, kx in np.ndindex(*window):
        rows = slice(ky, ky + (x.shape[1] - 1) * steps[0] + 1, steps[0])
        columns = slice(kx, kx + (x.shape[2] - 1) * steps[1] + 1, steps[1])
        sums[:, rows, columns] += data @ taps[:, ky, kx].T
    rows, columns = (
        slice(start, start + size) for start, size in zip(before, result.shape[1:3], strict=True)
    )
    return _linear_result(operator, sums[:, rows, columns], x, weights, rest)


def fully_connected(operator: Operator) -> Array:
    x, weights, *rest = operator.inputs
    rows = x.distances().astype(np.float64).reshape(-1, weights.shape[1])
    # Of convolutions the kernels take the weights' zero point for 0, of this operator they do not.
    zero_point = weights.zero_points[0] if len(weights.zero_points) and x.dtype == np.int8 else 0
    sums = rows @ (np.asarray(weights.value, np.float64) - zero_point).T
    return _linear_result(operator, sums.reshape(operator.outputs[0].shape), x, weights, rest)


def _linear_result(
    operator: Operator, sums: Array, x: Tensor, weights: Tensor, rest: Sequence[Any]
) -> Array:
    """Sums of products, with their bias, as the integers of the result."""
    result, bias = operator.outputs[0], rest[0] if rest else None
    if bias is not None:
        sums = sums + np.asarray(bias.value, np.float64)
    if result.real:
        return result.activated(sums, operator.options)
    products = np.float64(x.scale) * weights.scales.astype(np.float64)
    pairs = [quantize_multiplier(float(product) / result.scale) for product in products]
    mantissas, exponents = np.array(pairs, np.int64).T
    wide = x.dtype == np.int16 and (bias is None or bias.dtype == np.int64)
    values = (rescaled_wide if wide else rescaled)(sums.astype(np.int64), mantissas, exponents)
    return result.activated(values, operator.options)


# --- pools and means ----------------------------------------------------------------------------


def pool(operator: Operator) -> Array:
    (x,), (result,), options = operator.inputs, operator.outputs, operator.options
    window = options.FilterHeight(), options.FilterWidth()
    steps, ((top, _), (left, _)) = (
        (options.StrideH(), options.StrideW()),
        _padding(operator, window),
    )
    values = np.zeros(result.shape)
    for y, column in np.ndindex(*result.shape[1:3]):
        starts = y * steps[0] - top, column * steps[1] - left
        rows, columns = (
            slice(max(start, 0), start + extent)
            for start, extent in zip(starts, window, strict=True)
        )
        part = np.asarray(x.value[:, rows, columns], np.float64)
        if operator.code == "MAX_POOL_2D":
            values[:, y, column] = part.max((1, 2))
        else:
            mean = part.sum((1, 2)) / (part.shape[1] * part.shape[2])
            values[:, y, column] = mean if x.real else round_away(mean)
    return result.activated(values if x.real else values - x.zero_point, options)


def mean(operator: Operator) -> Array:
    x, axes = operator.inputs
    (result,) = operator.outputs
    over = tuple({int(axis) % len(x.shape) for axis in axes.value.reshape(-1)})
    sums = x.distances().sum(over)
    terms = int(np.prod([x.shape[axis] for axis in over]))
    # The kernel divides the mantissa, after it was shifted left as far as 64 bits let it.
    mantissa, exponent = quantize_multiplier(x.scale / result.scale)
    shift = min(terms.bit_length() - 1, 32, 31 + exponent)
    values = rescaled(sums, (mantissa << shift) // terms, exponent - shift)
    return result.integers(values).reshape(result.shape)


# --- element by element -------------------------------------------------------------------------


def sum_or_difference(operator: Operator) -> Array:
    left, right = operator.inputs
    (result,), sign = operator.outputs, -1 if operator.code == "SUB" else 1
    if result.real:
        total = left.distances() + sign * right.distances()
        return result.activated(total, operator.options)
    bits = 15 if result.dtype == np.int16 else 20
    common = 2 * max(left.scale, right.scale)
    first, second = (
        rescaled(operand.distances() << bits, *quantize_multiplier(operand.scale / common))
        for operand in (left, right)
    )
    factor = quantize_multiplier(common / (2.0**bits * result.scale))
    return result.activated(rescaled(first + sign * second, *factor), operator.options)


def multiplication(operator: Operator) -> Array:
    left, right = operator.inputs
    (result,) = operator.outputs
    product = left.distances() * right.distances()
    if not result.real:
        product = rescaled(product, *quantize_multiplier(left.scale * right.scale / result.scale))
    return result.activated(product, operator.options)


def relu(operator: Operator) -> Array:
    (x,), (result,) = operator.inputs, operator.outputs
    if x.real:
        return np.asarray(np.maximum(x.value, np.float32(0)))
    values = rescaled(x.distances(), *quantize_multiplier(x.scale / result.scale))
    return result.integers(values, 0.0)


def relu6(operator: Operator) -> Array:
    (x,) = operator.inputs
    if x.real:
        return np.asarray(np.clip(x.value, np.float32(0), np.float32(6)))
    return x.integers(x.distances(), 0.0, 6.0)


def leaky_relu(operator: Operator) -> Array:
    (x,), (result,) = operator.inputs, operator.outputs
    slope = float(np.float32(operator.options.Alpha()))
    distances = x.distances()
    positive = rescaled(distances, *quantize_multiplier(x.scale / result.scale))
    factor = quantize_multiplier(abs(x.scale * slope / result.scale))
    negative = rescaled(distances, *factor) * (-1 if slope < 0 else 1)
    return result.integers(np.where(distances >= 0, positive, negative))


def quantize(operator: Operator) -> Array:
    (x,), (result,) = operator.inputs, operator.outputs
    if x.real:
        quotients = round_away((x.value / result.scales[0]).astype(np.float32))
        return result.integers(quotients.astype(np.float64))
    return result.integers(rescaled(x.distances(), *quantize_multiplier(x.scale / result.scale)))


def dequantize(operator: Operator) -> Array:
    (x,) = operator.inputs
    return np.asarray(x.scale * x.distances(), np.float32)


def saturating_function(operator: Operator) -> Array:
    """LOGISTIC and TANH: fixed point with 4 integer bits, limits beyond."""
    (x,), (result,) = operator.inputs, operator.outputs
    sigmoid = operator.code == "LOGISTIC"
    if x.real:
        data = x.distances()
        return np.asarray(1 / (1 + np.exp(-data)) if sigmoid else np.tanh(data), np.float32)
    mantissa, exponent = quantize_multiplier(x.scale * 2.0**27)
    radius = int(15 * 2.0**27 / 2.0**exponent)
    distances = x.distances()
    arguments = rescaled(np.clip(distances, -radius, radius), mantissa, exponent)
    function, bits = (logistic, 8) if sigmoid else (hyperbolic_tangent, 7)
    values = rounding_divide(function(arguments, 4), 31 - bits)
    limits = np.where(distances > 0, 2**16, -(2**16))
    return result.integers(np.where(np.abs(distances) >= radius, limits, values))


def hard_swish(operator: Operator) -> Array:
    """x relu6(x + 3) / 6 in 16 bits, where relu6(x + 3) / 6 is a ramp in [-1, 1]."""
    (x,), (result,) = operator.inputs, operator.outputs
    fine = x.scale / 128
    (by, exponent), (ramp_by, ramp_exponent) = (
        _short_multiplier(fine / scale) for scale in (result.scale, 3 / 32768)
    )
    data = x.distances() << 7
    ramp = data
    if ramp_exponent > 0:
        ramp = _int16(ramp << (ramp_exponent - 1))
    ramp = _short_product(ramp, ramp_by)
    ramp = _int16(ramp << 1) if ramp_exponent > 0 else rounding_divide(ramp, -ramp_exponent)
    product = ((ramp + 2**15) >> 1) * _short_product(data, by)
    truncated = np.sign(product) * (np.abs(product) >> 15)  # doubled, without rounding
    return result.integers(rounding_divide(truncated, -exponent))


def _short_multiplier(factor: float) -> tuple[int, int]:
    mantissa, exponent = quantize_multiplier(factor)
    return min((mantissa + 2**15) >> 16, 2**15 - 1), exponent


def _short_product(left: Array, right: int) -> Array:
    product = left * right
    nudged = product + np.where(product >= 0, 2**14, 1 - 2**14)
    return np.asarray(np.sign(nudged) * (np.abs(nudged) >> 15))


def _int16(values: Array) -> Array:
    return np.clip(values, -(2**15), 2**15 - 1)


def softmax(operator: Operator) -> Array:
    (x,), (result,) = operator.inputs, operator.outputs
    beta = operator.options.Beta()
    if x.real:
        powers = np.exp(beta * (x.distances() - x.distances().max(-1, keepdims=True)))
        return np.asarray(powers / powers.sum(-1, keepdims=True), np.float32)
    mantissa, exponent = quantize_multiplier(min(beta * x.scale * 2.0**26, 2.0**31 - 1))
    radius = int(31 * 2.0**26 / 2.0**exponent)
    differences = x.distances() - x.distances().max(-1, keepdims=True)
    counts = differences >= -radius
    arguments = doubling_high_product(np.where(counts, differences, 0) << exponent, mantissa)
    powers = exponential(arguments, 5)
    sums = np.where(counts, rounding_divide(powers, 12), 0).sum(-1, keepdims=True)
    # sums = (1 + x) * 2**(31 - zeros), with x in [0, 1).
    zeros = 32 - np.ceil(np.log2(sums + 1.0)).astype(np.int64)
    quotients = reciprocal((sums << zeros) - 2**31)
    values = rounding_divide(doubling_high_product(quotients, powers), 12 - zeros + 31 - 8)
    return result.integers(np.where(counts, values, 0))


def extremum(operator: Operator) -> Array:
    left, right = (operand.value for operand in operator.inputs)
    return np.asarray((np.maximum if operator.code == "MAXIMUM" else np.minimum)(left, right))


KERNELS: dict[str, Kernel] = DATA_MOVEMENT | {
    "ADD": sum_or_difference, "AVERAGE_POOL_2D": pool, "CONV_2D": convolution,
    "DEPTHWISE_CONV_2D": convolution, "DEQUANTIZE": dequantize,
    "FULLY_CONNECTED": fully_connected, "HARD_SWISH": hard_swish, "LEAKY_RELU": leaky_relu,
    "LOGISTIC": saturating_function, "MAXIMUM": extremum, "MAX_POOL_2D": pool, "MEAN": mean,
    "MINIMUM": extremum, "MUL": multiplication, "QUANTIZE": quantize, "RELU": relu,
    "RELU6": relu6, "SOFTMAX": softmax, "SUB": sum_or_difference, "TANH": saturating_function,
    "TRANSPOSE_CONV": transposed_convolution,
}  # fmt: skip
"""From an operator to its result, or to the list of its results."""
