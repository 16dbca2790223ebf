# SPDX-License-Identifier: Apache-2.0
"""Drawings of operators that move a window over an image: convolutions and pools."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from umakit.operators import drawing as draw
from umakit.operators.drawings.families import (
    COMMON,
    SIZES,
    WEIGHTED,
    ZERO_POINTS,
    common_fields,
    zero_point_of,
)
from umakit.operators.drawings.scales import tflm_scaled, weights_of
from umakit.operators.drawings.sums import sum_of
from umakit.operators.parameters import Parameters

FEW = (1, 2, 3, 4, 5)
SIDES = ("top", "left", "bottom", "right")
PADS = (0, 1, 2, 3)
IMAGE: draw.Choices = {
    "layout": ("NHWC", "NCHW"),
    "batch": (1, 2, 3),
    "height": SIZES,
    "width": SIZES,
}
WINDOW: draw.Choices = {
    "stride_y": (1, 2, 3),
    "stride_x": (1, 2, 3),
    "padding": ("valid", "same", "top", "left", "bottom", "right", "all", "own"),
    "pad_top": PADS,
    "pad_left": PADS,
    "pad_bottom": PADS,
    "pad_right": PADS,
}
"""`padding` is `own` if the settings of the four sides apply. Other paddings ignore them."""


def image_of(settings: draw.Settings, data: draw.Tensor | None, channels: int) -> draw.Tensor:
    """Return the image of a layer."""
    if data is not None:
        if len(data.shape) != 4 or data.dtype != settings["dtype"]:
            raise draw.NotDrawable("another kind of tensor")
        if data.layout != settings["layout"]:
            raise draw.NotDrawable("another layout")
        return data
    sizes = {
        "N": int(settings["batch"]),
        "H": int(settings["height"]),
        "W": int(settings["width"]),
        "C": channels,
    }
    layout = str(settings["layout"])
    shape = tuple(sizes[axis] for axis in layout)
    zero_point = zero_point_of(settings, "input_zero_point")
    return draw.Tensor(shape, str(settings["dtype"]), zero_point, layout)


def window_of(
    settings: draw.Settings, image: draw.Tensor, window: tuple[int, int], dilation: tuple[int, int]
) -> tuple[tuple[int, int, int, int], tuple[int, int], tuple[int, int]]:
    """Return padding (top, left, bottom, right), strides, and rows and columns of the result."""
    sizes = dict(zip(image.layout, image.shape, strict=True))
    strides = (int(settings["stride_y"]), int(settings["stride_x"]))
    reach = [(taps - 1) * step + 1 for taps, step in zip(window, dilation, strict=True)]
    kind = str(settings["padding"])
    sides = dict.fromkeys(SIDES, 0)
    if kind == "own":
        sides = {side: int(settings[f"pad_{side}"]) for side in SIDES}
    elif kind == "same":
        for first, last, size, stride, extent in (
            ("top", "bottom", sizes["H"], strides[0], reach[0]),
            ("left", "right", sizes["W"], strides[1], reach[1]),
        ):
            total = max((-(-size // stride) - 1) * stride + extent - size, 0)
            sides[first], sides[last] = total // 2, total - total // 2
    elif kind != "valid":
        for side in sides:
            extent = reach[0] if side in ("top", "bottom") else reach[1]
            sides[side] = extent - 1 if kind in (side, "all") else 0
    top, left, bottom, right = (sides[side] for side in ("top", "left", "bottom", "right"))
    rows = (sizes["H"] + top + bottom - reach[0]) // strides[0] + 1
    columns = (sizes["W"] + left + right - reach[1]) // strides[1] + 1
    padded = (sizes["H"] + top + bottom, sizes["W"] + left + right)
    if rows < 1 or columns < 1 or padded[0] < reach[0] or padded[1] < reach[1]:
        raise draw.NotDrawable("the window is larger than the image")
    return (top, left, bottom, right), strides, (rows, columns)


def pool_of(
    settings: draw.Settings, image: draw.Tensor, window: tuple[int, int]
) -> tuple[tuple[int, int, int, int], tuple[int, int], tuple[int, int]]:
    """Return `window_of` of a pool; each window has an element of the image."""
    padding, strides, extents = window_of(settings, image, window, (1, 1))
    if any(pad >= taps for pad, taps in zip(padding, window * 2, strict=True)):
        raise draw.NotDrawable("a window without elements")
    return padding, strides, extents


def _convolution(kind: Callable[..., Parameters]) -> Any:
    def build(settings: draw.Settings, data: draw.Tensor | None, random: draw.Random) -> draw.Drawn:
        groups = int(settings["groups"])
        channels = groups * int(settings["channels_per_group"])
        image = image_of(settings, data, channels)
        sizes = dict(zip(image.layout, image.shape, strict=True))
        if sizes["C"] % groups:
            raise draw.NotDrawable("channels that are no multiple of the groups")
        filters = groups * int(settings["filters_per_group"])
        kernel = (int(settings["kernel_height"]), int(settings["kernel_width"]))
        dilation = (int(settings["dilation_y"]), int(settings["dilation_x"]))
        padding, strides, rows = window_of(settings, image, kernel, dilation)
        zero_point = zero_point_of(settings, "output_zero_point")
        result = {"N": sizes["N"], "H": rows[0], "W": rows[1], "C": filters}
        shape = tuple(result[axis] for axis in image.layout)
        weights, *rest = weights_of(settings, (filters, *kernel, sizes["C"] // groups), random)
        if image.layout == "NCHW":
            weights = np.ascontiguousarray(weights.transpose(0, 3, 1, 2))
        parameters = kind(
            **common_fields(settings, shape, zero_point),
            input_zero_point=image.zero_point, strides=strides, padding=padding,
            dilation=dilation, groups=groups, layout=image.layout,
        )  # fmt: skip
        macs = math.prod(shape) * math.prod(weights.shape[1:])
        step = draw.parameters_step(parameters, [draw.Input(0), weights, *rest])
        made = draw.Tensor(shape, str(settings["dtype"]), zero_point, image.layout)
        return draw.Drawn((image,), (step,), made, macs)

    return build


CONVOLUTION: draw.Choices = {
    **IMAGE,
    "groups": (1, 2, 3, 4, 8, 16, 17, 33),
    "channels_per_group": SIZES,
    "filters_per_group": SIZES,
    "kernel_height": FEW,
    "kernel_width": FEW,
    **WINDOW,
    "dilation_y": (1, 2, 3),
    "dilation_x": (1, 2, 3),
    **WEIGHTED,
}
CONVOLUTION_SIZES = ("height", "width", "channels_per_group", "filters_per_group")


def convolution(kind: Callable[..., Parameters]) -> draw.Drawing:
    """Return the drawing of a convolution, given its class of parameters."""
    return draw.Drawing(CONVOLUTION, _convolution(kind), CONVOLUTION_SIZES)


def _constant_elements(settings: draw.Settings, convolution: draw.Drawn) -> list[int]:
    _, weights, bias, multipliers, shifts = convolution.steps[0].operands
    assert isinstance(weights, np.ndarray) and isinstance(bias, np.ndarray)
    assert isinstance(multipliers, np.ndarray) and isinstance(shifts, np.ndarray)
    if settings["scale"] != "threshold" or bias.dtype != np.int32:
        return []
    zero_point = convolution.result.zero_point
    lowest, highest = common_fields(settings, (), zero_point)["clip"]
    found = []
    for channel in np.flatnonzero(~weights.reshape(len(weights), -1).any(axis=1)):
        place = channel if len(multipliers) > 1 else 0
        sum_ = tflm_scaled(int(bias[channel]), int(multipliers[place]), int(shifts[place]))
        found.append(int(min(highest, max(lowest, sum_ + zero_point))))
    return found


def convolution_and_sum(
    kind: Callable[..., Parameters], addition: Callable[..., Parameters]
) -> draw.Drawing:
    """Return the drawing of a convolution with an addition of another tensor."""
    first = _convolution(kind)

    def build(settings: draw.Settings, data: draw.Tensor | None, random: draw.Random) -> draw.Drawn:
        own = first(settings, data, random)
        addend = draw.Tensor(
            own.result.shape, own.result.dtype, zero_point_of(settings, "addend_zero_point"),
            own.result.layout,
        )  # fmt: skip
        swapped = settings["swapped"] == 1
        parameters, both = sum_of(
            addition, settings, (addend, own.result) if swapped else (own.result, addend), random,
            constant=(int(swapped), _constant_elements(settings, own)),
        )  # fmt: skip
        operands: list[draw.Input | draw.Result | draw.Array]
        operands = [draw.Input(1), draw.Result(0)] if swapped else [draw.Result(0), draw.Input(1)]
        result = draw.Tensor(
            own.result.shape, own.result.dtype, parameters.output_zero_point, own.result.layout
        )
        steps = (*own.steps, draw.parameters_step(parameters, operands))
        return draw.Drawn((*own.inputs, both[1 - int(swapped)]), steps, result, own.macs)

    settings = {
        **CONVOLUTION, "addend_zero_point": ZERO_POINTS, "sum_zero_point": ZERO_POINTS,
        "swapped": (0, 1),
    }  # fmt: skip
    return draw.Drawing(settings, build, CONVOLUTION_SIZES)


def pool(kind: Callable[..., Parameters]) -> draw.Drawing:
    """Return the drawing of a pool with one scale for data and result."""

    def build(settings: draw.Settings, data: draw.Tensor | None, random: draw.Random) -> draw.Drawn:
        image = image_of(settings, data, int(settings["channels"]))
        sizes = dict(zip(image.layout, image.shape, strict=True))
        window = (int(settings["window_height"]), int(settings["window_width"]))
        padding, strides, rows = pool_of(settings, image, window)
        result = {"N": sizes["N"], "H": rows[0], "W": rows[1], "C": sizes["C"]}
        shape = tuple(result[axis] for axis in image.layout)
        parameters = kind(
            **common_fields(settings, shape, image.zero_point),
            strides=strides, padding=padding, window=window, layout=image.layout,
        )  # fmt: skip
        made = draw.Tensor(shape, image.dtype, image.zero_point, image.layout)
        macs = math.prod(shape) * math.prod(window)
        return draw.Drawn(
            (image,), (draw.parameters_step(parameters, [draw.Input(0)]),), made, macs
        )

    common = {name: values for name, values in COMMON.items() if name != "output_zero_point"}
    settings = {
        **IMAGE, "channels": SIZES, "window_height": FEW, "window_width": FEW, **WINDOW, **common,
        "input_zero_point": ZERO_POINTS,
    }  # fmt: skip
    return draw.Drawing(settings, build, ("height", "width", "channels"))
