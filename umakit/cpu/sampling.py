# SPDX-License-Identifier: Apache-2.0
"""CPU kernels of operators that sample images at given coordinates: GridSample, RoiAlign, RoiPool.

TVM's kernels convert coordinates to 32-bit integers first, so that distant, infinite and NaN
coordinates select arbitrary pixels. Here coordinates are clipped to the neighbourhood of the image
while they are floats, and a coordinate that is NaN, or has no reflection, makes the result NaN.
"""

from __future__ import annotations

from typing import Any

from umakit import tvm_api

tirx = tvm_api.tirx
te = tvm_api.te

FAR = 1e4
"""A normalized coordinate (the image is from -1 to 1) that is padding for every method."""

LOST = 2.0**20
"""A coordinate beyond which float32 cannot resolve the position in a reflected image."""


def rules() -> dict[str, tvm_api.Legalization]:
    """Return the rules for `LegalizeOps` by operator."""
    return {
        "relax.image.grid_sample": _grid_sample,
        "relax.vision.roi_align": _roi_align,
        "relax.vision.roi_pool": _roi_pool,
    }


# --- GridSample ---------------------------------------------------------------------------------


def _grid_sample(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
    """Lower grid_sample with TVM's kernel on clipped coordinates; NaN for invalid ones.

    `data` [N, C, *extents], `grid` [N, axes, *places] of coordinates from -1 to 1.
    """
    names = ("method", "layout", "padding_mode", "align_corners")
    options = {name: getattr(call.attrs, name) for name in names}
    mirrored = str(call.attrs.padding_mode) == "reflection"

    def grid_sample(data: te.Tensor, grid: te.Tensor) -> te.Tensor:
        near = grid
        if not mirrored:
            near = te.compute(grid.shape, lambda *at: _clipped(grid(*at), -FAR, FAR), "near")
        result = tvm_api.topi.image.grid_sample(data, near, **options)
        nan = tirx.const(float("nan"), data.dtype)

        def element(image: Any, channel: Any, *place: Any) -> tvm_api.Expr:
            given = [grid(image, axis, *place) for axis in range(int(grid.shape[1]))]
            tests = [tirx.isnan(each) for each in given]
            if mirrored:
                tests += [tirx.abs(each) > tirx.const(LOST, grid.dtype) for each in given]
            unknown = tirx.any(*tests)
            return tirx.if_then_else(unknown, nan, result(image, channel, *place))

        axes = [f"ax{number}" for number in range(len(grid.shape) - 2)]
        return te.compute(result.shape, element, "known", varargs_names=axes)

    return builder.call_te(grid_sample, *call.args, primfunc_name_hint="grid_sample")


def _clipped(value: tvm_api.PrimExpr, low: float, high: float) -> tvm_api.Expr:
    least, most = (tirx.const(float(limit), value.ty.dtype) for limit in (low, high))
    value = tirx.if_then_else(value < least, least, value)
    return tirx.if_then_else(value > most, most, value)


# --- regions of interest ------------------------------------------------------------------------


def _roi_align(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
    """Lower roi_align with TVM's kernel, and check the batch index of every region."""
    names = ("pooled_size", "spatial_scale", "mode", "sample_ratio", "aligned", "layout")
    options = {name: getattr(call.attrs, name) for name in names}

    def roi_align(data: te.Tensor, rois: te.Tensor) -> te.Tensor:
        result = tvm_api.topi.vision.roi_align(data, rois, **options)
        return _of_an_image(result, data, rois)

    return builder.call_te(roi_align, *call.args, primfunc_name_hint="roi_align")


def _of_an_image(result: te.Tensor, data: te.Tensor, rois: te.Tensor) -> te.Tensor:
    """Make each region's result read its image, so that the region's batch index is checked."""
    nothing = tirx.const(-0.0, data.dtype)  # adding this number changes no other number
    images = te.compute([data.shape[0]], lambda _: nothing, "images")

    def element(region: tvm_api.Expr, *place: tvm_api.Expr) -> tvm_api.Expr:
        return result(region, *place) + images(rois(region, 0).astype("int32"))

    return te.compute(result.shape, element, "of_an_image", varargs_names=["ax1", "ax2", "ax3"])


def _roi_pool(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
    """Lower roi_pool: `data` [N, C, H, W], `rois` [R, 5] of batch index and corners.

    Coordinates are added in float64, which is exact for all values of 32-bit integers.
    """
    if str(call.attrs.layout) != "NCHW":
        return call
    pooled = [int(size) for size in call.attrs.pooled_size]
    scale = float(call.attrs.spatial_scale)

    def roi_pool(data: te.Tensor, rois: te.Tensor) -> te.Tensor:
        shape = [rois.shape[0], data.shape[1], *pooled]
        rows, columns = (te.reduce_axis((0, data.shape[n]), f"r{n}") for n in (2, 3))

        def limits(region: Any, place: tuple[Any, ...]) -> list[tuple[Any, Any]]:
            return [
                _bin(rois(region, 2 - n), rois(region, 4 - n), place[n], pooled[n], scale)
                for n in (0, 1)
            ]

        def largest(region: Any, channel: Any, *place: Any) -> tvm_api.Expr:
            inside = [
                condition
                for at, (first, end) in zip((rows, columns), limits(region, place), strict=True)
                for condition in (first <= at.astype("float64"), at.astype("float64") < end)
            ]
            image = rois(region, 0).astype("int32")
            least = tirx.const(float("-inf"), data.dtype)
            element = data(image, channel, rows, columns)
            value = tirx.if_then_else(tirx.all(*inside), element, least)
            return te.max(value, axis=[rows, columns])

        maxima = te.compute(shape, largest, "maxima", varargs_names=["row", "column"])

        def element(region: Any, channel: Any, *place: Any) -> tvm_api.Expr:
            corners = [rois(region, number) for number in range(1, 5)]
            unknown = tirx.any(*(test(c) for c in corners for test in (tirx.isnan, tirx.isinf)))
            empty = tirx.any(
                *(
                    tirx.max(first, tirx.const(0, "float64"))
                    >= tirx.min(end, tirx.const(int(extent), "float64"))
                    for (first, end), extent in zip(
                        limits(region, place), data.shape[2:], strict=True
                    )
                )
            )
            nan, zero = (tirx.const(value, data.dtype) for value in (float("nan"), 0.0))
            found = tirx.if_then_else(empty, zero, maxima(region, channel, *place))
            return tirx.if_then_else(unknown, nan, found)

        result = te.compute(shape, element, "roi_pool", varargs_names=["row", "column"])
        return _of_an_image(result, data, rois)

    return builder.call_te(roi_pool, *call.args, primfunc_name_hint="roi_pool")


def _bin(
    start: tvm_api.Expr, end: tvm_api.Expr, number: tvm_api.Expr, count: int, scale: float
) -> tuple[tvm_api.Expr, tvm_api.Expr]:
    """Return the first row of a bin and the row after the last row, as float64."""
    dtype = str(start.ty.dtype)
    factor, half = (tirx.const(value, dtype) for value in (scale, 0.5))
    start, end = (tirx.floor(each * factor + half).astype("float64") for each in (start, end))
    one = tirx.const(1, "float64")
    size = tirx.max(end - start + one, one).astype(dtype) / tirx.const(float(count), dtype)
    first = tirx.floor(number.astype(dtype) * size).astype("float64") + start
    return first, tirx.ceil((number + 1).astype(dtype) * size).astype("float64") + start
