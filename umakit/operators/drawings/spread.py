# SPDX-License-Identifier: Apache-2.0
"""Drawings of dilated, transposed and averaging windows, and of resized images."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from umakit.operators import drawing as draw
from umakit.operators.drawings import windows
from umakit.operators.drawings.families import SIZES, common_fields, zero_point_of
from umakit.operators.drawings.layers import IMAGES, Inputs, Made, image_input, layer
from umakit.operators.drawings.reductions import factor_of, magnitude_of
from umakit.operators.drawings.scales import SCALES, weights_of
from umakit.operators.multipliers import multiplier_of
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.parameters import Parameters

POOL: draw.Choices = {
    **IMAGES, "window_height": windows.FEW, "window_width": windows.FEW, **windows.WINDOW,
}  # fmt: skip
IMAGE_SIZES = ("height", "width", "channels")


def _pool(settings: draw.Settings, image: draw.Tensor, dilation: tuple[int, int]) -> dict[str, Any]:
    window = (int(settings["window_height"]), int(settings["window_width"]))
    padding, strides, extents = windows.window_of(settings, image, window, dilation)
    sizes = dict(zip(image.layout, image.shape, strict=True))
    for axis, name in enumerate("HW"):
        for place in range(extents[axis]):
            first = place * strides[axis] - padding[axis]
            taps = range(first, first + window[axis] * dilation[axis], dilation[axis])
            if not any(0 <= tap < sizes[name] for tap in taps):
                raise draw.NotDrawable("a window without elements")
    sizes |= {"H": extents[0], "W": extents[1]}
    return {
        "output_shape": tuple(sizes[axis] for axis in image.layout), "strides": strides,
        "padding": padding, "window": window, "layout": image.layout,
    }  # fmt: skip


def _work(parameters: Any, inputs: Inputs) -> int:
    operations: int = math.prod(parameters.output_shape) * math.prod(parameters.window)
    return operations


def dilated_pool(kind: Callable[..., Parameters]) -> draw.Drawing:
    """Return the drawing of a pool with a dilated window; data and result have one scale."""

    def make(settings: draw.Settings, inputs: Inputs, random: draw.Random) -> Made:
        (image,) = inputs
        dilation = (int(settings["dilation_y"]), int(settings["dilation_x"]))
        own = _pool(settings, image, dilation)
        common = common_fields(settings, own["output_shape"], image.zero_point)
        return kind(**{**common, **own}, dilation=dilation), []

    return layer(
        make, image_input, POOL, IMAGE_SIZES, _work, layout=("NCHW", "NHWC"),
        dtype=("int8", "uint8"), rounding=("ort",), output_zero_point=(),
        dilation_y=(2, 1, 3), dilation_x=(1, 2, 3),
    )  # fmt: skip


def mean_pool(kind: Callable[..., Parameters]) -> draw.Drawing:
    """Return the drawing of means of windows at another scale, by number of elements."""

    def make(settings: draw.Settings, inputs: Inputs, random: draw.Random) -> Made:
        (image,) = inputs
        own = _pool(settings, image, (1, 1))
        most = math.prod(own["window"])
        counts = [most] if settings["counts_padding"] else range(1, most + 1)
        factor, at_most = factor_of(settings, random), most * magnitude_of("int16", 0)
        arithmetic = Arithmetic(str(settings["rounding"]))
        pairs = [multiplier_of(factor / count, at_most, arithmetic) for count in counts]
        zero_point = zero_point_of(settings, "output_zero_point")
        parameters = kind(
            **{**common_fields(settings, own["output_shape"], zero_point), **own},
            input_zero_point=image.zero_point, counts_padding=int(settings["counts_padding"]),
        )  # fmt: skip
        multipliers, shifts = zip(*pairs, strict=True)
        return parameters, [np.array(multipliers, np.int32), np.array(shifts, np.int8)]

    return layer(
        make, image_input, POOL, IMAGE_SIZES, _work, layout=("NCHW", "NHWC"),
        dtype=("int8", "uint8"), rounding=("ort", "even"), scale=SCALES, counts_padding=(0, 1),
    )  # fmt: skip


LEFT_OUT: draw.Choices = {
    **windows.CONVOLUTION,
    "padding": ("none", "same", "top", "left", "bottom", "right", "all"),
    "more_rows": (0, 1),
    "more_columns": (0, 1),
}


def transposed_convolution(kind: Callable[..., Parameters]) -> draw.Drawing:
    """Return the drawing of a transposed convolution; only NCHW has groups."""

    def first(settings: draw.Settings, data: draw.Tensor | None) -> Inputs:
        channels = int(settings["groups"]) * int(settings["channels_per_group"])
        return (windows.image_of(settings, data, channels),)

    def make(settings: draw.Settings, inputs: Inputs, random: draw.Random) -> Made:
        (image,) = inputs
        sizes = dict(zip(image.layout, image.shape, strict=True))
        groups = int(settings["groups"])
        if sizes["C"] % groups or (groups > 1 and image.layout == "NHWC"):
            raise draw.NotDrawable(
                "groups of an NHWC image, or channels that are no multiple of them"
            )
        filters = groups * int(settings["filters_per_group"])
        padding, extents, fields = _spread(settings, sizes)
        result = {"N": sizes["N"], "H": extents[0], "W": extents[1], "C": filters}
        kernel = (int(settings["kernel_height"]), int(settings["kernel_width"]))
        weights, *rest = weights_of(settings, (filters, *kernel, sizes["C"] // groups), random)
        if image.layout == "NCHW":
            weights = np.ascontiguousarray(weights.transpose(0, 3, 1, 2))
        shape = tuple(result[axis] for axis in image.layout)
        parameters = kind(
            **common_fields(settings, shape, zero_point_of(settings, "output_zero_point")),
            input_zero_point=image.zero_point, padding=padding, groups=groups,
            layout=image.layout, **fields,
        )  # fmt: skip
        constants: list[draw.Array] = [weights, *rest]
        return parameters, constants

    def work(parameters: Parameters, inputs: Inputs) -> int:
        return math.prod(parameters.output_shape) * 5 * inputs[0].shape[-1]

    return layer(make, first, LEFT_OUT, windows.CONVOLUTION_SIZES, work)


def _spread(
    settings: draw.Settings, sizes: Mapping[str, int]
) -> tuple[tuple[int, ...], tuple[int, int], dict[str, Any]]:
    before, after, extents, fields = [], [], [], {"strides": (), "dilation": ()}
    kind = str(settings["padding"])
    for axis, name, taps, more, sides in (
        ("y", "H", "kernel_height", "more_rows", ("top", "bottom")),
        ("x", "W", "kernel_width", "more_columns", ("left", "right")),
    ):
        stride, dilation = int(settings[f"stride_{axis}"]), int(settings[f"dilation_{axis}"])
        reach = (int(settings[taps]) - 1) * dilation + 1
        extra = int(settings[more])
        if extra >= stride and extra >= dilation:
            raise draw.NotDrawable("more rows or columns than steps")
        total = max(reach - stride, 0) if kind == "same" else 0
        first = reach - 1 if kind in (sides[0], "all") else total // 2
        last = reach - 1 if kind in (sides[1], "all") else total - total // 2
        extent = (sizes[name] - 1) * stride + reach - first - last + extra
        if extent < 1:
            raise draw.NotDrawable("nothing is left of the result")
        before.append(first)
        after.append(last)
        extents.append(extent)
        fields["strides"] += (stride,)  # type: ignore[assignment]
        fields["dilation"] += (dilation,)  # type: ignore[assignment]
    return (*before, *after), (extents[0], extents[1]), fields


def resized(
    kind: Callable[..., Parameters],
    modes: Mapping[str, tuple[int, int]],
    leaves_the_image: Callable[..., bool],
) -> draw.Drawing:
    """Return the drawing of an image resize.

    Args:
        modes: (aligned corners, centers of pixels) by name.
        leaves_the_image: (size, size of the result, align, half_pixel) -> whether rounded positions
            lie behind the image.
    """

    def make(settings: draw.Settings, inputs: Inputs, random: draw.Random) -> Made:
        (image,) = inputs
        batch, height, width, channels = image.shape
        align, half_pixel = modes[str(settings["mode"])]
        extents = (int(settings["result_height"]), int(settings["result_width"]))
        for size, extent in zip((height, width), extents, strict=True):
            if leaves_the_image(size, extent, align=bool(align), half_pixel=bool(half_pixel)):
                raise draw.NotDrawable("positions are too coarse")
        parameters = kind(
            **common_fields(settings, (batch, *extents, channels), image.zero_point),
            align_corners=align, half_pixel_centers=half_pixel,
        )  # fmt: skip
        return parameters, []

    return layer(
        make, image_input, IMAGES, (*IMAGE_SIZES, "result_height", "result_width"),
        layout=("NHWC",), dtype=("int8",), rounding=("tflm",), output_zero_point=(),
        mode=tuple(modes), result_height=(2, *SIZES), result_width=(2, *SIZES),
    )  # fmt: skip
