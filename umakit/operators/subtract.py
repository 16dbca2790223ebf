# SPDX-License-Identifier: Apache-2.0
"""`quantized.subtract` (left, right), of shapes that broadcast; computed as a sum."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from umakit.operators.add import Add, QAdd, addition_kernel, derive_as
from umakit.operators.drawings import sums
from umakit.operators.kernels.calls import kernel_of_operands
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.offload.pattern_families import ElementwisePattern
from umakit.operators.registry import IntegerOperator, Recognition, register
from umakit.operators.tflite import QUANTIZED, WHOLE, imported, register_all


@dataclass(frozen=True)
class Subtract(Add):
    """The difference of two tensors, computed as `Add`."""

    operator: ClassVar[str] = "subtract"


# --- offered to backends -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class QSubtract(Subtract, QAdd):
    """A difference: as `QAdd`, but what the right operand became is subtracted."""


@dataclass(frozen=True, eq=False)
class qsubtract(ElementwisePattern):
    """An integer subtraction of two tensors; the driver gets the arguments of `qadd`."""

    KIND = QSubtract
    OPERATOR = Subtract
    DOES = "subtracts"

    name: str = "qsubtract"


register(
    IntegerOperator(
        name="subtract",
        parameters=Subtract,
        kernel=kernel_of_operands(partial(addition_kernel, sign=-1)),
        recognitions=(
            Recognition(("subtract",), partial(derive_as, Subtract), (Arithmetic.TFLM,)),
        ),
        takes_clip=True,
        drawing=sums.sum_of_two(Subtract, -1),
        patterns=(qsubtract,),
        composites=(QSubtract,),
    )
)


register_all(("SUB",), imported, "float32", *QUANTIZED, *WHOLE, same_dtype=True)
