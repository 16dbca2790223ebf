# SPDX-License-Identifier: Apache-2.0
"""RESIZE_NEAREST_NEIGHBOR of TensorFlow Lite."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.tflite import ANY, TfliteConverter, TfliteOperator, register_all

relax = tvm_api.relax


def resize_nearest(converter: TfliteConverter, operator: TfliteOperator) -> Any:
    """RESIZE_NEAREST_NEIGHBOR of [N, H, W, C]; the neighbours are computed here."""
    options = converter.options(operator, "ResizeNearestNeighborOptions")
    source, result = (converter.shape(item) for item in (operator.inputs[0], operator.outputs[0]))
    if len(source) != 4 or list(result[1:3]) != converter.integers(operator, 1):
        raise ModelError(f"its result has the shape {list(result)}")
    value = converter.value(operator.inputs[0])
    for axis in (1, 2):
        places = [
            nearest(place, source[axis], result[axis], options.AlignCorners(),
                    options.HalfPixelCenters())
            for place in range(result[axis])
        ]  # fmt: skip
        indices = relax.const(np.array(places, np.int32))
        value = converter.emit(relax.op.take(value, indices, axis, mode="clip"))
    return value


def nearest(place: int, size: int, result: int, align: bool, half_pixel: bool) -> int:
    """`GetNearestNeighbor` of `resize_nearest_neighbor.h`, in its float32.

    Args:
        place: in the result.
        size: of the operand.
        result: its size.
        align: whether corners are aligned.
        half_pixel: whether a pixel's position is that of its center.
    """
    aligned = align and result > 1
    scale = np.float32(size - 1 if aligned else size) / np.float32(
        result - 1 if aligned else result
    )
    position = float((np.float32(place) + np.float32(0.5 if half_pixel else 0)) * scale)
    found = math.floor(position + 0.5) if align else math.floor(position)
    return max(min(found, size - 1), 0)


register_all(("RESIZE_NEAREST_NEIGHBOR",), resize_nearest, *ANY, same_scale=True)
