# SPDX-License-Identifier: Apache-2.0
"""Reductions: `quantized.sum` (data), the sum over some axes, computed as a mean; and SUM, CUMSUM,
REDUCE_MAX and REDUCE_MIN of TensorFlow Lite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from umakit.operators.drawings import reductions
from umakit.operators.interface import TFLM, Interface, along_axes
from umakit.operators.mean import (
    Mean,
    derive_as,
    mean_multiplier,
    over_axes,
    reduced_axes,
    reduction_kernel,
)
from umakit.operators.registry import IntegerOperator, Recognition, kernel_of_operands, register
from umakit.operators.tflite import (
    WHOLE,
    Convert,
    TfliteConverter,
    TfliteOperator,
    converts,
    one_axis,
)
from umakit.operators.tflite_integers import rescaled_sum, scale_of
from umakit.tvm_api import Expr, relax


@dataclass(frozen=True)
class Sum(Mean):
    """The sum over some axes, with another scale."""

    operator: ClassVar[str] = "sum"


register(
    IntegerOperator(
        parameters=Sum,
        kernel=kernel_of_operands(reduction_kernel),
        recognitions=(Recognition(("sum",), partial(derive_as, Sum)),),
        takes_clip=True,
        drawing=reductions.reduction(Sum, mean_multiplier),
        interface=Interface(sizes=along_axes, names={"axes": ()}, rounding=TFLM),
    )
)


converts("SUM", "float32", "int8", "int16", *WHOLE)(over_axes(relax.op.sum))


def extreme(function: Callable[..., Expr]) -> Convert:
    """The largest or least element over constant axes."""

    def convert(converter: TfliteConverter, operator: TfliteOperator) -> Expr:
        axes, keep = reduced_axes(converter, operator)
        return function(converter.value(operator.inputs[0]), axes, keep)

    return convert


@converts("REDUCE_ALL", "bool")
def reduce_all(converter: TfliteConverter, operator: TfliteOperator) -> Expr:
    """Whether all elements over constant axes are true."""
    axes, keep = reduced_axes(converter, operator)
    numbers = converter.emit(relax.op.astype(converter.value(operator.inputs[0]), "int8"))
    return relax.op.astype(converter.emit(relax.op.min(numbers, axes, keep)), "bool")


converts("REDUCE_MAX", "float32", "int8", same_scale=True)(extreme(relax.op.max))
converts("REDUCE_MIN", "float32", "int8", same_scale=True)(extreme(relax.op.min))


@converts("CUMSUM", "float32", "int8")
def cumsum(converter: TfliteConverter, operator: TfliteOperator) -> Expr:
    """CUMSUM along a constant axis, forward or reverse, inclusive or exclusive."""
    options = converter.options(operator, "CumsumOptions")
    shape = converter.shape(operator.inputs[0])
    axis = one_axis(converter.integers(operator, 1), len(shape))
    value, exclusive = converter.value(operator.inputs[0]), bool(options.Exclusive())
    floating = converter.tensor(operator.inputs[0]).dtype == "float32"
    scale = None if floating else scale_of(converter, operator.inputs[0])
    if scale is not None:
        wide = converter.emit(relax.op.astype(value, "int32"))
        value = converter.emit(relax.op.subtract(wide, relax.const(np.int32(scale.zero_point))))
    if options.Reverse():
        value = converter.emit(relax.op.flip(value, axis))
    dtype = "float32" if floating else "int32"
    total = converter.emit(relax.op.cumsum(value, axis, dtype, exclusive=exclusive))
    if options.Reverse():
        total = converter.emit(relax.op.flip(total, axis))
    if scale is None:
        return total
    total = converter.emit(relax.op.subtract(total, relax.const(np.int32(scale.zero_point))))
    return rescaled_sum(converter, operator, total, scale, shape[axis])
