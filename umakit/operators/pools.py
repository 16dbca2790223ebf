# SPDX-License-Identifier: Apache-2.0
"""AVERAGE_POOL_2D and MAX_POOL_2D of TensorFlow Lite."""

from __future__ import annotations

from typing import Any

from umakit import tvm_api
from umakit.operators.tflite import (
    PADDING_SAME,
    QUANTIZED,
    TfliteConverter,
    TfliteOperator,
    check_steps,
    register_all,
)

relax = tvm_api.relax


def max_pool(converter: TfliteConverter, operator: TfliteOperator) -> Any:
    """MAX_POOL_2D."""
    _checked_options(converter, operator)
    return converter.imported(operator)


def average_pool(converter: TfliteConverter, operator: TfliteOperator) -> Any:
    """AVERAGE_POOL_2D, of integers an island: TVM's own truncates where the mean is rounded."""
    options = _checked_options(converter, operator)
    if converter.tensor(operator.inputs[0]).dtype == "float32":
        return converter.imported(operator)
    data = converter.value(operator.inputs[0])
    padding = [0, 0, 0, 0]
    extents = (tvm_api.static_shape(data) or ())[1:3]
    window = (options.FilterHeight(), options.FilterWidth())
    strides = (options.StrideH(), options.StrideW())
    if options.Padding() == PADDING_SAME:
        (top, bottom), (left, right) = (
            same_padding(*item) for item in zip(extents, window, strides, strict=True)
        )
        padding = [top, left, bottom, right]
    pooled = relax.op.nn.avg_pool2d(
        converter.dequantized(operator.inputs[0]), window, strides, padding, layout="NHWC"
    )
    return converter.quantized(operator, pooled, options.FusedActivationFunction())


def same_padding(extent: int, window: int, stride: int) -> tuple[int, int]:
    """Padding before and after, with which there are `ceil(extent / stride)` windows."""
    total = max((-(-extent // stride) - 1) * stride + window - extent, 0)
    return total // 2, total - total // 2


def _checked_options(converter: TfliteConverter, operator: TfliteOperator) -> Any:
    options = converter.options(operator, "Pool2DOptions")
    check_steps(options, "StrideH", "StrideW", "FilterHeight", "FilterWidth")
    return options


register_all(("AVERAGE_POOL_2D",), average_pool, "float32", *QUANTIZED, same_scale=True)
register_all(("MAX_POOL_2D",), max_pool, "float32", *QUANTIZED, same_scale=True)
