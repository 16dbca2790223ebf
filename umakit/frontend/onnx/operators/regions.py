# SPDX-License-Identifier: Apache-2.0
"""RoiAlign."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.frontend.onnx.registry import Node, converts
from umakit.tvm_api import Call, Expr, relax, te

MODE_SINCE = 16
"""The opset that brought `coordinate_transformation_mode`, whose default differs from before."""


@converts(
    "RoiAlign",
    "coordinate_transformation_mode mode output_height output_width sampling_ratio spatial_scale",
)
def roi_align(node: Node) -> Expr:
    """RoiAlign (ONNX operator specification, opset 22).

    Constant regions give constant sample positions. Otherwise positions and weights are computed at
    run time, which requires a constant number of samples.
    """
    before = "output_half_pixel" if node.opset < MODE_SINCE else "half_pixel"
    transformation = node.attribute("coordinate_transformation_mode", before)
    mode, ratio = node.attribute("mode", "avg"), int(node.attribute("sampling_ratio", 0))
    data, rois = node.shape(0), node.shape(1)
    known = transformation in ("half_pixel", "output_half_pixel") and mode in ("avg", "max")
    fits = node.dtype(0) == "float32" and len(data) == 4 and rois[1:] == (4,)
    if not known or not fits or ratio < 0:
        raise node.refuse(
            f"has mode={mode}, coordinate_transformation_mode={transformation} and inputs "
            f"{node.dtype(0)}{list(data)} and {node.dtype(1)}{list(rois)}"
        )
    constant = node.constant(1)
    if constant is None and ratio == 0:
        raise node.refuse(
            "has sampling_ratio=0 and regions that are computed at run time, so that the number "
            "of samples is not known",
            "export the model with a sampling_ratio above 0",
        )
    offset = 0.5 if transformation == "half_pixel" else 0.0
    scale = float(node.attribute("spatial_scale", 1.0))
    sizes = [int(node.attribute(f"output_{side}", 1)) for side in ("height", "width")]
    operands = [node.inputs[0], _images(node, data[0])]
    if constant is not None:
        axes, factors = _known_samples(
            constant, scale, offset, sizes, ratio, data[2:], repeat=mode == "max"
        )
    else:
        axes = [
            _samples(node, corners, scale, offset, (size, ratio, extent))
            for corners, size, extent in zip(((1, 3), (0, 2)), sizes, data[2:], strict=True)
        ]
        factors = np.full(rois[0], 1 / ratio**2)
    if mode == "max":
        factors = np.ones_like(factors)
    for places, weights in axes:
        operands += [places, weights]
    operands.append(relax.const(factors.astype(np.float32)))
    return roi_pool(operands, maximum=mode == "max")


def _images(node: Node, count: int) -> Expr:
    constant = node.constant(2)
    if constant is None:
        images: Expr = node.inputs[2]
        return images  # generated C checks run-time indices
    if ((constant < 0) | (constant >= count)).any():
        raise node.refuse(f"has batch_indices outside of the {count} images")
    return relax.const(constant.astype(np.int32))


def _known_samples(
    rois: npt.NDArray[Any], scale: float, offset: float, sizes: list[int], ratio: int,
    extents: tuple[int, ...], *, repeat: bool,
) -> tuple[list[tuple[Any, Any]], npt.NDArray[np.float64]]:  # fmt: skip
    """Return sample positions and weights of constant regions along both axes, and factors of
    means.

    Regions with fewer samples are filled with samples of weight 0, or repeat their last sample.
    """
    f = np.float32
    corners = rois.astype(f) * f(scale) - f(offset)
    axes, counts = [], np.ones(len(rois))
    for first, size, extent in zip((1, 0), sizes, extents, strict=True):
        start, length = corners[:, first], corners[:, first + 2] - corners[:, first]
        if not offset:
            length = np.maximum(length, f(1))
        step = length / f(size)
        grid = np.full(len(rois), ratio) if ratio else np.maximum(np.ceil(step), 0).astype(int)
        counts *= grid
        samples = max(1, int(grid.max(initial=1)))
        bins = np.arange(size, dtype=f).reshape(1, -1, 1)
        numbers = np.arange(samples, dtype=f).reshape(1, 1, -1)
        most = np.maximum(grid, 1).astype(f)
        by_roi = [array.reshape(-1, 1, 1) for array in (start, step, most)]
        if repeat:
            numbers = np.minimum(numbers, by_roi[2] - 1)
        at = by_roi[0] + bins * by_roi[1] + (numbers + f(0.5)) * by_roi[1] / by_roi[2]
        axes.append(_neighbours(at, extent, numbers < grid.reshape(-1, 1, 1)))
    return axes, 1 / np.maximum(counts, 1)


def _neighbours(at: npt.NDArray[Any], extent: int, counted: npt.NDArray[Any]) -> tuple[Any, Any]:
    """Return both neighbours of each sample and their weights, 0 for samples outside."""
    inside = (at >= -1) & (at <= extent) & counted
    clipped = np.clip(np.where(inside, at, 0), 0, extent - 1).astype(np.float32)
    low = np.floor(clipped)
    places = np.stack([low, np.minimum(low + 1, extent - 1)], -1).astype(np.int32)
    rest = clipped - low
    weights = np.stack([1 - rest, rest], -1) * inside[..., None]
    return relax.const(places), relax.const(weights.astype(np.float32))


def _samples(
    node: Node, corners: tuple[int, int], scale: float, offset: float, sizes: tuple[int, int, int]
) -> tuple[Any, Any]:
    """Return sample positions and weights along one axis for regions computed at run time."""
    size, ratio, extent = sizes
    op, emit = relax.op, node.emit

    def number(value: npt.ArrayLike) -> Expr:
        return relax.const(np.asarray(value, np.float32))

    def column(position: int) -> Expr:
        part = emit(op.strided_slice(node.inputs[1], [1], [position], [position + 1]))
        scaled = emit(op.multiply(emit(op.reshape(part, (-1, 1, 1))), number(scale)))
        return emit(op.subtract(scaled, number(offset)))

    start = column(corners[0])
    length = emit(op.subtract(column(corners[1]), start))
    if not offset:
        length = emit(op.maximum(length, number(1)))
    step = emit(op.divide(length, number(size)))
    bins = np.arange(size, dtype=np.float32).reshape(1, -1, 1)
    parts = (np.arange(ratio, dtype=np.float32) + 0.5).reshape(1, 1, -1)
    first = emit(op.add(start, emit(op.multiply(step, number(bins)))))
    within = emit(op.divide(emit(op.multiply(step, number(parts))), number(ratio)))
    at = emit(op.add(first, within))
    inside = emit(op.logical_and(
        emit(op.greater_equal(at, number(-1))), emit(op.less_equal(at, number(extent)))
    ))  # fmt: skip
    # Coordinates outside of the axis, including NaN, have no position.
    safe = emit(op.where(inside, at, number(0)))
    clipped = emit(op.minimum(emit(op.maximum(safe, number(0))), number(extent - 1)))
    low = emit(op.floor(clipped))
    high = emit(op.minimum(emit(op.add(low, number(1))), number(extent - 1)))
    rest = emit(op.subtract(clipped, low))
    shape = (*(tvm_api.static_shape(low) or ()), 1)

    def pair(left: Expr, right: Expr) -> Expr:
        both = [emit(op.reshape(item, shape)) for item in (left, right)]
        return emit(op.concat(both, -1))

    places = emit(op.astype(pair(low, high), "int32"))
    weights = pair(emit(op.subtract(number(1), rest)), rest)
    mask = emit(op.reshape(emit(op.astype(inside, "float32")), shape))
    return places, emit(op.multiply(weights, mask))


# --- the operator -----------------------------------------------------------------------------

ROI_POOL = "roi_pool"
DESCRIPTION = """Means or maxima over samples of regions of images, with given places and weights.

roi_pool   (data [N, C, H, W], images [R] of integers, rows int32[R, P, G, 2], their weights
            [R, P, G, 2], columns int32[R, Q, K, 2], their weights [R, Q, K, 2], factors [R])
            -> [R, C, P, Q]

Each bin `(p, q)` of region `r` has `G` x `K` samples between two rows and two columns each. A mean
is the sum of weighted elements times `factors[r]`; a maximum is the largest weighted element, as in
ONNX's reference and ONNX Runtime.
"""


def roi_pool(operands: Sequence[Any], *, maximum: bool) -> Call:
    return tvm_api.operator_call(ROI_POOL, operands, {"maximum": int(maximum)})


def _infer(call: Call, builder: tvm_api.BlockBuilder) -> tvm_api.Type:
    data, _, rows, _, columns, _, _ = (tvm_api.static_shape(item) or () for item in call.args)
    shape = (rows[0], data[1], rows[1], columns[1])
    return tvm_api.tensor_type(shape, tvm_api.dtype_of(call.args[0]))


def _legalize(builder: tvm_api.BlockBuilder, call: Call) -> Expr:
    maximum = bool(int(call.attrs["maximum"]))
    return builder.call_te(_compute, *call.args, maximum=maximum, primfunc_name_hint=ROI_POOL)


def _compute(
    data: te.Tensor, images: te.Tensor, rows: te.Tensor, row_weights: te.Tensor,
    columns: te.Tensor, column_weights: te.Tensor,
    factors: te.Tensor, maximum: bool,
) -> te.Tensor:  # fmt: skip
    shape = [int(size) for size in (rows.shape[0], data.shape[1], rows.shape[1], columns.shape[1])]
    extents = (rows.shape[2], columns.shape[2], 2, 2)
    i, j, a, b = (te.reduce_axis((0, extent), f"sample{n}") for n, extent in enumerate(extents))

    def reduced(r: Expr, c: Expr, p: Expr, q: Expr) -> Expr:
        element = data[images[r], c, rows[r, p, i, a], columns[r, q, j, b]]
        weighted = row_weights[r, p, i, a] * column_weights[r, q, j, b] * element
        return (te.max if maximum else te.sum)(weighted, axis=[i, j, a, b])

    pooled = te.compute(shape, reduced, name=ROI_POOL)
    return te.compute(shape, lambda r, *at: pooled(r, *at) * factors[r], name="scaled")


tvm_api.register_operator(ROI_POOL, DESCRIPTION, _infer, _legalize)
