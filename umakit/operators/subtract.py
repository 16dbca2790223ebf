# SPDX-License-Identifier: Apache-2.0
"""`quantized.subtract` (left, right), of shapes that broadcast; computed as a sum."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from umakit.operators.add import Add, addition_kernel, derive_as
from umakit.operators.kernels.calls import kernel_of_operands
from umakit.operators.numeric.fixed_point import (
    Arithmetic,
)
from umakit.operators.registry import (
    IntegerOperator,
    Recognition,
    register,
)


@dataclass(frozen=True)
class Subtract(Add):
    """The difference of two tensors, computed as `Add`."""

    operator: ClassVar[str] = "subtract"


register(
    IntegerOperator(
        name="subtract",
        parameters=Subtract,
        kernel=kernel_of_operands(partial(addition_kernel, sign=-1)),
        recognitions=(
            Recognition(("subtract",), partial(derive_as, Subtract), (Arithmetic.TFLM,)),
        ),
        takes_clip=True,
    )
)
