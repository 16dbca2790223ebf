# SPDX-License-Identifier: Apache-2.0
"""ADD_N and CUMSUM of TensorFlow Lite.

Both add integers with 19 more fractional bits and rescale the sum, in add_n.h and cumsum.h of
TensorFlow Lite's reference. What they call 0 at the start is the integer 0, which stands for
`-zero point` steps: the sum has that once more than it has terms.
"""

from __future__ import annotations

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.requantize import Requantize
from umakit.operators.tensors import Scale
from umakit.operators.tflite import TfliteConverter, TfliteOperator, one_axis, register_all
from umakit.operators.tflite_integers import result_fields, scale_of, smaller_than_one

relax = tvm_api.relax

LEFT_SHIFT = 20
"""Bits that integers are shifted; half of that is taken back (`kAddNIntegerShift`)."""

INT32_BITS = 31


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
    return _rescaled(converter, operator, total, scales[0], len(numbers))


def cumsum(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """CUMSUM along a constant axis, from either end, with or without the element itself."""
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
    return _rescaled(converter, operator, total, scale, shape[axis])


def _rescaled(
    converter: TfliteConverter,
    operator: TfliteOperator,
    total: tvm_api.Expr,
    source: Scale,
    terms: int,
) -> tvm_api.Expr:
    """Integers of the result's scale from int32 sums of `terms` integers less zero points."""
    if (terms * source.magnitude + abs(source.zero_point)) << (LEFT_SHIFT - 1) >= 2**INT32_BITS:
        raise ModelError(
            f"sums of {terms} integers overflow the 32 bits of its kernel",
            fix="add less at a time, or leave the operator in float",
        )
    result = scale_of(converter, operator.outputs[0])
    factor = 2.0 * float(source.scale) / ((1 << LEFT_SHIFT) * float(result.scale))
    multiplier, shift = smaller_than_one(factor, "the ratio of its scales")
    fine = converter.emit(relax.op.multiply(total, relax.const(np.int32(1 << (LEFT_SHIFT - 1)))))
    parameters = Requantize(
        **result_fields(converter, operator), input_zero_point=0, multiplier=multiplier,
        shift=shift,
    )  # fmt: skip
    return parameters.call([fine], None)


register_all(("ADD_N",), add_n, "float32", "int8", same_dtype=True)
register_all(("CUMSUM",), cumsum, "float32", "int8")
