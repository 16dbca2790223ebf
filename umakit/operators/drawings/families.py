# SPDX-License-Identifier: Apache-2.0
"""Shared settings of drawings; drawings of fully connected layers and elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from umakit.operators import drawing as draw
from umakit.operators.drawings.scales import SCALES, WEIGHTED_SCALES, weights_of
from umakit.operators.parameters import Parameters

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 31, 33)
ZERO_POINTS = (0, -128, 127, 3, -7, 64)
COMMON: draw.Choices = {
    "dtype": ("int8", "int16", "uint8"),
    "rounding": ("tflm", "ort", "even"),
    "output_zero_point": ZERO_POINTS,
    "clip": ("none", "relu", "narrow", "low", "high"),
    "values": ("random", "extreme", "lowest", "near_zero_point", "near_zero"),
}
"""Settings of all operators whose results are rescaled."""

WEIGHTED: draw.Choices = {
    **COMMON,
    "scales": (1, 0),
    "scale": WEIGHTED_SCALES,
    "input_zero_point": ZERO_POINTS,
    "weights": ("random", "extreme", "lowest"),
}
"""`scales` is 1 for per-tensor scales, 0 for per-channel scales."""


def common_fields(
    settings: draw.Settings, shape: tuple[int, ...], zero_point: int
) -> dict[str, Any]:
    """Return the fields of `Parameters`; clips are like fused activations, around zero."""
    dtype = str(settings["dtype"])
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    bounds = {
        "none": (low, high),
        "relu": (zero_point, high),
        "narrow": (max(low, zero_point - 9), min(high, zero_point + 11)),
        "low": (low, max(low, zero_point - 1)),
        "high": (min(high, zero_point + 1), high),
    }
    return {
        "output_shape": shape,
        "output_dtype": dtype,
        "output_zero_point": zero_point,
        "clip": bounds[str(settings["clip"])],
        "rounding": str(settings["rounding"]),
    }


def zero_point_of(settings: draw.Settings, name: str) -> int:
    """Return a zero point within the dtype; int16 has none."""
    dtype, given = str(settings["dtype"]), int(settings[name])
    return {"int16": 0, "uint8": given + 128}.get(dtype, given)


def fully_connected(kind: Callable[..., Parameters]) -> draw.Drawing:
    """Return the drawing of a fully connected layer."""

    def build(settings: draw.Settings, data: draw.Tensor | None, random: draw.Random) -> draw.Drawn:
        dtype = str(settings["dtype"])
        if data is None:
            shape = (int(settings["rows"]), int(settings["inputs"]))
            data = draw.Tensor(shape, dtype, zero_point_of(settings, "input_zero_point"))
        if len(data.shape) != 2 or data.dtype != dtype:
            raise draw.NotDrawable("another kind of tensor")
        rows, inputs = data.shape
        outputs = int(settings["outputs"])
        zero_point = zero_point_of(settings, "output_zero_point")
        parameters = kind(
            **common_fields(settings, (rows, outputs), zero_point), input_zero_point=data.zero_point
        )
        constants = weights_of(settings, (outputs, inputs), random)
        step = draw.parameters_step(parameters, [draw.Input(0), *constants])
        made = draw.Tensor((rows, outputs), dtype, zero_point)
        return draw.Drawn((data,), (step,), made, rows * inputs * outputs)

    settings = {"rows": (1, 2, 3, 17), "inputs": SIZES, "outputs": SIZES, **WEIGHTED}
    return draw.Drawing(settings, build, ("rows", "inputs", "outputs"))


TENSOR: draw.Choices = {
    "axes": (2, 1, 3, 4), "size": SIZES, "other": SIZES, **COMMON, "input_zero_point": ZERO_POINTS,
}  # fmt: skip
"""Settings of a tensor of up to four axes and of a result that is rescaled."""


def shape_of(settings: draw.Settings) -> tuple[int, ...]:
    """Return the shape [1, other, 2, size] without its first axes."""
    sizes = (1, int(settings["other"]), 2, int(settings["size"]))
    return sizes[-int(settings["axes"]) :]


def tensor_of(settings: draw.Settings, data: draw.Tensor | None) -> tuple[draw.Tensor, ...]:
    """Return the only input of an operator: the data of an earlier layer, or of a drawn shape."""
    dtype = str(settings["dtype"])
    if data is None:
        data = draw.Tensor(shape_of(settings), dtype, zero_point_of(settings, "input_zero_point"))
    if data.dtype != dtype:
        raise draw.NotDrawable("another dtype")
    return (data,)


Fields = dict[str, Any]
MadeOfOne = tuple[Parameters, list[draw.Array]]
Make = Callable[[Fields, draw.Tensor, draw.Settings, draw.Random], MadeOfOne]
"""(common fields, data, settings, random numbers) -> parameters, and constants behind the data."""


def elements(
    make: Make,
    *,
    result: Callable[[draw.Tensor, int], int] = lambda data, zero_point: zero_point,
    **settings: tuple[draw.Setting, ...],
) -> draw.Drawing:
    """Return the drawing of an operator with one operand and a result of the same shape and dtype.

    Args:
        result: (data, drawn zero point) -> zero point of the result; default: the drawn zero point.
    """

    def build(chosen: draw.Settings, data: draw.Tensor | None, random: draw.Random) -> draw.Drawn:
        (data,) = tensor_of(chosen, data)
        zero_point = result(data, zero_point_of(chosen, "output_zero_point"))
        common = common_fields(chosen, data.shape, zero_point)
        parameters, constants = make(common, data, chosen, random)
        step = draw.parameters_step(parameters, [draw.Input(0), *constants])
        made = draw.Tensor(data.shape, data.dtype, zero_point, data.layout)
        return draw.Drawn((data,), (step,), made, math.prod(data.shape))

    return draw.Drawing({**TENSOR, **settings}, build, ("size", "other"))


ELEMENTWISE: draw.Choices = {
    "axes": (1, 2, 3, 4),
    "size": SIZES,
    "other": SIZES,
    "broadcast": ("none", "right", "left", "both"),
    **COMMON,
    "scale": SCALES,
    "left_zero_point": ZERO_POINTS,
    "right_zero_point": ZERO_POINTS,
}


def sides_of(
    settings: draw.Settings, data: draw.Tensor | None
) -> tuple[draw.Tensor, draw.Tensor, tuple[int, ...]]:
    """Return both operands of an elementwise operator and the shape of the result."""
    dtype = str(settings["dtype"])
    shape = shape_of(settings) if data is None else data.shape
    if data is not None and data.dtype != dtype:
        raise draw.NotDrawable("another dtype")
    left, right = list(shape), list(shape)
    kind = str(settings["broadcast"])
    if kind in ("right", "both"):
        right[0 if kind == "both" else -1] = 1
    if kind in ("left", "both") and data is None:
        left[-1] = 1
    layout = "NHWC" if data is None else data.layout
    first = data or draw.Tensor(tuple(left), dtype, zero_point_of(settings, "left_zero_point"))
    other = draw.Tensor(tuple(right), dtype, zero_point_of(settings, "right_zero_point"), layout)
    result = tuple(max(pair) for pair in zip(first.shape, other.shape, strict=True))
    return first, other, result
