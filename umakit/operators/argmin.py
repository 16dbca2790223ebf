# SPDX-License-Identifier: Apache-2.0
"""`quantized.argmin` (data): the index of the least element, the first if there are several."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from umakit.operators.argmax import (
    TFLITE_DTYPES,
    ArgMax,
    as_int32,
    extreme_kernel,
    place_of_extreme,
    replace_by,
)
from umakit.operators.drawings import reductions
from umakit.operators.interface import Interface, along_axes
from umakit.operators.registry import IntegerCall, IntegerOperator, kernel_of_operands, register
from umakit.operators.tflite import converts
from umakit.tvm_api import relax


@dataclass(frozen=True)
class ArgMin(ArgMax):
    """Index of the least element along an axis, the first if there are several."""

    operator: ClassVar[str] = "argmin"


register(
    IntegerOperator(
        parameters=ArgMin,
        kernel=kernel_of_operands(partial(extreme_kernel, least=True)),
        takes_clip=True,
        drawing=reductions.extreme(ArgMin),
        integer_calls=(
            IntegerCall("argmin", partial(replace_by, ArgMin), without_quantize=True),
            IntegerCall("astype", partial(as_int32, ArgMin)),
        ),
        interface=Interface(
            sizes=along_axes, names={"axis": ()}, checks=("data",), result="int32", clips=False
        ),
    )
)


converts("ARG_MIN", *TFLITE_DTYPES)(place_of_extreme(relax.op.argmin))
