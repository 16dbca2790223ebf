# SPDX-License-Identifier: Apache-2.0
"""`quantized.squared_difference` (left, right), and SQUARED_DIFFERENCE of TensorFlow Lite.

The source is TensorFlow Lite Micro's squared_difference.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.drawings import pairs
from umakit.operators.interface import PAIR, TFLM, Interface
from umakit.operators.kernels.elementwise import binary_kernel, on_common_scale
from umakit.operators.numeric.fixed_point import quantize_multiplier
from umakit.operators.parameters import CommonScaleParameters
from umakit.operators.registry import Shapes, register
from umakit.operators.tflite import TfliteNode, converts
from umakit.operators.tflite_integers import result_fields, scale_of, smaller_than_one

relax, tirx = tvm_api.relax, tvm_api.tirx

LEFT_SHIFTS = {"int8": 7, "int16": 0}
"""Bits that integers are shifted before they get a common scale."""

MOST_BITS = 30
"""Maximum number of bits of a squared difference on the common scale."""


@dataclass(frozen=True)
class SquaredDifference(CommonScaleParameters):
    """The squared difference of two tensors whose shapes broadcast."""

    operator: ClassVar[str] = "squared_difference"


@converts("SQUARED_DIFFERENCE", "float32", "int8", "int16", "int32", same_dtype=True)
def convert(node: TfliteNode) -> tvm_api.Expr:
    """SQUARED_DIFFERENCE: float32 and int32 directly, quantized integers in fixed point."""
    values = node.values()
    dtype = node.tensor(0).dtype
    if dtype not in LEFT_SHIFTS:
        difference = node.emit(relax.op.subtract(*values))
        return relax.op.multiply(difference, difference)
    left, right = map(scale_of, node.tensors)
    result = scale_of(node.result)
    twice, left_shift = 2.0 * float(max(left.scale, right.scale)), LEFT_SHIFTS[dtype]
    divisor = float(np.float32(1 << (2 * left_shift)) * np.float32(result.scale))
    factors = [
        *(smaller_than_one(float(item.scale) / twice, "a ratio of scales")
          for item in (left, right)),
        quantize_multiplier(twice * twice / divisor),
    ]  # fmt: skip
    if factors[2][1] + MOST_BITS > MOST_BITS:
        raise ModelError("the result's scale is too small for the operands'")
    parameters = SquaredDifference(
        **result_fields(node),
        zero_points=(left.zero_point, right.zero_point),
        multipliers=(factors[0][0], factors[1][0], factors[2][0]),
        shifts=(factors[0][1], factors[1][1], factors[2][1]),
        left_shift=left_shift,
    )
    return parameters.call(values, None)


def _kernel(parameters: SquaredDifference, shapes: Shapes, dtypes: list[str]) -> tvm_api.PrimFunc:

    def combine(*elements: tvm_api.PrimExpr) -> tuple[list[tvm_api.Stmt], tvm_api.PrimExpr]:
        statements, (left, right) = on_common_scale(parameters, *elements)
        difference = tirx.Var("difference", "int32")
        return [*statements, tirx.Bind(difference, left - right)], difference * difference

    factor = (parameters.multipliers[2], parameters.shifts[2])
    return binary_kernel(parameters, shapes, dtypes, combine, factor)


register(
    parameters=SquaredDifference,
    kernel_of_operands=_kernel,
    drawing=pairs.squares(SquaredDifference, LEFT_SHIFTS),
    interface=Interface(
        operands=PAIR,
        names={
            "multipliers": ("left_multiplier", "right_multiplier", "multiplier"),
            "shifts": ("left_multiplier_shift", "right_multiplier_shift", "shift"),
        },
        rounding=TFLM,
        broadcasts=False,
    ),
)
