# SPDX-License-Identifier: Apache-2.0
"""`quantized.avg_pool2d` (data): average pools with TensorFlow Lite Micro's arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from umakit import tvm_api
from umakit.operators.derivation.windows import Window, same_padding, tflm_pool
from umakit.operators.drawings import windows
from umakit.operators.islands import Island
from umakit.operators.kernels.loops import accumulators, add_element_to, sequence, set_to
from umakit.operators.kernels.pooling import WindowReduction, pool_of_operands
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.offload.composite import QPool2d
from umakit.operators.offload.pattern_families import PoolPattern
from umakit.operators.parameters import Pool2d
from umakit.operators.registry import Recognition, register
from umakit.operators.tensors import NoIntegerForm
from umakit.operators.tflite import PADDING_SAME, QUANTIZED, TfliteNode, check_steps, converts
from umakit.tvm_api import Expr, Stmt, int32, relax, tirx


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
    accumulator = accumulators(channels)
    half = tirx.truncdiv(count, int32(2))

    def finish(c: Expr, store: Callable[[Expr], Stmt]) -> Stmt:
        total = tirx.Var("total", "int32")
        away = tirx.Select(total > int32(0), total + half, total - half)
        return sequence(tirx.Bind(total, int32(accumulator[c])), store(tirx.truncdiv(away, count)))

    def add(c: Expr, value: Expr) -> Stmt:
        return add_element_to(accumulator, c, value)

    return WindowReduction(accumulator, lambda c: set_to(accumulator, c, int32(0)), add, finish)


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
