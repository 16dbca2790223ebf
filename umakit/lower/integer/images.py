# SPDX-License-Identifier: Apache-2.0
"""Kernels of bilinear resizing, and of the place of an extreme element."""

from __future__ import annotations

import math
from typing import Any

from umakit import tvm_api
from umakit.operators.kernels.loops import (
    buffer,
    int32,
    kernel,
    loop,
    loops,
    sequence,
    set_to,
    store_clipped,
    unflatten,
)
from umakit.quantization.further_operators import ArgMax, ArgMin, ResizeBilinear
from umakit.quantization.resizing import BITS, scale_of_axis

tirx = tvm_api.tirx
Shapes = list[tuple[int, ...]]
ONE = 1 << BITS


def resize_bilinear(known: ResizeBilinear, shapes: Shapes, dtypes: list[str]) -> Any:
    """Kernel (data, output); the arithmetic is that of `ResizeBilinearInteger`.

    Args:
        known: parameters of the operator.
        shapes, dtypes: of the data [N, H, W, C].
    """
    batch, height, width, channels = shapes[0]
    _, rows, columns, _ = known.output_shape
    data = buffer("data", shapes[0], dtypes[0])
    output = buffer("output", known.output_shape, known.output_dtype)

    def one_position(n: Any, y: Any, x: Any) -> Any:
        down, vertical = _neighbours(known, y, (height, rows), "y")
        across, horizontal = _neighbours(known, x, (width, columns), "x")

        def one(c: Any) -> Any:
            corners = [
                int32(data[n, iy, ix, c]) * by * bx for iy, by in vertical for ix, bx in horizontal
            ]
            total = tirx.Var("total", "int32")
            half = int32(1 << (2 * BITS - 1))
            rounded = tirx.Select(total > int32(0), total + half, total - half)
            value = tirx.truncdiv(rounded, int32(1 << (2 * BITS)))
            return sequence(
                tirx.Bind(total, corners[0] + corners[1] + corners[2] + corners[3]),
                store_clipped(output, [n, y, x, c], value, known),
            )

        return sequence(*down, *across, loop("c", channels, one))

    extents = [("n", batch), ("y", rows), ("x", columns)]
    return kernel([data, output], loops(extents, one_position))


def _neighbours(
    known: ResizeBilinear, place: Any, sizes: tuple[int, int], name: str
) -> tuple[list[Any], list[tuple[Any, Any]]]:
    """Statements, and the two neighbours of a place with their weights.

    Args:
        known: parameters of the operator.
        place: in the result.
        sizes: of the operand's and the result's axis.
        name: of the axis.
    """
    size, result = sizes
    scale = scale_of_axis(size, result, align=bool(known.align_corners))
    offset = scale // 2 - ONE // 2 if known.half_pixel_centers else 0
    position, lower, upper, weight = (
        tirx.Var(f"{name}_{part}", "int32") for part in ("position", "lower", "upper", "weight")
    )
    steps = [
        tirx.Bind(position, place * int32(scale) + int32(offset)),
        tirx.Bind(lower, tirx.max(tirx.truncdiv(position, int32(ONE)), int32(0))),
        tirx.Bind(upper, tirx.min(
            tirx.truncdiv(position + int32(ONE - 1), int32(ONE)), int32(size - 1)
        )),
        tirx.Bind(weight, position - lower * int32(ONE)),
    ]  # fmt: skip
    return steps, [(lower, int32(ONE) - weight), (upper, weight)]


def arg_max(known: ArgMax, shapes: Shapes, dtypes: list[str]) -> Any:
    """Kernel (data, output) of the place of the largest or least element along an axis.

    Args:
        known: parameters of the operator.
        shapes, dtypes: of the data.
    """
    shape, zero = shapes[0], int32(0)
    data = buffer("data", shape, dtypes[0])
    output = buffer("output", known.output_shape, known.output_dtype)
    outer, extent = shape[: known.axis], shape[known.axis]
    inner = shape[known.axis + 1 :]
    best, place = (
        tirx.decl_buffer([1], "int32", name, scope="local") for name in ("best", "place")
    )

    def one(i: Any, j: Any) -> Any:
        def element(k: Any) -> Any:
            return int32(data[(*unflatten(i, outer), k, *unflatten(j, inner))])

        def compare(k: Any) -> Any:
            value = tirx.Var("value", "int32")
            worse = value < best[zero]
            better = worse if isinstance(known, ArgMin) else value > best[zero]
            return sequence(
                tirx.Bind(value, element(k)),
                tirx.IfThenElse(
                    better, sequence(set_to(best, zero, value), set_to(place, zero, k)), None
                ),
            )

        flat = i * int32(math.prod(inner)) + j
        return sequence(
            tirx.AllocBuffer(best),
            tirx.AllocBuffer(place),
            set_to(best, zero, element(zero)),
            set_to(place, zero, zero),
            loop("k", extent, compare),
            tirx.BufferStore(
                output, place[zero].astype(known.output_dtype), unflatten(flat, known.output_shape)
            ),
        )

    extents = [("i", math.prod(outer)), ("j", math.prod(inner))]
    return kernel([data, output], loops(extents, one))
