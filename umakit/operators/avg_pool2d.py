# SPDX-License-Identifier: Apache-2.0
"""Average pools: `quantized.avg_pool2d` (data) in TensorFlow Lite Micro's arithmetic, and ONNX's.

`quantized.mean_pool2d` (data, multipliers int32[n], shifts int8[n]) has a multiplier per number of
elements of a window. ONNX Runtime computes averages in float32; here the exact mean is rounded
once, X
has the arithmetic of `MlasQLinearGlobalAveragePoolNchw`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from umakit import tvm_api
from umakit.operators.derivation.windows import (
    Window,
    on_images,
    pool_fields,
    same_padding,
    tflm_pool,
)
from umakit.operators.drawings import reductions, spread, windows
from umakit.operators.interface import Interface, channels, image
from umakit.operators.islands import Island, arithmetic_of
from umakit.operators.kernels import loops as ir
from umakit.operators.kernels.pooling import WindowReduction, pool_kernel, pool_of_operands
from umakit.operators.multipliers import multiplier_of
from umakit.operators.numeric.fixed_point import Arithmetic, FixedPoint, fixed_point
from umakit.operators.numeric.float32 import LARGEST_FACTOR
from umakit.operators.offload.composite import QPool2d
from umakit.operators.offload.pattern_families import PoolPattern
from umakit.operators.parameters import Parameters, Pool2d
from umakit.operators.registry import Order, Recognition, Shapes, register
from umakit.operators.tensors import NoIntegerForm, Quantized
from umakit.operators.tflite import PADDING_SAME, QUANTIZED, TfliteNode, check_steps, converts
from umakit.tvm_api import Call, Expr, PrimExpr, PrimFunc, Stmt, int32, relax, tirx


@dataclass(frozen=True)
class AveragePool2d(Pool2d):
    """The mean of each window, ties rounded away from zero."""

    operator: ClassVar[str] = "avg_pool2d"


def _derive(island: Island) -> Expr:
    attributes = island.call.attrs
    call = tflm_pool(AveragePool2d, island)
    if bool(getattr(attributes, "count_include_pad", False)) and any(Window.of(attributes).padding):
        raise NoIntegerForm("an average pool counts padding")
    return call


def _average(channels: int, count: Expr) -> WindowReduction:
    """Means of windows of `count` elements, ties away from zero."""
    accumulator = ir.accumulators(channels)
    half = tirx.truncdiv(count, int32(2))

    def finish(c: Expr, store: Callable[[Expr], Stmt]) -> Stmt:
        total = tirx.Var("total", "int32")
        away = tirx.Select(total > int32(0), total + half, total - half)
        return ir.sequence(
            tirx.Bind(total, int32(accumulator[c])), store(tirx.truncdiv(away, count))
        )

    def add(c: Expr, value: Expr) -> Stmt:
        return ir.add_element_to(accumulator, c, value)

    return WindowReduction(accumulator, lambda c: ir.set_to(accumulator, c, int32(0)), add, finish)


# --- offered to backends -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class QAveragePool2d(AveragePool2d, QPool2d):
    """The mean of each window, ties rounded away from zero."""


@dataclass(frozen=True, eq=False)
class qavg_pool2d(PoolPattern):
    """An integer average pool; the mean excludes padding, and ties are rounded away from zero."""

    KIND = QAveragePool2d
    OPERATOR = AveragePool2d

    name: str = "qavg_pool2d"


register(
    parameters=AveragePool2d,
    kernel_of_operands=pool_of_operands(_average),
    recognitions=(Recognition(("nn.avg_pool2d",), _derive, (Arithmetic.TFLM,)),),
    takes_clip=True,
    drawing=windows.pool(AveragePool2d),
    patterns=(qavg_pool2d,),
)


@converts("AVERAGE_POOL_2D", "float32", *QUANTIZED, same_scale=True)
def convert(node: TfliteNode) -> Expr:
    """AVERAGE_POOL_2D; integer data becomes an island, because TVM's converter truncates means."""
    options = node.options("Pool2DOptions")
    check_steps(options, "StrideH", "StrideW", "FilterHeight", "FilterWidth")
    if node.tensor(0).dtype == "float32":
        return node.imported()
    data = node.value(0)
    padding = [0, 0, 0, 0]
    extents = (tvm_api.static_shape(data) or ())[1:3]
    window = (options.FilterHeight(), options.FilterWidth())
    strides = (options.StrideH(), options.StrideW())
    if options.Padding() == PADDING_SAME:
        (top, bottom), (left, right) = (
            same_padding(*item) for item in zip(extents, window, strides, strict=True)
        )
        padding = [top, left, bottom, right]
    pooled = relax.op.nn.avg_pool2d(node.dequantized(0), window, strides, padding, layout="NHWC")
    return node.quantized(pooled, options.FusedActivationFunction())


@dataclass(frozen=True)
class MeanPool2d(Pool2d):
    """The mean of each window, at another scale than the data's.

    Attributes:
        input_zero_point: zero point of the data.
        counts_padding: whether the sum is divided by the size of the whole window instead of the
            number of its elements inside the image.
    """

    operator: ClassVar[str] = "mean_pool2d"

    input_zero_point: int
    counts_padding: int


def _derive_mean(island: Island) -> Expr:
    return on_images(island, island.operand(), _mean_of_image)


def _mean_of_image(image: Island, source: Quantized) -> Call:
    result = image.result
    window = Window.of(result.call.attrs)
    if window.dilation != (1, 1):
        raise NoIntegerForm("an average pool is dilated")
    arithmetic = arithmetic_of(source.scale, result.scale)
    most = math.prod(window.size)
    if source.scale.magnitude * most >= 2**31:
        raise NoIntegerForm(f"an average is over {most} elements")
    factor = float(source.scale.scale) / float(result.scale.scale)
    pairs = [
        multiplier_of(factor / count, source.scale.magnitude * most, arithmetic)
        for count in range(1, most + 1)
    ]
    scaled = FixedPoint(
        np.array([multiplier for multiplier, _ in pairs], np.int32),
        np.array([shift for _, shift in pairs], np.int8),
    )
    parameters = MeanPool2d(
        **result.common(arithmetic),
        **pool_fields(window, result, source.integers),
        input_zero_point=source.scale.zero_point,
        counts_padding=int(bool(result.call.attrs.count_include_pad)),
    )
    if parameters.counts_padding:
        scaled = FixedPoint(scaled.multipliers[-1:], scaled.shifts[-1:])
    constants = [relax.const(scaled.multipliers), relax.const(scaled.shifts)]
    return parameters.call([source.integers, *constants], result.span)


def _mean_kernel(parameters: MeanPool2d, shapes: Shapes, dtypes: list[str]) -> PrimFunc:
    """Return the kernel (data, multipliers, shifts, output) of a mean with a new scale."""
    by = ir.buffers(("multipliers", "shifts"), shapes[1:], dtypes[1:])
    output = ir.buffer("output", parameters.output_shape, parameters.output_dtype)

    def mean(channels: int, _: PrimExpr) -> WindowReduction:
        total = ir.accumulators(channels)
        return WindowReduction(
            total,
            lambda c: ir.set_to(total, c, int32(0)),
            lambda c, value: ir.add_element_to(
                total, c, value - int32(parameters.input_zero_point)
            ),
            lambda c, store: store(int32(total[c])),
        )

    def store(at: list[PrimExpr], value: PrimExpr, elements: PrimExpr) -> Stmt:
        index = int32(0) if parameters.counts_padding else elements - int32(1)
        return ir.store_rescaled(output, at, value, (by[0][index], by[1][index]), parameters)

    return pool_kernel(parameters, shapes[0], dtypes[0], [*by, output], mean, store)


register(
    parameters=MeanPool2d,
    kernel_of_operands=_mean_kernel,
    recognitions=(
        Recognition(("nn.avg_pool1d", "nn.avg_pool2d"), _derive_mean, (Arithmetic.ORT,)),
    ),
    drawing=spread.mean_pool(MeanPool2d),
    interface=Interface(
        operands={"data": "", "multipliers": "int32", "shifts": "int8"}, sizes=image
    ),
)


@dataclass(frozen=True)
class GlobalAveragePool(Parameters):
    """The mean of each channel.

    Attributes:
        input_zero_point: zero point of the data.
        multiplier, shift: multiplier and shift of the accumulators.
    """

    operator: ClassVar[str] = "global_avg_pool"

    input_zero_point: int
    multiplier: int
    shift: int


def _derive_global(island: Island) -> tvm_api.Expr | None:
    result, source = island.result, island.operand()
    shape = tvm_api.static_shape(source.integers) or ()
    axes = sorted(int(axis) % len(shape) for axis in result.call.attrs.axis or range(len(shape)))
    arithmetic = arithmetic_of(source.scale, result.scale)
    whole = len(shape) >= 3 and axes == list(range(2, len(shape)))
    if not whole or arithmetic is not Arithmetic.ORT:
        return None
    count = math.prod(shape[2:])
    multiplier, shift = _global_multiplier(source.scale.scale, result.scale.scale, count)
    parameters = GlobalAveragePool(
        **result.common(Arithmetic.ORT),
        input_zero_point=source.scale.zero_point,
        multiplier=multiplier,
        shift=shift,
    )
    return parameters.call([source.integers], result.span)


def _global_multiplier(source: np.float32, result: np.float32, count: int) -> tuple[int, int]:
    """Return multiplier and shift of sums of `count` elements, for the scales of both sides."""
    factor = source / np.float32(result * np.float32(count))
    if not factor < LARGEST_FACTOR or count >= 2**23:
        raise NoIntegerForm("the result's scale is too small for the data's")
    scaled = fixed_point([float(factor)])
    return int(scaled.multipliers[0]), int(scaled.shifts[0])


def _global_kernel(
    parameters: GlobalAveragePool, shapes: Shapes, dtypes: list[str]
) -> tvm_api.PrimFunc:
    """Return the kernel (data [N, C, ...], output)."""
    (shape,) = shapes
    data = ir.buffer("data", shape, dtypes[0])
    output = ir.buffer("output", parameters.output_shape, parameters.output_dtype)
    count = math.prod(shape[2:])
    total, zero = ir.accumulators(1), int32(0)
    factor = (int32(parameters.multiplier), int32(parameters.shift))

    def one(channel: PrimExpr) -> tvm_api.Stmt:
        def element(i: PrimExpr) -> PrimExpr:
            value = int32(data[tuple(ir.unflatten(channel * int32(count) + i, shape))])
            return value - int32(parameters.input_zero_point)

        return ir.sequence(
            tirx.AllocBuffer(total),
            ir.set_to(total, zero, zero),
            ir.loop("i", count, lambda i: ir.add_element_to(total, zero, element(i))),
            ir.store_rescaled(
                output, ir.unflatten(channel, parameters.output_shape), int32(total[zero]),
                factor, parameters,
            ),
        )  # fmt: skip

    return ir.kernel([data, output], ir.loop("channel", math.prod(shape[:2]), one))


register(
    parameters=GlobalAveragePool,
    kernel_of_operands=_global_kernel,
    recognitions=(Recognition(("mean",), _derive_global, (Arithmetic.ORT,), Order.SPECIAL),),
    drawing=reductions.mean_of_channels(
        GlobalAveragePool,
        lambda factor, count: _global_multiplier(np.float32(factor), np.float32(1), count),
    ),
    interface=Interface(sizes=channels),
)
