# SPDX-License-Identifier: Apache-2.0
"""`quantized.subtract` (left, right), of shapes that broadcast, computed as a sum; ADD_N of
TensorFlow Lite.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.add import Add, QAdd, addition_kernel, derive_as
from umakit.operators.drawings import sums
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.offload.pattern_families import ElementwisePattern
from umakit.operators.registry import IntegerOperator, Recognition, kernel_of_operands, register
from umakit.operators.tflite import (
    QUANTIZED,
    WHOLE,
    TfliteConverter,
    TfliteOperator,
    converts,
    imported,
)
from umakit.operators.tflite_integers import rescaled_sum, scale_of
from umakit.tvm_api import relax


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
    IntegerOperator(
        parameters=Subtract,
        kernel=kernel_of_operands(partial(addition_kernel, sign=-1)),
        recognitions=(
            Recognition(("subtract",), partial(derive_as, Subtract), (Arithmetic.TFLM,)),
        ),
        takes_clip=True,
        drawing=sums.sum_of_two(Subtract, -1),
        patterns=(qsubtract,),
    )
)


converts("SUB", "float32", *QUANTIZED, *WHOLE, same_dtype=True)(imported)


@converts("ADD_N", "float32", "int8", same_dtype=True)
def add_n(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """ADD_N of tensors of one shape and scale."""
    numbers = operator.inputs
    if any(converter.shape(number) != converter.shape(numbers[0]) for number in numbers):
        raise ModelError("its inputs have different shapes")
    if converter.tensor(numbers[0]).dtype == "float32":
        total = converter.value(numbers[0])
        for number in numbers[1:]:
            total = converter.emit(relax.op.add(total, converter.value(number)))
        return total
    scales = [scale_of(converter, number) for number in numbers]
    if any(scale != scales[0] for scale in scales):
        raise ModelError("its inputs have different scales")
    total = relax.const(np.int32(-scales[0].zero_point * (len(numbers) + 1)))
    for number in numbers:
        wide = converter.emit(relax.op.astype(converter.value(number), "int32"))
        total = converter.emit(relax.op.add(wide, total))
    return rescaled_sum(converter, operator, total, scales[0], len(numbers))
