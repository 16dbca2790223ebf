# SPDX-License-Identifier: Apache-2.0
"""CUMSUM of TensorFlow Lite."""

from __future__ import annotations

import numpy as np

from umakit import tvm_api
from umakit.operators.derivation.shifted_sums import rescaled_sum
from umakit.operators.tflite import TfliteConverter, TfliteOperator, one_axis, register_all
from umakit.operators.tflite_integers import scale_of

relax = tvm_api.relax


def cumsum(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
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


register_all(("CUMSUM",), cumsum, "float32", "int8")
