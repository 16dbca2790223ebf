# SPDX-License-Identifier: Apache-2.0
"""Coordinates of the elements of a resized axis on the original axis.

Formulas: ONNX operator specification of Resize (opsets 10 to 19). The computation is in float32 and
in the order of ONNX Runtime's `upsamplebase.h`, so that ties select the same nearest neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from umakit.floats.resampling import (
    Table,
    antialiased_table,
    cubic_table,
    linear_table,
    nearest_table,
)

Array = npt.NDArray[np.float32]
ZERO, ONE, HALF = np.float32(0), np.float32(1), np.float32(0.5)
TIE = 1e-6
"""Largest distance of a coordinate from a half that counts as a tie."""


@dataclass(frozen=True)
class Axis:
    """One axis of a resize.

    Attributes:
        number: number of the axis.
        size, result: elements of the operand and of the result.
        scale: scale of the model, or `result / size` in float32 if the model gives sizes.
        width: size of the result for aligned corners: `size * scale`, not rounded, where ONNX
            demands it.
        start, end: region of interest, as fractions of the axis.
    """

    number: int
    size: int
    result: int
    scale: np.float32
    width: np.float32
    start: np.float32 = ZERO
    end: np.float32 = ONE


def _aligned(axis: Axis, x: Array) -> Array:
    if axis.width == 1 or axis.result == 1:
        return np.zeros_like(x)
    return x * np.float32(axis.size - 1) / (axis.width - ONE)


def _cropped(axis: Axis, x: Array) -> Array:
    last = np.float32(axis.size - 1)
    if axis.result == 1:
        middle = 0.5 * float((axis.start + axis.end) * last)
        return np.full_like(x, np.float32(middle))
    return axis.start * last + (x * (axis.end - axis.start) * last) / np.float32(axis.result - 1)


def _symmetric(axis: Axis, x: Array) -> Array:
    adjustment = np.float32(axis.result) / (axis.scale * np.float32(axis.size))
    offset = np.float32(axis.size) / np.float32(2) * (ONE - adjustment)
    exact = offset.astype(np.float64) + (x.astype(np.float64) + 0.5) / float(axis.scale) - 0.5
    return exact.astype(np.float32)


def _half_pixel(axis: Axis, x: Array) -> Array:
    return (x + HALF) / axis.scale - HALF


COORDINATES: dict[str, Callable[[Axis, Array], Array]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": lambda axis, x: (
        _half_pixel(axis, x) if axis.result > 1 else np.zeros_like(x)
    ),
    "align_corners": _aligned,
    "asymmetric": lambda axis, x: x / axis.scale,
    "tf_half_pixel_for_nn": lambda axis, x: (x + HALF) / axis.scale,
    "tf_crop_and_resize": _cropped,
}
"""Functions by `coordinate_transformation_mode`: (axis, float32 places in the result) -> places in
the operand."""


def _rounded(x: Array, *, up: bool) -> Array:
    """Return the nearest whole numbers. Values within `TIE` of a half count as ties, as in ONNX
    Runtime."""
    below = np.floor(x)
    rest = x.astype(np.float64) - below
    tie = np.abs(rest - 0.5) <= TIE
    # Halves below 0 end at element 0 in either case.
    return np.where(tie, below + up, np.floor(x.astype(np.float64) + 0.5)).astype(np.float32)


ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: _rounded(x, up=False),
    "round_prefer_ceil": lambda x: _rounded(x, up=True),
    "floor": np.floor,
    "ceil": np.ceil,
}
"""Rounding functions by `nearest_mode`."""


def coordinates(axis: Axis, mode: str) -> Array:
    """Return the operand coordinates of the result's elements, float32[result]."""
    x = np.arange(axis.result, dtype=np.float32)
    with np.errstate(all="ignore"):
        return x if axis.scale == 1 and mode != "tf_crop_and_resize" else COORDINATES[mode](axis, x)


def nearest(axis: Axis, mode: str, rounding: str) -> Table:
    """Return the table of nearest neighbours.

    Args:
        axis: resized axis.
        mode: coordinate transformation.
        rounding: a name in `ROUNDINGS`. Empty selects the rounding of opset 10 and Upsample: down,
            or up if the result is smaller.
    """
    rounding = rounding or ("ceil" if axis.scale < 1 else "floor")
    places = np.clip(ROUNDINGS[rounding](coordinates(axis, mode)), 0, axis.size - 1)
    return nearest_table(axis.number, places)


def linear(axis: Axis, mode: str) -> Table:
    """Return the table of linear interpolation."""
    return linear_table(axis.number, axis.size, coordinates(axis, mode))


def cubic(axis: Axis, mode: str, a: float, exclude_outside: bool) -> Table:
    """Return the table of cubic interpolation with coefficient `a`."""
    x = coordinates(axis, mode)
    return cubic_table(axis.number, axis.size, x, a, exclude_outside=exclude_outside)


def antialiased(axis: Axis, mode: str, a: float | None, exclude_outside: bool) -> Table:
    """Return the table of antialiased interpolation: downscaling widens the kernel.

    Args:
        axis: resized axis.
        mode: coordinate transformation.
        a: coefficient of the cubic kernel; None for the linear kernel.
        exclude_outside: whether elements outside the operand get weight 0.
    """
    if axis.size == axis.result == axis.width and mode != "tf_crop_and_resize":
        # As in ONNX Runtime, whatever the scale.
        return nearest_table(axis.number, np.arange(axis.size))
    stretch, x = min(float(axis.scale), 1.0), coordinates(axis, mode)
    return antialiased_table(axis.number, axis.size, x, stretch, a, exclude_outside=exclude_outside)
