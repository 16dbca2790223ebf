# SPDX-License-Identifier: Apache-2.0
"""`quantized.global_avg_pool` (data [N, C, ...]): means of whole images.

The arithmetic is ONNX Runtime's `MlasQLinearGlobalAveragePoolNchw`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from umakit import tvm_api
from umakit.operators.drawings import reductions
from umakit.operators.interface import Interface, channels
from umakit.operators.islands import Island, arithmetic_of
from umakit.operators.kernels import loops as ir
from umakit.operators.numeric.fixed_point import Arithmetic, fixed_point
from umakit.operators.numeric.float32 import LARGEST_FACTOR
from umakit.operators.parameters import Parameters
from umakit.operators.registry import Order, Recognition, Shapes, register
from umakit.operators.tensors import NoIntegerForm
from umakit.tvm_api import PrimExpr, int32, tirx


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


def _derive(island: Island) -> tvm_api.Expr | None:
    result, source = island.result, island.operand()
    shape = tvm_api.static_shape(source.integers) or ()
    axes = sorted(int(axis) % len(shape) for axis in result.call.attrs.axis or range(len(shape)))
    arithmetic = arithmetic_of(source.scale, result.scale)
    whole = len(shape) >= 3 and axes == list(range(2, len(shape)))
    if not whole or arithmetic is not Arithmetic.ORT:
        return None
    count = math.prod(shape[2:])
    multiplier, shift = _multiplier(source.scale.scale, result.scale.scale, count)
    parameters = GlobalAveragePool(
        **result.common(Arithmetic.ORT),
        input_zero_point=source.scale.zero_point,
        multiplier=multiplier,
        shift=shift,
    )
    return parameters.call([source.integers], result.span)


def _multiplier(source: np.float32, result: np.float32, count: int) -> tuple[int, int]:
    """Return multiplier and shift of sums of `count` elements, for the scales of both sides."""
    factor = source / np.float32(result * np.float32(count))
    if not factor < LARGEST_FACTOR or count >= 2**23:
        raise NoIntegerForm("the result's scale is too small for the data's")
    scaled = fixed_point([float(factor)])
    return int(scaled.multipliers[0]), int(scaled.shifts[0])


def _kernel(parameters: GlobalAveragePool, shapes: Shapes, dtypes: list[str]) -> tvm_api.PrimFunc:
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
    kernel_of_operands=_kernel,
    recognitions=(Recognition(("mean",), _derive, (Arithmetic.ORT,), Order.SPECIAL),),
    drawing=reductions.mean_of_channels(
        GlobalAveragePool,
        lambda factor, count: _multiplier(np.float32(factor), np.float32(1), count),
    ),
    interface=Interface(sizes=channels),
)
