# SPDX-License-Identifier: Apache-2.0
"""ABS of TensorFlow Lite; elementwise.cc of TensorFlow Lite Micro."""

from __future__ import annotations

import numpy as np

from umakit import tvm_api
from umakit.operators.multipliers import check_headroom
from umakit.operators.numeric.fixed_point import quantize_multiplier
from umakit.operators.requantize import Requantize
from umakit.operators.tables.activations import multiplied
from umakit.operators.tflite import TfliteConverter, TfliteOperator, register_all
from umakit.operators.tflite_integers import TFLM, as_refusals, lookup, result_fields, scale_of

relax = tvm_api.relax


def absolute(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """ABS: a table for int8, a change of scale for int16."""
    value = converter.value(operator.inputs[0])
    dtype = converter.tensor(operator.inputs[0]).dtype
    if dtype == "float32":
        return relax.op.abs(value)
    source, result = (scale_of(converter, n) for n in (operator.inputs[0], operator.outputs[0]))
    # In float64, as the released runtime computes, though elementwise.cc reads like float32.
    factor = quantize_multiplier(float(source.scale) / float(result.scale))
    with as_refusals():
        if dtype == "int8":
            magnitudes = (abs(integer - source.zero_point) for integer in range(-128, 128))
            table = [multiplied(value, *factor) + result.zero_point for value in magnitudes]
            return lookup(converter, operator, np.array(table), "abs")
        check_headroom(source.magnitude, factor[1], TFLM)
    wide = converter.emit(relax.op.astype(value, "int32"))
    parameters = Requantize(
        **result_fields(converter, operator), input_zero_point=0, multiplier=factor[0],
        shift=factor[1],
    )  # fmt: skip
    return parameters.call([converter.emit(relax.op.abs(wide))], None)


register_all(("ABS",), absolute, "float32", "int8", "int16")
