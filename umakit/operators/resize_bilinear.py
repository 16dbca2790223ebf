# SPDX-License-Identifier: Apache-2.0
"""`quantized.resize_bilinear` (data [N, H, W, C]): another height and width.

Positions are in fixed point, as in TensorFlow Lite's `ResizeBilinearInteger`; see also
`resize_bilinear.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.drawings import spread
from umakit.operators.interface import Interface, image
from umakit.operators.islands import Island
from umakit.operators.kernels.loops import buffer, kernel, loop, loops, sequence, store_clipped
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.parameters import Parameters
from umakit.operators.registry import Recognition, Shapes, register
from umakit.operators.tensors import NoIntegerForm
from umakit.operators.tflite import TfliteNode, converts
from umakit.tvm_api import Expr, PrimExpr, Stmt, int32, tirx

RESIZE_BITS = 10
"""Fractional bits of positions and weights."""

ONE = 1 << RESIZE_BITS


MODES = {"asymmetric": (0, 0), "half_pixel": (0, 1), "align_corners": (1, 0)}
"""(aligned corners, half-pixel centers) of TVM's coordinate transformations."""


@dataclass(frozen=True)
class ResizeBilinear(Parameters):
    """Another height and width; results lie between four neighbours, in multiples of 1/1024.

    Attributes:
        align_corners, half_pixel_centers: 0 or 1, the options of TensorFlow.
    """

    operator: ClassVar[str] = "resize_bilinear"

    align_corners: int
    half_pixel_centers: int


def _derive(island: Island) -> Expr:
    result, source = island.result, island.operand()
    attributes = result.call.attrs
    mode = str(attributes.coordinate_transformation_mode)
    if str(attributes.method) != "linear" or mode not in MODES:
        raise NoIntegerForm(f"there is no integer form of a {attributes.method} resizing, {mode}")
    if source.scale != result.scale or source.scale.dtype != "int8":
        raise NoIntegerForm("an image of int8 keeps its scale")
    align, half_pixel = MODES[mode]
    shape = tvm_api.static_shape(source.integers) or ()
    for size, extent in zip(shape[1:3], result.shape[1:3], strict=True):
        if _leaves_the_image(size, extent, align=bool(align), half_pixel=bool(half_pixel)):
            raise NoIntegerForm(f"positions of {extent} elements are too coarse for {size}")
    parameters = ResizeBilinear(
        **result.common(island.arithmetic), align_corners=align, half_pixel_centers=half_pixel
    )
    return parameters.call([source.integers], result.span)


def _scale_of_axis(size: int, result: int, *, align: bool) -> int:
    """Distance of positions in the operand, with 10 fractional bits.

    Args:
        align: whether corners are aligned.
    """
    if align and result > 1:
        size, result = size - 1, result - 1
    return ((size << RESIZE_BITS) + result // 2) // result


def _leaves_the_image(size: int, result: int, *, align: bool, half_pixel: bool) -> bool:
    """Whether rounded positions reach behind the operand's last element.

    Args:
        align: whether corners are aligned.
        half_pixel: whether positions are the centers of pixels.
    """
    scale = _scale_of_axis(size, result, align=align)
    last = (result - 1) * scale + (scale // 2 - (1 << RESIZE_BITS - 1) if half_pixel else 0)
    return last >> RESIZE_BITS >= size or result * scale >= 2**31


def _kernel(parameters: ResizeBilinear, shapes: Shapes, dtypes: list[str]) -> tvm_api.PrimFunc:
    """Return the kernel (data, output), with the arithmetic of `ResizeBilinearInteger`."""
    batch, height, width, channels = shapes[0]
    _, rows, columns, _ = parameters.output_shape
    data = buffer("data", shapes[0], dtypes[0])
    output = buffer("output", parameters.output_shape, parameters.output_dtype)

    def one_position(n: PrimExpr, y: PrimExpr, x: PrimExpr) -> Stmt:
        down, vertical = _neighbours(parameters, y, (height, rows), "y")
        across, horizontal = _neighbours(parameters, x, (width, columns), "x")

        def one(c: PrimExpr) -> Stmt:
            corners = [
                int32(data[n, iy, ix, c]) * by * bx for iy, by in vertical for ix, bx in horizontal
            ]
            total = tirx.Var("total", "int32")
            half = int32(1 << (2 * RESIZE_BITS - 1))
            rounded = tirx.Select(total > int32(0), total + half, total - half)
            value = tirx.truncdiv(rounded, int32(1 << (2 * RESIZE_BITS)))
            return sequence(
                tirx.Bind(total, corners[0] + corners[1] + corners[2] + corners[3]),
                store_clipped(output, [n, y, x, c], value, parameters),
            )

        return sequence(*down, *across, loop("c", channels, one))

    extents = [("n", batch), ("y", rows), ("x", columns)]
    return kernel([data, output], loops(extents, one_position))


def _neighbours(
    parameters: ResizeBilinear, place: PrimExpr, sizes: tuple[int, int], name: str
) -> tuple[list[Stmt], list[tuple[PrimExpr, PrimExpr]]]:
    """Return statements, and the two neighbours of a place with their weights."""
    size, result = sizes
    scale = _scale_of_axis(size, result, align=bool(parameters.align_corners))
    offset = scale // 2 - ONE // 2 if parameters.half_pixel_centers else 0
    position, lower, upper, weight = (
        tirx.Var(f"{name}_{part}", "int32") for part in ("position", "lower", "upper", "weight")
    )
    steps: list[Stmt] = [
        tirx.Bind(position, place * int32(scale) + int32(offset)),
        tirx.Bind(lower, tirx.max(tirx.truncdiv(position, int32(ONE)), int32(0))),
        tirx.Bind(upper, tirx.min(
            tirx.truncdiv(position + int32(ONE - 1), int32(ONE)), int32(size - 1)
        )),
        tirx.Bind(weight, position - lower * int32(ONE)),
    ]  # fmt: skip
    return steps, [(lower, int32(ONE) - weight), (upper, weight)]


@converts("RESIZE_BILINEAR", "float32", "int8")
def convert(node: TfliteNode) -> Expr:
    """RESIZE_BILINEAR of TensorFlow Lite."""
    options = node.options("ResizeBilinearOptions")
    source, result = node.shape(0), node.result.shape
    size = node.integers(1)
    if len(source) != 4 or list(result[1:3]) != size:
        raise ModelError(f"its result has the shape {list(result)}")
    if options.AlignCorners() and options.HalfPixelCenters():
        raise ModelError("it aligns corners and has half-pixel centers")
    mode = "align_corners" if options.AlignCorners() else "asymmetric"
    if options.HalfPixelCenters():
        mode = "half_pixel"

    def function(data: Expr) -> Expr:
        return tvm_api.relax.op.image.resize2d(
            data, tuple(size), layout="NHWC", method="linear", coordinate_transformation_mode=mode
        )

    return node.island(function)


register(
    parameters=ResizeBilinear,
    kernel_of_operands=_kernel,
    recognitions=(Recognition(("image.resize2d",), _derive, (Arithmetic.TFLM,)),),
    takes_clip=True,
    drawing=spread.resized(ResizeBilinear, MODES, _leaves_the_image),
    interface=Interface(sizes=image),
)
