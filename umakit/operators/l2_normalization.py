# SPDX-License-Identifier: Apache-2.0
"""`quantized.l2_normalization` (data [..., n]), and L2_NORMALIZATION of TensorFlow Lite.

The source is integer_ops/l2normalization.h of TensorFlow Lite's reference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.drawing import NotDrawable, Random, Settings, Tensor
from umakit.operators.drawings.families import Fields, MadeOfOne, elements
from umakit.operators.interface import Interface, rows
from umakit.operators.kernels import loops as ir
from umakit.operators.numeric.inverse_square_root import LARGEST, in_fixed_point
from umakit.operators.parameters import Parameters
from umakit.operators.registry import Shapes, register
from umakit.operators.tflite import TfliteNode, converts, float32
from umakit.operators.tflite_integers import result_fields, scale_of
from umakit.tvm_api import PrimExpr, int32

relax, tirx = tvm_api.relax, tvm_api.tirx

SMALLEST_NORM = 1e-6
RESULT_BITS = 7
"""Fractional bits of the result, whose scale is 1/128."""


@dataclass(frozen=True)
class L2Normalization(Parameters):
    """Rows along the last axis, divided by their Euclidean norm.

    Attributes:
        input_zero_point: zero point of the data.
    """

    operator: ClassVar[str] = "l2_normalization"

    input_zero_point: int


@converts("L2_NORMALIZATION", "float32", "int8")
def convert(node: TfliteNode) -> tvm_api.Expr:
    """L2_NORMALIZATION: float32 with a minimum norm of 1e-6, int8 in fixed point."""
    if node.options("L2NormOptions").FusedActivationFunction():
        raise ModelError("it has a fused activation")
    value = node.value(0)
    shape = node.shape(0)
    if node.tensor(0).dtype == "float32":
        squares = node.emit(relax.op.square(value))
        norm = node.emit(relax.op.sqrt(node.emit(relax.op.sum(squares, [-1], keepdims=True))))
        return relax.op.divide(value, node.emit(relax.op.maximum(norm, float32(SMALLEST_NORM))))
    source, result = map(scale_of, (node.tensor(0), node.result))
    if (float(result.scale), result.zero_point) != (2.0**-RESULT_BITS, 0):
        raise ModelError("its result has another scale than 1/128 or another zero point than 0")
    if shape[-1] * source.magnitude**2 > LARGEST:
        raise ModelError(f"it normalizes {shape[-1]} elements; their squares need too many bits")
    parameters = L2Normalization(**result_fields(node), input_zero_point=source.zero_point)
    return parameters.call([value], None)


def _kernel(parameters: L2Normalization, shapes: Shapes, dtypes: list[str]) -> tvm_api.PrimFunc:
    *outer, length = shapes[0]
    data = ir.buffer("data", shapes[0], dtypes[0])
    output = ir.buffer("output", parameters.output_shape, parameters.output_dtype)
    total, zero = ir.accumulators(1), int32(0)

    def row(number: PrimExpr) -> tvm_api.Stmt:
        def place(i: PrimExpr) -> list[PrimExpr]:
            return [*ir.unflatten(number, outer), i]

        def element(i: PrimExpr) -> PrimExpr:
            return int32(data[tuple(place(i))]) - int32(parameters.input_zero_point)

        statements, multiplier, shift = in_fixed_point(ir.total_of(total, zero))
        factor = (multiplier, shift + int32(RESULT_BITS))

        def add(i: PrimExpr) -> tvm_api.Stmt:
            value = tirx.Var("value", "int32")
            return ir.sequence(tirx.Bind(value, element(i)), ir.add_to(total, zero, value * value))

        return ir.sequence(
            tirx.AllocBuffer(total),
            ir.set_to(total, zero, zero),
            ir.loop("i", length, add),
            *statements,
            ir.loop("i", length, lambda i: ir.store_rescaled(
                output, place(i), element(i), factor, parameters
            )),
        )  # fmt: skip

    return ir.kernel([data, output], ir.loop("row", math.prod(outer), row))


def _drawn(common: Fields, data: Tensor, settings: Settings, random: Random) -> MadeOfOne:
    magnitude = max(127 - data.zero_point, data.zero_point + 128)
    if data.shape[-1] * magnitude**2 > LARGEST:
        raise NotDrawable("squares need too many bits")
    return L2Normalization(**common, input_zero_point=data.zero_point), []


register(
    parameters=L2Normalization,
    kernel_of_operands=_kernel,
    drawing=elements(
        _drawn, result=lambda data, zero_point: 0, dtype=("int8",), rounding=("tflm",)
    ),
    interface=Interface(sizes=rows),
)
