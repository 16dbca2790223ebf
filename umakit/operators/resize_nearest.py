# SPDX-License-Identifier: Apache-2.0
"""Nearest-neighbour resizes of ONNX networks: two gathers, without floating point."""

from __future__ import annotations

import math

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.derivation.expressions import integers_of_result
from umakit.operators.islands import Island
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.registry import Recognition, register
from umakit.operators.tensors import Array, NoIntegerForm
from umakit.operators.tflite import ANY, TfliteNode, converts
from umakit.tvm_api import relax


def _derive(island: Island) -> tvm_api.Expr:
    result = island.result
    attributes, shape = island.call.attrs, tvm_api.static_shape(island.call.args[0]) or ()
    moved = integers_of_result(island, island.operand())
    if str(attributes.method) != "nearest_neighbor" or str(attributes.layout) != "NCHW":
        raise NoIntegerForm("ONNX Runtime interpolates in floating point")
    mode = str(attributes.coordinate_transformation_mode)
    method = str(attributes.rounding_method)
    for axis in (2, 3):
        places = _places(shape[axis], result.shape[axis], mode, method)
        moved = relax.op.take(moved, relax.const(places), axis=axis)
        moved = tvm_api.make_call(moved, span=result.span)
        moved = island.emit(moved) if axis == 2 else moved
    return moved


def _places(size: int, result: int, mode: str, method: str) -> Array:
    """Return the elements of an axis taken by a nearest-neighbour resize, int64[result]."""
    if mode not in ("half_pixel", "asymmetric") or result % size:
        raise NoIntegerForm("a resize is not by a whole number, or in an uncommon mode")
    factor = result // size
    # Twice the coordinate times the factor: exact.
    doubled = np.arange(result) * 2 + (1 - factor if mode == "half_pixel" else 0)
    whole = 2 * factor
    rounded = {
        "floor": doubled // whole,
        "ceil": -(-doubled // whole),
        "round": -((factor - doubled) // whole),
        "round_prefer_floor": -((factor - doubled) // whole),
        "round_prefer_ceil": (doubled + factor) // whole,
    }.get(method)
    if rounded is None:
        raise NoIntegerForm(f"a resize rounds by {method}")
    return np.clip(rounded, 0, size - 1).astype(np.int64)


register(
    name="resize_nearest",
    recognitions=(Recognition(("image.resize2d",), _derive, (Arithmetic.ORT,)),),
)


@converts("RESIZE_NEAREST_NEIGHBOR", *ANY, same_scale=True)
def convert(node: TfliteNode) -> tvm_api.Expr:
    """RESIZE_NEAREST_NEIGHBOR of [N, H, W, C]; the neighbours are computed here."""
    options = node.options("ResizeNearestNeighborOptions")
    source, result = node.shape(0), node.result.shape
    if len(source) != 4 or list(result[1:3]) != node.integers(1):
        raise ModelError(f"its result has the shape {list(result)}")
    value = node.value(0)
    for axis in (1, 2):
        places = [
            nearest(place, source[axis], result[axis], options.AlignCorners(),
                    options.HalfPixelCenters())
            for place in range(result[axis])
        ]  # fmt: skip
        indices = relax.const(np.array(places, np.int32))
        value = node.emit(relax.op.take(value, indices, axis, mode="clip"))
    return value


def nearest(place: int, size: int, result: int, align: bool, half_pixel: bool) -> int:
    """`GetNearestNeighbor` of `resize_nearest_neighbor.h`, in its float32.

    Args:
        align: whether corners are aligned.
        half_pixel: whether a pixel's position is its center.
    """
    aligned = align and result > 1
    scale = np.float32(size - 1 if aligned else size) / np.float32(
        result - 1 if aligned else result
    )
    position = float((np.float32(place) + np.float32(0.5 if half_pixel else 0)) * scale)
    found = math.floor(position + 0.5) if align else math.floor(position)
    return max(min(found, size - 1), 0)
