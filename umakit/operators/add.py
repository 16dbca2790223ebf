# SPDX-License-Identifier: Apache-2.0
"""`quantized.add` (left, right), of shapes that broadcast.

The formulas are from TensorFlow Lite Micro's `add_common.cc` and `sub_common.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from umakit import tvm_api
from umakit.operators.drawings import sums
from umakit.operators.islands import Island
from umakit.operators.kernels.elementwise import binary_kernel, on_common_scale
from umakit.operators.multipliers import fixed_points
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.offload.composite import Binary
from umakit.operators.offload.pattern_families import ElementwisePattern
from umakit.operators.parameters import CommonScaleParameters
from umakit.operators.registry import (
    IntegerOperator,
    Recognition,
    Shapes,
    kernel_of_operands,
    register,
)
from umakit.operators.tensors import NoIntegerForm
from umakit.operators.tflite import QUANTIZED, WHOLE, converts, imported
from umakit.tvm_api import Expr

LEFT_SHIFTS = {"int8": 20, "uint8": 20, "int16": 15}
"""TensorFlow Lite's left shift of the operands of an addition."""


@dataclass(frozen=True)
class Add(CommonScaleParameters):
    """The sum of two tensors: both are brought to a common scale, added, and rescaled."""

    operator: ClassVar[str] = "add"


def derive_as(kind: type[Add], island: Island) -> Expr:
    """Return a call of a sum or difference.

    Raises:
        NoIntegerForm: integers cannot express the scales.
    """
    result, operands = island.result, island.operands()
    left, right = (operand.scale for operand in operands)
    left_shift = LEFT_SHIFTS[result.scale.dtype]
    twice_largest = 2.0 * float(max(left.scale, right.scale))
    factors = [
        float(left.scale) / twice_largest,
        float(right.scale) / twice_largest,
        twice_largest / (2.0**left_shift * float(result.scale.scale)),
    ]
    if factors[2] >= 1.0:
        raise NoIntegerForm("the result's scale is too small for the operands'")
    scaled = fixed_points(factors)
    first, second, third = (int(value) for value in scaled.multipliers)
    shifts = [int(value) for value in scaled.shifts]
    parameters = kind(
        **result.common(island.arithmetic),
        zero_points=(left.zero_point, right.zero_point),
        left_shift=left_shift,
        multipliers=(first, second, third),
        shifts=(shifts[0], shifts[1], shifts[2]),
    )
    return parameters.call([operand.integers for operand in operands], result.span)


def addition_kernel(
    parameters: Add, shapes: Shapes, dtypes: list[str], sign: int = 1
) -> tvm_api.PrimFunc:
    """Return the kernel (left, right, output) of a sum, or of a difference if `sign` is -1."""
    factor = (parameters.multipliers[2], parameters.shifts[2])
    return binary_kernel(
        parameters, shapes, dtypes, partial(total_of_both, parameters, sign=sign), factor
    )


def total_of_both(
    parameters: Add, left: Expr, right: Expr, sign: int = 1
) -> tuple[list[tvm_api.Stmt], Expr]:
    """Return statements, and the sum or difference of two elements on the common scale."""
    statements, (first, second) = on_common_scale(parameters, left, right)
    return statements, first - second if sign < 0 else first + second


# --- offered to backends -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class QAdd(Add, Binary):
    """A sum: left and right are shifted left, multiplied, added, and multiplied again."""

    @property
    def scalars(self) -> dict[str, int]:
        left, right, total = zip(self.multipliers, self.shifts, strict=True)
        return {
            **self._shape_arguments(),
            "left_zero_point": self.zero_points[0],
            "right_zero_point": self.zero_points[1],
            "left_shift": self.left_shift,
            "left_multiplier": left[0],
            "left_multiplier_shift": left[1],
            "right_multiplier": right[0],
            "right_multiplier_shift": right[1],
            "multiplier": total[0],
            "shift": total[1],
            **self.ending(),
        }


@dataclass(frozen=True, eq=False)
class qadd(ElementwisePattern):
    """An integer addition of two tensors."""

    KIND = QAdd
    OPERATOR = Add
    DOES = "adds"

    name: str = "qadd"


register(
    IntegerOperator(
        parameters=Add,
        kernel=kernel_of_operands(addition_kernel),
        recognitions=(Recognition(("add",), partial(derive_as, Add), (Arithmetic.TFLM,)),),
        takes_clip=True,
        drawing=sums.sum_of_two(Add),
        patterns=(qadd,),
    )
)


converts("ADD", "float32", *QUANTIZED, *WHOLE, same_dtype=True)(imported)
