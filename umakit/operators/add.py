# SPDX-License-Identifier: Apache-2.0
"""`quantized.add` and `quantized.subtract` (left, right), of shapes that broadcast; ADD_N.

The formulas are from TensorFlow Lite Micro's `add_common.cc` and `sub_common.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.drawings import sums
from umakit.operators.islands import Island
from umakit.operators.kernels.elementwise import binary_kernel, on_common_scale
from umakit.operators.multipliers import fixed_points
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.offload.composite import Binary
from umakit.operators.offload.pattern_families import ElementwisePattern
from umakit.operators.parameters import LEFT_SHIFTS, CommonScaleParameters
from umakit.operators.registry import Recognition, Shapes, register
from umakit.operators.tensors import NoIntegerForm
from umakit.operators.tflite import QUANTIZED, WHOLE, TfliteNode, converts, imported
from umakit.operators.tflite_integers import rescaled_sum, scale_of
from umakit.tvm_api import Expr, PrimFunc, Stmt, relax


@dataclass(frozen=True)
class Add(CommonScaleParameters):
    """The sum of two tensors: both are brought to a common scale, added, and rescaled."""

    operator: ClassVar[str] = "add"


def derive_as(kind: type[Add], island: Island) -> Expr:
    """Return a call of a sum or difference."""
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


def addition_kernel(parameters: Add, shapes: Shapes, dtypes: list[str], sign: int = 1) -> PrimFunc:
    """Return the kernel (left, right, output) of a sum, or of a difference if `sign` is -1."""
    factor = (parameters.multipliers[2], parameters.shifts[2])
    return binary_kernel(
        parameters, shapes, dtypes, partial(total_of_both, parameters, sign=sign), factor
    )


def total_of_both(
    parameters: Add, left: Expr, right: Expr, sign: int = 1
) -> tuple[list[Stmt], Expr]:
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
    parameters=Add,
    kernel_of_operands=addition_kernel,
    recognitions=(Recognition(("add",), partial(derive_as, Add), (Arithmetic.TFLM,)),),
    takes_clip=True,
    drawing=sums.sum_of_two(Add),
    patterns=(qadd,),
)


converts("ADD", "float32", *QUANTIZED, *WHOLE, same_dtype=True)(imported)


@dataclass(frozen=True)
class Subtract(Add):
    """The difference of two tensors, computed as `Add`."""

    operator: ClassVar[str] = "subtract"


# --- offered to backends -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class QSubtract(Subtract, QAdd):
    """A difference: like `QAdd`, but the rescaled right operand is subtracted."""


@dataclass(frozen=True, eq=False)
class qsubtract(ElementwisePattern):
    """An integer subtraction of two tensors; the driver gets the arguments of `qadd`."""

    KIND = QSubtract
    OPERATOR = Subtract
    DOES = "subtracts"

    name: str = "qsubtract"


register(
    parameters=Subtract,
    kernel_of_operands=partial(addition_kernel, sign=-1),
    recognitions=(Recognition(("subtract",), partial(derive_as, Subtract), (Arithmetic.TFLM,)),),
    takes_clip=True,
    drawing=sums.sum_of_two(Subtract, -1),
    patterns=(qsubtract,),
)


converts("SUB", "float32", *QUANTIZED, *WHOLE, same_dtype=True)(imported)


@converts("ADD_N", "float32", "int8", same_dtype=True)
def add_n(node: TfliteNode) -> tvm_api.Expr:
    """ADD_N of tensors of one shape and scale."""
    first, *others = node.tensors
    if any(tensor.shape != first.shape for tensor in others):
        raise ModelError("its inputs have different shapes")
    if first.dtype == "float32":
        total, *terms = node.values()
        for term in terms:
            total = node.emit(relax.op.add(total, term))
        return total
    scales = [scale_of(tensor) for tensor in node.tensors]
    if any(scale != scales[0] for scale in scales):
        raise ModelError("its inputs have different scales")
    total = relax.const(np.int32(-scales[0].zero_point * (len(scales) + 1)))
    for term in node.values():
        wide = node.emit(relax.op.astype(term, "int32"))
        total = node.emit(relax.op.add(wide, total))
    return rescaled_sum(node, total, scales[0], len(scales))
