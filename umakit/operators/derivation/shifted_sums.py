# SPDX-License-Identifier: Apache-2.0
"""Sums with the arithmetic of TensorFlow Lite's ADD_N and CUMSUM.

Both operators add integers with 19 more fractional bits and rescale the sum, in add_n.h and
cumsum.h of TensorFlow Lite's reference. The sum starts from the integer 0, which represents `-zero
point` steps, so the zero point is included once more than there are terms.
"""

from __future__ import annotations

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.requantize import Requantize
from umakit.operators.tensors import Scale
from umakit.operators.tflite import TfliteConverter, TfliteOperator
from umakit.operators.tflite_integers import result_fields, scale_of, smaller_than_one

relax = tvm_api.relax

LEFT_SHIFT = 20
"""Bits that integers are shifted; half of that is taken back (`kAddNIntegerShift`)."""

INT32_BITS = 31


def rescaled_sum(
    converter: TfliteConverter,
    operator: TfliteOperator,
    total: tvm_api.Expr,
    source: Scale,
    terms: int,
) -> tvm_api.Expr:
    """Integers of the result's scale from int32 sums of `terms` integers less zero points.

    Raises:
        ModelError: sums can overflow, or the kernel does not support the scales.
    """
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
