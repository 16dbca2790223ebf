# SPDX-License-Identifier: Apache-2.0
"""`quantized.sum` (data): the sum over some axes; computed as a mean."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from umakit import tvm_api
from umakit.operators.drawings import reductions
from umakit.operators.interface import TFLM, Interface, along_axes
from umakit.operators.kernels.calls import kernel_of_operands
from umakit.operators.mean import Mean, derive_as, mean_multiplier, over_axes, reduction_kernel
from umakit.operators.registry import IntegerOperator, Recognition, register
from umakit.operators.tflite import WHOLE, register_all

relax = tvm_api.relax


@dataclass(frozen=True)
class Sum(Mean):
    """The sum over some axes, with another scale."""

    operator: ClassVar[str] = "sum"


register(
    IntegerOperator(
        name="sum",
        parameters=Sum,
        kernel=kernel_of_operands(reduction_kernel),
        recognitions=(Recognition(("sum",), partial(derive_as, Sum)),),
        takes_clip=True,
        drawing=reductions.reduction(Sum, mean_multiplier),
        interface=Interface(sizes=along_axes, names={"axes": ()}, rounding=TFLM),
    )
)


register_all(("SUM",), over_axes(tvm_api.relax.op.sum), "float32", "int8", "int16", *WHOLE)
