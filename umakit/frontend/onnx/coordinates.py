# SPDX-License-Identifier: Apache-2.0
"""Where the elements of a resized axis lie on the axis that it is made of.

Formulas: ONNX operator specification of Resize (opsets 10 to 19). Coordinates are computed in
float32 and in the order of ONNX Runtime's `upsamplebase.h`, so that nearest neighbours are the same
at ties.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from umakit.floats.resampling import Table, table_of

Array = npt.NDArray[np.float32]
ZERO, ONE, HALF = np.float32(0), np.float32(1), np.float32(0.5)
TIE = 1e-6
"""How far a coordinate may be from a half to be rounded as one."""


@dataclass(frozen=True)
class Axis:
    """One axis of a resize.

    Attributes:
        number: of the axis.
        size, result: elements before and after.
        scale: what the model says; or `result / size` where it gives sizes, in float32.
        width: the result's size that corners are aligned with, which is `size * scale` and not
            whole where ONNX says so.
        start, end: of the region of interest, in parts of the axis.
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
"""By `coordinate_transformation_mode`: (axis, float32 places in the result) -> float32 places in
the operand."""


def _rounded(x: Array, *, up: bool) -> Array:
    """The nearest whole numbers. What is next to a half counts as one, as in ONNX Runtime."""
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
"""By `nearest_mode`."""


def coordinates(axis: Axis, mode: str) -> Array:
    """Places in the operand of a result's elements, float32[result]."""
    x = np.arange(axis.result, dtype=np.float32)
    with np.errstate(all="ignore"):
        return x if axis.scale == 1 and mode != "tf_crop_and_resize" else COORDINATES[mode](axis, x)


def nearest(axis: Axis, mode: str, rounding: str) -> Table:
    """A table of the nearest elements.

    Args:
        axis: to be resized.
        mode: of coordinates.
        rounding: a name in `ROUNDINGS`, or empty for that of opset 10 and of Upsample: downwards,
            or upwards where the result is smaller.
    """
    rounding = rounding or ("ceil" if axis.scale < 1 else "floor")
    places = np.clip(ROUNDINGS[rounding](coordinates(axis, mode)), 0, axis.size - 1)
    return table_of(axis.number, [[(int(place), 1.0)] for place in places])


def linear(axis: Axis, mode: str) -> Table:
    """A table of linear interpolation."""
    rows = []
    for x in np.clip(coordinates(axis, mode), 0, axis.size - 1).astype(np.float64):
        left = int(x)
        right = min(left + 1, axis.size - 1)
        rows.append([(left, 1 - (x - left)), (right, x - left)])
    return table_of(axis.number, rows)


def cubic_weight(distance: Array | npt.NDArray[np.float64], a: float) -> npt.NDArray[np.float64]:
    """Keys' kernel (IEEE Transactions on Acoustics, Speech, and Signal Processing 29, 1981)."""
    d = np.abs(distance).astype(np.float64)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d < 1, near, np.where(d < 2, far, 0.0))


def cubic(axis: Axis, mode: str, a: float, exclude_outside: bool) -> Table:
    """A table of cubic interpolation with the coefficient `a`."""
    rows = []
    for x in coordinates(axis, mode).astype(np.float64):
        places = np.floor(x) + np.arange(-1, 3)
        weights = cubic_weight(places - x, a)
        rows.append(_inside(places, weights, axis.size, exclude_outside))
    return table_of(axis.number, rows)


def antialiased(axis: Axis, mode: str, a: float | None, exclude_outside: bool) -> Table:
    """A table of interpolation whose kernel is stretched where the result is smaller.

    Args:
        axis: to be resized.
        mode: of coordinates.
        a: coefficient of the cubic kernel, None for the linear one.
        exclude_outside: whether only elements inside count.
    """
    if axis.size == axis.result == axis.width and mode != "tf_crop_and_resize":
        # As in ONNX Runtime, whatever the scale.
        return table_of(axis.number, [[(place, 1.0)] for place in range(axis.size)])
    stretch = min(float(axis.scale), 1.0)
    reach = (1 if a is None else 2) / stretch
    rows = []
    for x in coordinates(axis, mode).astype(np.float64):
        places = np.arange(np.floor(x - reach), np.ceil(x + reach) + 1)
        distances = (places - x) * stretch
        weights = np.clip(1 - np.abs(distances), 0, 1) if a is None else cubic_weight(distances, a)
        rows.append(_inside(places, weights / weights.sum(), axis.size, exclude_outside))
    return table_of(axis.number, rows)


def _inside(
    places: npt.NDArray[np.float64], weights: npt.NDArray[np.float64], size: int, exclude: bool
) -> list[tuple[int, float]]:
    """Places on the axis: those outside count as the nearest one, or not at all."""
    if exclude:
        inside = (places >= 0) & (places < size)
        total = weights[inside].sum()
        places, weights = places[inside], weights[inside]
        if total == 0 or not len(places):
            return [(0, 0.0)]
        weights = weights / total
    clipped = np.clip(places, 0, size - 1).astype(int)
    return [(int(place), float(weight)) for place, weight in zip(clipped, weights, strict=True)]
