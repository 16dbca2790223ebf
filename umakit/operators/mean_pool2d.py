# SPDX-License-Identifier: Apache-2.0
"""`quantized.mean_pool2d` (data, multipliers int32[n], shifts int8[n]): average pools of ONNX.

There is one multiplier per number of elements of a window. ONNX Runtime computes averages in
float32; here the exact mean is rounded once, so results close to a tie may differ by one LSB.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from umakit.operators.derivation.windows import Window, on_images, pool_fields
from umakit.operators.drawings import spread
from umakit.operators.interface import Interface, image
from umakit.operators.islands import Island, arithmetic_of
from umakit.operators.kernels import loops as ir
from umakit.operators.kernels.pooling import WindowReduction, pool_kernel
from umakit.operators.multipliers import multiplier_of
from umakit.operators.numeric.fixed_point import Arithmetic, FixedPoint
from umakit.operators.parameters import Pool2d
from umakit.operators.registry import Recognition, Shapes, register
from umakit.operators.tensors import NoIntegerForm, Quantized
from umakit.tvm_api import Call, Expr, PrimExpr, PrimFunc, Stmt, int32, relax


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


def _derive(island: Island) -> Expr:
    return on_images(island, island.operand(), _pool)


def _pool(image: Island, source: Quantized) -> Call:
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


def _kernel(parameters: MeanPool2d, shapes: Shapes, dtypes: list[str]) -> PrimFunc:
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
    kernel_of_operands=_kernel,
    recognitions=(Recognition(("nn.avg_pool1d", "nn.avg_pool2d"), _derive, (Arithmetic.ORT,)),),
    drawing=spread.mean_pool(MeanPool2d),
    interface=Interface(
        operands={"data": "", "multipliers": "int32", "shifts": "int8"}, sizes=image
    ),
)
