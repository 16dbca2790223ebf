# SPDX-License-Identifier: Apache-2.0
"""Resize and Upsample, as tables of places and weights along each axis.

Where ONNX's reference and ONNX Runtime disagree: nearest neighbours at ties are ONNX Runtime's; a
result of the operand's shape is a copy, as in ONNX Runtime; corners are aligned with `size * scale`
from opset 18 on, as in ONNX's tests, and with the whole size before, as in ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.floats.resampling import (
    Table,
    antialiased_table,
    cubic_table,
    linear_table,
    nearest_table,
    resampled,
)
from umakit.frontend.onnx.registry import Node, converts
from umakit.tvm_api import Expr, relax

Array = npt.NDArray[np.float32]
ZERO, ONE, HALF = np.float32(0), np.float32(1), np.float32(0.5)
TIE = 1e-6
"""Largest distance of a coordinate from a half that counts as a tie."""


@dataclass(frozen=True)
class Axis:
    """One axis of a resize.

    Attributes:
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
    """Return the nearest whole numbers. As in ONNX Runtime, ties are within `TIE` of a half."""
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


AXES_SINCE = 18
"""The opset that brought `axes`, `antialias`, `keep_aspect_ratio_policy` and fractional sizes."""
ROI_SINCE = 11
FRACTION = 2**6
"""Weights of integers are multiples of its inverse: float32 holds sums of 8 bits exactly."""
MOST_PLACES = 2**24
"""Largest size of a resized axis: its coordinates are float32, and its tables are constants."""
MODES = ("nearest", "linear", "cubic")


@converts(
    "Resize",
    "antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside "
    "extrapolation_value keep_aspect_ratio_policy mode nearest_mode",
)
def resize(node: Node) -> Any | None:
    old = node.opset < ROI_SINCE
    mode = node.attribute("mode", "nearest")
    transformation = (
        "asymmetric" if old else node.attribute("coordinate_transformation_mode", "half_pixel")
    )
    rounding = "" if old else node.attribute("nearest_mode", "round_prefer_floor")
    _check_names(node, mode, transformation, rounding)
    roi = node.constant(1) if transformation == "tf_crop_and_resize" else None
    if roi is None and transformation == "tf_crop_and_resize" and node.input(1) is not None:
        raise node.refuse(
            "has a region of interest (roi) that is computed at run time", "make it a constant"
        )
    scales = node.constant_input(1 if old else 2, "scales")
    sizes = node.constant_input(3, "sizes")
    axes = _axes(node, scales, sizes, roi)
    return _resized(node, axes, mode, transformation, rounding)


@converts("Upsample", "height_scale mode scales width_scale")
def upsample(node: Node) -> Any | None:
    """Upsample, the predecessor of Resize of opset 10."""
    mode = node.attribute("mode", "nearest")
    mode = {"bilinear": "linear"}.get(mode, mode)
    _check_names(node, mode, "asymmetric", "")
    if node.opset >= 9:
        scales = node.constant_input(1, "scales")
    elif node.opset >= 7:
        scales = np.asarray(node.attribute("scales", ()), np.float32)
    else:
        sides = [node.attribute(name, 1.0) for name in ("height_scale", "width_scale")]
        scales = np.asarray([1.0] * (len(node.shape(0)) - 2) + sides, np.float32)
    return _resized(node, _axes(node, scales, None, None), mode, "asymmetric", "")


def _check_names(node: Node, mode: str, transformation: str, rounding: str) -> None:
    choices = {
        "mode": (mode, MODES),
        "coordinate_transformation_mode": (transformation, COORDINATES),
        "nearest_mode": (rounding, ("", *ROUNDINGS)),
    }
    for attribute, (name, names) in choices.items():
        if name not in names:
            raise node.refuse(f"has the {attribute} {name!r}, which ONNX does not define")


def _axes(
    node: Node,
    scales: npt.NDArray[Any] | None,
    sizes: npt.NDArray[Any] | None,
    roi: npt.NDArray[Any] | None,
) -> list[Axis]:
    shape = node.shape(0)
    numbers = [int(axis) % len(shape) for axis in node.attribute("axes", range(len(shape)))]
    # Exporters leave the unused input empty.
    given = [array for array in (scales, sizes) if array is not None and array.size]
    if len(given) != 1 or given[0].size != len(numbers) or len(set(numbers)) != len(numbers):
        raise node.refuse(
            f"needs either a scale or a size for each of {len(numbers)} different axes"
        )
    if sizes is None or not sizes.size:
        factors = given[0].astype(np.float32).reshape(-1)
        wrong = factors[~(np.isfinite(factors) & (factors > 0))]
        if wrong.size:
            raise node.refuse(
                f"has the scale {wrong[0]}, which is not a positive number",
                "give each axis a positive scale",
            )
        # ONNX's shape inference multiplies exactly, so sizes do too.
        results = [
            int(np.floor(shape[a] * float(f))) for a, f in zip(numbers, factors, strict=True)
        ]
    else:
        results = [int(size) for size in given[0].reshape(-1)]
        factors = np.asarray(results, np.float32) / np.asarray([shape[a] for a in numbers], "f4")
        factors, results = _by_policy(node, factors, results, [shape[a] for a in numbers])
    if min(results) < 1:
        raise node.refuse(f"yields the sizes {results}, which leaves no elements")
    if max(results) > MOST_PLACES:
        raise node.refuse(
            f"yields the sizes {results}; float32 tells {MOST_PLACES} places on an axis apart",
            "choose smaller scales or sizes",
        )
    bounds = np.array([[0.0], [1.0]]).repeat(len(numbers), axis=1)
    if roi is not None and roi.size:
        if roi.size != 2 * len(numbers):
            raise node.refuse(f"has a region of interest of {roi.size} numbers")
        bounds = roi.reshape(2, -1)
    exact = node.opset >= AXES_SINCE
    exact &= node.attribute("coordinate_transformation_mode") == "align_corners"
    axes = []
    for axis, result, scale, *region in zip(numbers, results, factors, *bounds, strict=True):
        width = np.float32(shape[axis]) * scale if exact else np.float32(result)
        if abs(width - result) < 1e-4 * result:
            width = np.float32(result)
        axes.append(Axis(axis, shape[axis], result, scale, width, *map(np.float32, region)))
    return axes


def _by_policy(
    node: Node, factors: npt.NDArray[np.float32], results: list[int], sizes: list[int]
) -> tuple[Any, list[int]]:
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return factors, results
    if policy not in ("not_larger", "not_smaller"):
        raise node.refuse(f"has the keep_aspect_ratio_policy {policy!r}")
    factor = factors.min() if policy == "not_larger" else factors.max()
    kept = [int(np.floor(float(factor * np.float32(size)) + 0.5)) for size in sizes]
    return [factor] * len(sizes), kept


def _resized(node: Node, axes: list[Axis], mode: str, transformation: str, rounding: str) -> Expr:
    shape, cropped = node.shape(0), transformation == "tf_crop_and_resize"
    data: Expr = node.inputs[0]
    if not cropped and all(axis.size == axis.result for axis in axes):
        return data
    whole = [
        axis for axis in axes
        if axis.size != axis.result or axis.scale != 1
        or (cropped and (axis.start != 0 or axis.end != 1))
    ]  # fmt: skip
    tables = [_table(node, axis, mode, transformation, rounding) for axis in whole]
    dtype = node.dtype(0)
    if all(table.is_gather for table in tables) or dtype.startswith("float"):
        result = resampled(node.builder, data, tables)
    else:
        _check_integers(node, tables, mode)
        floats = node.emit(relax.op.astype(data, "float32"))
        result = relax.op.astype(resampled(node.builder, floats, tables), dtype)
    if cropped:
        value = float(node.attribute("extrapolation_value", 0.0))
        for axis in whole:
            result = _extrapolated(node, result, axis, len(shape), value)
    return result


def _check_integers(node: Node, tables: list[Table], mode: str) -> None:
    """Refuse integer interpolation whose float32 rounding would decide the result."""
    dtype = node.dtype(0)
    scaled = [table.weights * FRACTION for table in tables]
    exact = all((weights == np.round(weights)).all() for weights in scaled)
    if not exact or (mode == "cubic" and dtype != "int32"):
        raise node.refuse(
            f"interpolates {dtype} with weights whose rounding is not defined",
            "cast to float32 before it, or use the mode nearest",
        )


def _table(node: Node, axis: Axis, mode: str, transformation: str, rounding: str) -> Table:
    x = coordinates(axis, transformation)
    if mode == "nearest":
        # Opset 10 and Upsample have no rounding: down, or up if the result is smaller.
        rounding = rounding or ("ceil" if axis.scale < 1 else "floor")
        return nearest_table(axis.number, np.clip(ROUNDINGS[rounding](x), 0, axis.size - 1))
    exclude = bool(node.attribute("exclude_outside", 0))
    a = float(node.attribute("cubic_coeff_a", -0.75)) if mode == "cubic" else None
    if node.attribute("antialias", 0):
        if axis.size == axis.result == axis.width and transformation != "tf_crop_and_resize":
            # As in ONNX Runtime, whatever the scale.
            return nearest_table(axis.number, np.arange(axis.size))
        stretch = min(float(axis.scale), 1.0)
        return antialiased_table(axis.number, axis.size, x, stretch, a, exclude_outside=exclude)
    if a is None:
        return linear_table(axis.number, axis.size, x)
    return cubic_table(axis.number, axis.size, x, a, exclude_outside=exclude)


def _extrapolated(node: Node, data: Expr, axis: Axis, rank: int, value: float) -> Expr:
    """Return the data with `value` at coordinates outside of the operand."""
    x = coordinates(axis, "tf_crop_and_resize")
    inside = (x >= 0) & (x <= axis.size - 1)
    if inside.all():
        return data
    extents = [1] * rank
    extents[axis.number] = -1
    mask = relax.const(inside.reshape(extents), "bool")
    other = relax.const(np.asarray(value, tvm_api.dtype_of(data)))
    return node.emit(relax.op.where(mask, data, other))
