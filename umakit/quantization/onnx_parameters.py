# SPDX-License-Identifier: Apache-2.0
"""Parameters of the operators of `onnx_operators`, with ONNX Runtime's results.

What ONNX Runtime computes in integers (QLinearMatMul, QLinearGlobalAveragePool) is met exactly.
Where it goes through float32 (averages, softmax, all 16-bit integers) results are the exact ones,
rounded once; they differ by at most one step, next to ties.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.operators.numeric.fixed_point import Arithmetic, FixedPoint, fixed_point
from umakit.operators.numeric.float32 import LARGEST_FACTOR
from umakit.operators.tensors import NotAnIsland, Quantized, Scale
from umakit.quantization import parameters
from umakit.quantization.further_operators import BatchMatmul
from umakit.quantization.onnx_operators import (
    DilatedMaxPool2d,
    GlobalAveragePool,
    MeanPool2d,
    Probabilities,
)
from umakit.quantization.operators import MaxPool2d, Pool2d
from umakit.quantization.parameters import Result
from umakit.quantization.windows import Window

relax = tvm_api.relax
Array = npt.NDArray[Any]

EXPONENTIAL_BITS = 30
"""Fraction bits of exponentials; the largest one is 1."""

MOST_NUMERATOR_BITS = 24


def rounding_of(*scales: Scale) -> Arithmetic:
    """How products become integers of which the last scale is the result's."""
    return Arithmetic.EVEN if any(scale.bits > 8 for scale in scales) else Arithmetic.ORT


def global_average_pool(result: Result, source: Quantized) -> Any:
    """`MlasQLinearGlobalAveragePoolNchw`: a sum, rescaled as that of a convolution."""
    shape = tvm_api.static_shape(source.integers) or ()
    count = math.prod(shape[2:])
    factor = source.scale.scale / np.float32(result.scale.scale * np.float32(count))
    if not factor < LARGEST_FACTOR or count >= 2**23:
        raise NotAnIsland("the result's scale is too small for the data's")
    scaled = fixed_point([float(factor)])
    known = GlobalAveragePool(
        **result.common(Arithmetic.ORT),
        input_zero_point=source.scale.zero_point,
        multiplier=int(scaled.multipliers[0]),
        shift=int(scaled.shifts[0]),
    )
    return known.call([source.integers], result.span)


def max_pool(result: Result, data: Any) -> Pool2d:
    """Parameters of a max pool, dilated or not.

    Args:
        result: what becomes of it, of rank 4.
        data: integers [N, C, H, W].
    """
    window = Window.of(result.call.attrs)
    fields = result.common(Arithmetic.ORT) | _pool_fields(window, result, data)
    if window.dilation == (1, 1):
        return MaxPool2d(**fields)
    return DilatedMaxPool2d(**fields, dilation=window.dilation)


def global_max_pool(result: Result, data: Any) -> Pool2d:
    """Parameters of the largest of each channel, as a pool of one window; arguments as above."""
    _, _, rows, columns = tvm_api.static_shape(data) or (0, 0, 0, 0)
    return MaxPool2d(
        **result.common(Arithmetic.ORT),
        strides=(1, 1),
        padding=(0, 0, 0, 0),
        window=(rows, columns),
        layout="NCHW",
    )


def average_pool(result: Result, source: Quantized) -> Any:
    """A `quantized.mean_pool2d` call, with a multiplier for each number of elements of a window.

    Args:
        result: what becomes of it, of rank 4.
        source: integers [N, C, H, W].
    """
    window = Window.of(result.call.attrs)
    if window.dilation != (1, 1):
        raise NotAnIsland("an average pool is dilated")
    rounding = rounding_of(source.scale, result.scale)
    most = math.prod(window.size)
    if source.scale.magnitude * most >= 2**31:
        raise NotAnIsland(f"an average is over {most} elements")
    factor = float(source.scale.scale) / float(result.scale.scale)
    pairs = [
        parameters.multiplier_of(factor / count, source.scale.magnitude * most, rounding)
        for count in range(1, most + 1)
    ]
    scaled = FixedPoint(
        np.array([multiplier for multiplier, _ in pairs], np.int32),
        np.array([shift for _, shift in pairs], np.int8),
    )
    known = MeanPool2d(
        **result.common(rounding),
        **_pool_fields(window, result, source.integers),
        input_zero_point=source.scale.zero_point,
        counts_padding=int(bool(result.call.attrs.count_include_pad)),
    )
    if known.counts_padding:
        scaled = FixedPoint(scaled.multipliers[-1:], scaled.shifts[-1:])
    constants = [relax.const(scaled.multipliers), relax.const(scaled.shifts)]
    return known.call([source.integers, *constants], result.span)


def _pool_fields(window: Window, result: Result, data: Any) -> dict[str, Any]:
    """The fields of all pools; a size that was rounded up is reached by padding."""
    sizes = (tvm_api.static_shape(data) or ())[2:]
    top, left, *after = window.padding
    for axis, before in enumerate((top, left)):
        reach = (result.shape[2 + axis] - 1) * window.strides[axis]
        reach += (window.size[axis] - 1) * window.dilation[axis] + 1
        after[axis] = max(after[axis], reach - before - sizes[axis])
    return {
        "strides": window.strides,
        "padding": (top, left, *after),
        "window": window.size,
        "layout": window.layout,
    }


def matmul(result: Result, left: Quantized, right: Quantized) -> BatchMatmul:
    """Parameters of a product of two matrices that are both data (`QLinearMatMul`)."""
    shapes = [tvm_api.static_shape(operand.integers) or () for operand in (left, right)]
    if min(len(shape) for shape in shapes) < 2:
        raise NotAnIsland("an operand is a vector")
    rounding = rounding_of(left.scale, right.scale, result.scale)
    kind: Any = np.float32 if rounding is Arithmetic.ORT else np.float64
    factor = kind(left.scale.scale) * kind(right.scale.scale) / kind(result.scale.scale)
    at_most = left.scale.magnitude * right.scale.magnitude * shapes[0][-1]
    multiplier, shift = parameters.multiplier_of(float(factor), at_most, rounding)
    return BatchMatmul(
        **result.common(rounding),
        zero_points=(left.scale.zero_point, right.scale.zero_point),
        multiplier=multiplier,
        shift=shift,
        adjoint=(0, 0),
    )


def softmax(result: Result, source: Quantized) -> Any:
    """A `quantized.probabilities` call.

    `QLinearSoftmax` takes the reciprocal of the result's scale without its fraction; softmax in
    float32, which ONNX Runtime uses for other types, does not.
    """
    axis = int(result.call.attrs.axis) % len(result.shape)
    length = result.shape[axis]
    fused = source.scale.dtype == result.scale.dtype and source.scale.bits == 8
    reciprocal = 1.0 / float(result.scale.scale)
    room = 62 - EXPONENTIAL_BITS - length.bit_length()
    exponent = min(MOST_NUMERATOR_BITS - math.frexp(reciprocal)[1], room)
    if fused:
        exponent, reciprocal = 0, float(np.floor(np.float32(1) / result.scale.scale))
    numerator = round(reciprocal * 2.0**exponent)
    if exponent < 0 or not 0 < numerator < 2**MOST_NUMERATOR_BITS + 1:
        raise NotAnIsland("softmax's result has a scale that 8 or 16 bits do not suit")
    known = Probabilities(
        **result.common(Arithmetic.ORT), axis=axis, numerator=numerator, exponent=exponent
    )
    table = relax.const(exponentials(source.scale))
    return known.call([source.integers, table], result.span)


def exponentials(scale: Scale) -> Array:
    """exp(-d * scale) for d = 0, ..., 255 in fixed point, int32[256].

    For 16 bits int32[512]: exp(-256 * d * scale), then exp(-d * scale), whose products they are.
    """
    distances = np.arange(256.0)
    if scale.bits > 8:
        distances = np.concatenate([256 * distances, distances])
    values = np.exp(-distances * float(scale.scale)) * 2.0**EXPONENTIAL_BITS
    return np.rint(values).astype(np.int32)
