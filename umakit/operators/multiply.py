# SPDX-License-Identifier: Apache-2.0
"""`quantized.multiply` (left, right), of shapes that broadcast.

The formulas are from TensorFlow Lite Micro's `mul_common.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from umakit.operators.drawings import pairs
from umakit.operators.islands import Island
from umakit.operators.kernels.elementwise import binary_kernel
from umakit.operators.multipliers import check_headroom, fixed_points
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.offload.composite import Binary
from umakit.operators.offload.pattern_families import ElementwisePattern
from umakit.operators.parameters import Pair, Parameters
from umakit.operators.registry import Recognition, Shapes, register
from umakit.operators.tflite import QUANTIZED, WHOLE, converts, imported
from umakit.tvm_api import Expr, PrimFunc, Stmt, int32


@dataclass(frozen=True)
class Multiply(Parameters):
    """The product of two tensors.

    Attributes:
        zero_points: zero points of the operands.
        multiplier, shift: multiplier and shift of the result.
    """

    operator: ClassVar[str] = "multiply"

    zero_points: Pair
    multiplier: int
    shift: int


def _derive(island: Island) -> Expr:
    result, operands = island.result, island.operands()
    left, right = (operand.scale for operand in operands)
    factor = fixed_points([float(left.scale) * float(right.scale) / float(result.scale.scale)])
    check_headroom(left.magnitude * right.magnitude, int(factor.shifts[0]), island.arithmetic)
    parameters = Multiply(
        **result.common(island.arithmetic),
        zero_points=(left.zero_point, right.zero_point),
        multiplier=int(factor.multipliers[0]),
        shift=int(factor.shifts[0]),
    )
    return parameters.call([operand.integers for operand in operands], result.span)


def _kernel(parameters: Multiply, shapes: Shapes, dtypes: list[str]) -> PrimFunc:
    left_zero, right_zero = parameters.zero_points

    def combine(left: Expr, right: Expr) -> tuple[list[Stmt], Expr]:
        return [], (int32(left) - int32(left_zero)) * (int32(right) - int32(right_zero))

    return binary_kernel(
        parameters, shapes, dtypes, combine, (parameters.multiplier, parameters.shift)
    )


# --- offered to backends -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class QMultiply(Multiply, Binary):
    """A product."""

    @property
    def scalars(self) -> dict[str, int]:
        return {
            **self._shape_arguments(),
            "left_zero_point": self.zero_points[0],
            "right_zero_point": self.zero_points[1],
            "multiplier": self.multiplier,
            "shift": self.shift,
            **self.ending(),
        }


@dataclass(frozen=True, eq=False)
class qmultiply(ElementwisePattern):
    """An integer product of two tensors."""

    KIND = QMultiply
    OPERATOR = Multiply
    DOES = "multiplies"

    name: str = "qmultiply"


register(
    parameters=Multiply,
    kernel_of_operands=_kernel,
    recognitions=(Recognition(("multiply",), _derive, (Arithmetic.TFLM,)),),
    takes_clip=True,
    drawing=pairs.product(Multiply),
    patterns=(qmultiply,),
)


converts("MUL", "float32", *QUANTIZED, *WHOLE, same_dtype=True)(imported)
