# SPDX-License-Identifier: Apache-2.0
"""Parameters of the operators of `further_operators`, derived from scales and zero points.

The formulas are those of TensorFlow Lite Micro's kernels: `transpose_conv.cc`,
`batch_matmul.cc`, `resize_bilinear.cc`, and `reduce_common.cc` with `reference/reduce.h`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.operators.numeric.fixed_point import Arithmetic, quantize_multiplier
from umakit.operators.tensors import NotAnIsland, Quantized, Weights
from umakit.quantization import parameters, resizing
from umakit.quantization.further_operators import (
    ArgMax,
    ArgMin,
    BatchMatmul,
    Conv2dTranspose,
    Mean,
    ResizeBilinear,
    Sum,
)
from umakit.quantization.parameters import Bias, Result
from umakit.quantization.windows import Window

MOST_OF_A_SUM = 2**30
"""Of the terms of a mean, which are added in 32 bits with and without their zero point."""


def conv2d_transpose(
    result: Result, source: Quantized, weights: Weights, bias: Bias, rounding: Arithmetic
) -> Any:
    """A `quantized.conv2d_transpose` call.

    Raises:
        NotAnIsland: groups in NHWC, or scales that integers cannot express.
    """
    attributes = result.call.attrs
    window, groups = Window.of(attributes), int(attributes.groups)
    if groups != 1 and window.layout != "NCHW":
        raise NotAnIsland("a transposed convolution has groups")
    weights = window.ordered(weights, str(attributes.kernel_layout))
    if groups > 1:
        weights = _outputs_of_all_groups(weights, groups)
    known = Conv2dTranspose(
        **result.common(rounding),
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilation,
        groups=groups,
        input_zero_point=source.scale.zero_point,
        layout=window.layout,
    )
    operands = parameters.linear_operands(result, source, weights, bias, rounding)
    return known.call([source.integers, *operands], result.span)


def _outputs_of_all_groups(weights: Weights, groups: int) -> Weights:
    """Weights [O / groups, I, KH, KW] as [O, I / groups, KH, KW]."""
    outputs, inputs, *window = weights.integers.shape
    split = weights.reshaped((outputs, groups, inputs // groups, *window))
    together = split.transposed([1, 0, 2, 3, 4])
    return together.reshaped((groups * outputs, inputs // groups, *window))


def mean(result: Result, source: Quantized, rounding: Arithmetic) -> Any:
    """A `quantized.mean` or `quantized.sum` call.

    The number of terms of a mean becomes part of the multiplier.

    Raises:
        NotAnIsland: too many terms, or scales that integers cannot express.
    """
    shape = tvm_api.static_shape(source.integers) or ()
    given = result.call.attrs.axis
    axes = range(len(shape)) if given is None else {int(axis) % len(shape) for axis in given}
    terms = math.prod(shape[axis] for axis in axes)
    magnitude = source.scale.magnitude * terms
    if not 0 < magnitude < MOST_OF_A_SUM:
        raise NotAnIsland(f"a mean or sum is over {terms} elements")
    kind = Mean if tvm_api.operator_name(result.call) == "mean" else Sum
    factor = float(source.scale.scale) / float(result.scale.scale)
    if rounding is Arithmetic.TFLM:
        multiplier, shift = _mean_multiplier(factor, terms if kind is Mean else 1)
        parameters.check_headroom(magnitude, shift, rounding)
    else:
        factor = factor / terms if kind is Mean else factor
        multiplier, shift = parameters.multiplier_of(factor, magnitude, rounding)
    known = kind(
        **result.common(rounding),
        axes=tuple(sorted(axes)),
        input_zero_point=source.scale.zero_point,
        multiplier=multiplier,
        shift=shift,
    )
    return known.call([source.integers], result.span)


def _mean_multiplier(factor: float, terms: int) -> tuple[int, int]:
    """Multiplier and shift of a sum of so many terms, as TensorFlow Lite Micro computes them."""
    try:
        multiplier, output_shift = quantize_multiplier(factor)
    except ValueError as error:
        raise NotAnIsland(str(error)) from None
    shift = min(terms.bit_length() - 1, 32, 31 + output_shift)
    return (multiplier << shift) // terms, output_shift - shift


def batch_matmul(
    result: Result,
    operands: tuple[Quantized, Quantized],
    adjoint: tuple[int, int],
    rounding: Arithmetic,
) -> Any:
    """A `quantized.batch_matmul` call.

    Args:
        result: of the products.
        operands: their last two axes are exchanged where `adjoint` is 1.
        adjoint: see `BatchMatmul`.
        rounding: of the results.

    Raises:
        NotAnIsland: other results than TensorFlow Lite Micro's are wanted, or scales that
            integers cannot express.
    """
    check_tflm(rounding)
    left, right = (operand.scale for operand in operands)
    factor = float(left.scale) * float(right.scale) / float(result.scale.scale)
    scaled = parameters.fixed_points([factor])
    if left.dtype == "int16":
        scaled = parameters.reduced_multipliers(scaled)
    known = BatchMatmul(
        **result.common(rounding),
        zero_points=(left.zero_point, right.zero_point),
        multiplier=int(scaled.multipliers[0]),
        shift=int(scaled.shifts[0]),
        adjoint=adjoint,
    )
    return known.call([operand.integers for operand in operands], result.span)


RESIZE_MODES = {"asymmetric": (0, 0), "half_pixel": (0, 1), "align_corners": (1, 0)}
"""(aligned corners, half-pixel centers) of TVM's coordinate transformations."""


def resize_bilinear(result: Result, source: Quantized, rounding: Arithmetic) -> Any:
    """A `quantized.resize_bilinear` call.

    Raises:
        NotAnIsland: other results than TensorFlow Lite Micro's are wanted, or another resizing.
    """
    check_tflm(rounding)
    attributes = result.call.attrs
    mode = str(attributes.coordinate_transformation_mode)
    if str(attributes.method) != "linear" or mode not in RESIZE_MODES:
        raise NotAnIsland(f"there is no integer form of a {attributes.method} resizing, {mode}")
    if source.scale != result.scale or source.scale.dtype != "int8":
        raise NotAnIsland("an image of int8 keeps its scale")
    align, half_pixel = RESIZE_MODES[mode]
    shape = tvm_api.static_shape(source.integers) or ()
    for size, extent in zip(shape[1:3], result.shape[1:3], strict=True):
        if resizing.leaves_the_image(size, extent, align=bool(align), half_pixel=bool(half_pixel)):
            raise NotAnIsland(f"positions of {extent} elements are too coarse for {size}")
    known = ResizeBilinear(
        **result.common(rounding), align_corners=align, half_pixel_centers=half_pixel
    )
    return known.call([source.integers], result.span)


def arg_max(call: Any, rounding: Arithmetic) -> Any:
    """A `quantized.argmax` or `quantized.argmin` call; of other data, the call itself.

    TVM's own finds -1 where all integers are the least there are.

    Args:
        call: `argmax` or `argmin`.
        rounding: unused, but part of all parameters.
    """
    data_shape, shape = (tvm_api.static_shape(item) for item in (call.args[0], call))
    integers = tvm_api.dtype_of(call.args[0]) in ("int8", "uint8", "int16")
    if not integers or data_shape is None or shape is None or call.attrs.axis is None:
        return call
    limits = np.iinfo("int32")
    kind = ArgMax if tvm_api.operator_name(call) == "argmax" else ArgMin
    known = kind(
        output_shape=shape, output_dtype=tvm_api.dtype_of(call), output_zero_point=0,
        clip=(int(limits.min), int(limits.max)), rounding=rounding.value,
        axis=int(call.attrs.axis) % len(data_shape),
    )  # fmt: skip
    return known.call([call.args[0]], call.span)


def check_tflm(rounding: Arithmetic) -> None:
    if rounding is not Arithmetic.TFLM:
        raise NotAnIsland("integers are known only as TensorFlow Lite Micro computes them")
