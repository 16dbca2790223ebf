# SPDX-License-Identifier: Apache-2.0
"""Drawings of operators over axes: means, sums, positions of extremes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from umakit.operators.drawing import Choices, Drawing, NotDrawable, Random, Settings
from umakit.operators.drawings.families import TENSOR, common_fields, zero_point_of
from umakit.operators.drawings.layers import IMAGES, Inputs, Made, image_input, layer
from umakit.operators.drawings.scales import SCALES
from umakit.operators.multipliers import check_headroom, multiplier_of
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.parameters import Parameters, whole_range
from umakit.operators.tensors import Scale

FACTORS = {"usual": 1.0, "tie": 1.0, "threshold": 0.5, "small": 1 / 64, "large": 8.0}

AXES: Choices = {
    "reduced": ("last", "first", "image", "all", "ends"), "keep": (1, 0),
}  # fmt: skip
"""`ends` are the first and the last axis, which a driver of one length does not get."""


def axes_of(settings: Settings, rank: int) -> tuple[int, ...]:
    """Return the reduced axes, ascending."""
    chosen = {
        "last": (rank - 1,), "first": (0,), "all": tuple(range(rank)),
        "ends": tuple(sorted({0, rank - 1})), "image": (rank - 3, rank - 2),
    }  # fmt: skip
    axes = chosen[str(settings["reduced"])]
    if min(axes) < 0:
        raise NotDrawable("too few axes")
    return axes


def without(shape: tuple[int, ...], axes: tuple[int, ...], keep: bool) -> tuple[int, ...]:
    """Return a shape with the axes reduced to one element, or left out."""
    found = [1 if axis in axes else n for axis, n in enumerate(shape) if keep or axis not in axes]
    return tuple(found)


def factor_of(settings: Settings, random: Random) -> float:
    """Return a ratio of the scales of data and result."""
    kind = str(settings["scale"])
    exact = kind in ("tie", "threshold")
    return FACTORS[kind] * (1.0 if exact else float(random.uniform(0.5, 1.5)))


def magnitude_of(dtype: str, zero_point: int) -> int:
    """Return the largest absolute difference of an integer to the zero point."""
    return Scale(np.float32(1), zero_point, dtype).magnitude


def reduction(
    kind: Callable[..., Parameters], tflm_multiplier: Callable[[float, int], tuple[int, int]]
) -> Drawing:
    """Return the drawing of a mean or sum over some axes.

    Args:
        tflm_multiplier: (ratio of scales, terms) -> multiplier and shift of TensorFlow Lite Micro;
            one term for sums.
    """

    def make(settings: Settings, inputs: Inputs, random: Random) -> Made:
        (data,) = inputs
        axes = axes_of(settings, len(data.shape))
        terms = math.prod(data.shape[axis] for axis in axes)
        averages = kind.operator == "mean"  # type: ignore[attr-defined]
        magnitude = magnitude_of(data.dtype, data.zero_point) * terms
        factor = factor_of(settings, random) / (1 if averages else math.sqrt(terms))
        arithmetic = Arithmetic(str(settings["rounding"]))
        if arithmetic is Arithmetic.TFLM:
            multiplier, shift = tflm_multiplier(factor, terms if averages else 1)
            check_headroom(magnitude, shift, arithmetic)
        else:
            factor = factor / terms if averages else factor
            multiplier, shift = multiplier_of(factor, magnitude, arithmetic)
        shape = without(data.shape, axes, settings["keep"] == 1)
        parameters = kind(
            **common_fields(settings, shape, zero_point_of(settings, "output_zero_point")),
            axes=axes, input_zero_point=data.zero_point, multiplier=multiplier, shift=shift,
        )  # fmt: skip
        return parameters, []

    return layer(make, family={**TENSOR, **AXES}, scale=SCALES, rounding=("tflm", "even"))


def extreme(kind: Callable[..., Parameters]) -> Drawing:
    """Return the drawing of the position of the largest or least element, int32."""

    def make(settings: Settings, inputs: Inputs, random: Random) -> Made:
        (data,) = inputs
        axis = len(data.shape) - 1 - int(settings["axis"])
        if axis < 0:
            raise NotDrawable("too few axes")
        shape = without(data.shape, (axis,), settings["keep"] == 1)
        return kind(**whole_range(shape, "int32"), axis=axis), []

    family = {name: TENSOR[name] for name in ("axes", "size", "other", "dtype", "input_zero_point")}
    family |= {"values": TENSOR["values"], "axis": (0, 1, 2, 3), "keep": (0, 1)}
    return layer(make, family=family)


def mean_of_channels(
    kind: Callable[..., Parameters], multiplier: Callable[[float, int], tuple[int, int]]
) -> Drawing:
    """Return the drawing of the mean of each channel of an image.

    Args:
        multiplier: (ratio of scales, elements of a channel) -> multiplier and shift.
    """

    def make(settings: Settings, inputs: Inputs, random: Random) -> Made:
        (data,) = inputs
        keep = settings["keep"] == 1
        shape = without(data.shape, (2, 3), keep)
        factor, shift = multiplier(factor_of(settings, random), math.prod(data.shape[2:]))
        parameters = kind(
            **common_fields(settings, shape, zero_point_of(settings, "output_zero_point")),
            input_zero_point=data.zero_point, multiplier=factor, shift=shift,
        )  # fmt: skip
        return parameters, []

    return layer(
        make, image_input, IMAGES, ("height", "width", "channels"),
        layout=("NCHW",), dtype=("int8", "uint8"), rounding=("ort",), keep=(1, 0), scale=SCALES,
    )  # fmt: skip
