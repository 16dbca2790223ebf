# SPDX-License-Identifier: Apache-2.0
"""`quantized.argmin` (data): the place of the least element, the first of several."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from umakit.operators.argmax import ArgMax, as_int32, extreme_kernel, replace_by
from umakit.operators.kernels.calls import kernel_of_operands
from umakit.operators.registry import IntegerCall, IntegerOperator, register


@dataclass(frozen=True)
class ArgMin(ArgMax):
    """The place of the least element."""

    operator: ClassVar[str] = "argmin"


register(
    IntegerOperator(
        name="argmin",
        parameters=ArgMin,
        kernel=kernel_of_operands(partial(extreme_kernel, least=True)),
        takes_clip=True,
        integer_calls=(
            IntegerCall("argmin", partial(replace_by, ArgMin), without_quantize=True),
            IntegerCall("astype", partial(as_int32, ArgMin)),
        ),
    )
)
