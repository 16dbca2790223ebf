# SPDX-License-Identifier: Apache-2.0
"""Upsample and `interpolate`: tables of places and weights along each axis.

The coordinate formulas follow `aten/src/ATen/native/UpSample.h` and
`aten/src/ATen/native/cpu/UpSampleKernel.cpp` of PyTorch, in float32; processors with fused
multiply-add round once. Torch itself computes the nearest neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from umakit.floats.resampling import (
    Table,
    antialiased_table,
    cubic_table,
    linear_table,
    nearest_table,
    resampled,
)
from umakit.frontend.torch.registry import Arguments, Expr, Graph, Node, converts

CUBIC = -0.75
"""Coefficient of the cubic kernel."""
ANTIALIASED_CUBIC = -0.5
"""The same with `antialias=True`."""

SIZES = "input self output_size scale_factors scales scales_d scales_h scales_w"
FLOATS = ("float32", "float64")


def _names(*stems: str) -> str:
    return " ".join(f"{stem}.{overload}" for stem in stems for overload in ("vec", "default"))


def _axes(graph: Graph, node: Node, given: Arguments) -> list[tuple[int, int, int, float | None]]:
    """Return (axis, operand size, result size, scale or None) of each spatial axis."""
    sizes = graph.type_of(_source(given))[0]
    results = graph.type_of(node)[0]
    rank = len(sizes) - 2
    scales = given.get("scale_factors")
    if scales is None:
        names = ("scales",) if rank == 1 else [f"scales_{axis}" for axis in "dhw"[3 - rank :]]
        scales = [given.get(name) for name in names]
    return [
        (axis, sizes[axis], results[axis], scale)
        for axis, scale in zip(range(2, rank + 2), scales, strict=True)
    ]


def _source(given: Arguments) -> Node:
    return given["input"] if "input" in given else given["self"]


def _resampled(graph: Graph, given: Arguments, tables: Sequence[Table]) -> Expr:
    return resampled(graph.block_builder, graph.value(_source(given)), tables)


@converts(
    _names(
        *(f"upsample_nearest{rank}d" for rank in (1, 2, 3)),
        *(f"_upsample_nearest_exact{rank}d" for rank in (1, 2, 3)),
    ),
    SIZES,
    decomposed=False,
)
def _nearest(graph: Graph, node: Node, given: Arguments) -> Expr:
    """Nearest neighbours, which torch's own operator finds by resizing the element numbers."""
    axes = _axes(graph, node, given)
    operator = getattr(torch.ops.aten, str(node.target.__name__).partition(".")[0]).default
    tables = []
    for place, (axis, size, result, scale) in enumerate(axes):
        shape, sizes = [1] * (len(axes) + 2), [1] * len(axes)
        scales: list[float | None] = [None] * len(axes)
        shape[axis], sizes[place], scales[place] = size, result, scale
        numbers = torch.arange(size, dtype=torch.float32).reshape(shape)
        places = operator(numbers, sizes, *scales).reshape(-1).numpy()
        tables.append(nearest_table(axis, places.astype(int)))
    return _resampled(graph, given, tables)


def _step(size: int, result: int, scale: float | None, aligned: bool) -> np.float32:
    if aligned:
        return np.float32(size - 1) / np.float32(result - 1) if result > 1 else np.float32(0)
    return np.float32(1 / scale) if scale else np.float32(size) / np.float32(result)


def _coordinates(
    size: int, result: int, scale: float | None, aligned: bool
) -> npt.NDArray[np.float32]:
    """Return the operand coordinates of the result's elements, float32[result]."""
    step, numbers = np.float64(_step(size, result, scale, aligned)), np.arange(result)
    exact = numbers * step if aligned else (numbers + 0.5) * step - 0.5
    return exact.astype(np.float32)


@converts(
    _names("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"),
    f"{SIZES} align_corners",
    decomposed=False,
)
def _linear(graph: Graph, node: Node, given: Arguments) -> Expr:
    _check_floats(graph, node, given)
    tables = []
    for axis, size, result, scale in _axes(graph, node, given):
        x = _coordinates(size, result, scale, given["align_corners"])
        # An axis of the same size is copied, whatever the scale.
        x = np.arange(size, dtype=np.float32) if size == result else x
        tables.append(linear_table(axis, size, np.clip(x, 0, size - 1)))
    return _resampled(graph, given, tables)


@converts(_names("upsample_bicubic2d"), f"{SIZES} align_corners", decomposed=False)
def _cubic(graph: Graph, node: Node, given: Arguments) -> Expr:
    _check_floats(graph, node, given)
    tables = [
        cubic_table(axis, size, _coordinates(size, result, scale, given["align_corners"]), CUBIC)
        for axis, size, result, scale in _axes(graph, node, given)
    ]
    return _resampled(graph, given, tables)


@converts(_names("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"), f"{SIZES} align_corners")
def _antialiased(graph: Graph, node: Node, given: Arguments) -> Expr:
    """Antialiased: downscaling widens the kernel, and outside elements do not count."""
    _check_floats(graph, node, given)
    if graph.type_of(node)[0][-1] == 1:
        raise graph.refuse(
            node,
            "has a result of width 1, whose values in torch depend on the memory format",
            "interpolate without antialias, or take a mean over the width",
        )
    a = ANTIALIASED_CUBIC if "bicubic" in node.target.__name__ else None
    tables = []
    for axis, size, result, scale in _axes(graph, node, given):
        if size == result:
            continue
        step = _step(size, result, scale, given["align_corners"])
        centres = ((np.arange(result) + 0.5) * np.float64(step)).astype(np.float32)
        x = centres.astype(np.float64) - 0.5
        stretch = min(1 / max(float(step), 1e-9), 1.0)
        tables.append(antialiased_table(axis, size, x, stretch, a, exclude_outside=True))
    return _resampled(graph, given, tables)


def _check_floats(graph: Graph, node: Node, given: Arguments) -> None:
    dtype = graph.type_of(_source(given))[1]
    if dtype not in FLOATS:
        raise graph.refuse(
            node,
            f"interpolates {dtype}, whose rounding depends on the processor",
            "cast to float32 before it, or use mode='nearest'",
        )
