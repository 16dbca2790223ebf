# SPDX-License-Identifier: Apache-2.0
"""RSQRT of TensorFlow Lite; elementwise.cc of TensorFlow Lite Micro."""

from __future__ import annotations

import numpy as np

from umakit import tvm_api
from umakit.operators.numeric.fixed_point import quantize_multiplier
from umakit.operators.numeric.inverse_square_root import inverse_square_root
from umakit.operators.tables.activations import multiplied
from umakit.operators.tflite import TfliteConverter, TfliteOperator, register_all
from umakit.operators.tflite_integers import as_refusals, lookup, scale_of

KEPT_BITS = 20
"""Fractional bits of the inverse root before it is rescaled (`kShift`)."""

LARGEST = 127


def rsqrt(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """1 / sqrt(x), of int8 a table.

    Integers that stand for 0 have the largest result. Below them, where TensorFlow Lite Micro ends
    the run with an error, it is the same.
    """
    if converter.tensor(operator.inputs[0]).dtype == "float32":
        return tvm_api.relax.op.rsqrt(converter.value(operator.inputs[0]))
    source, result = (scale_of(converter, n) for n in (operator.inputs[0], operator.outputs[0]))
    # Square root and product are float32 in the reference, the quotient is float64.
    divisor = np.sqrt(np.float32(source.scale)) * np.float32(result.scale)
    factor = quantize_multiplier(1.0 / float(divisor))

    def function(integer: int) -> int:
        value = integer - source.zero_point
        if value <= 0:
            return LARGEST
        multiplier, shift = inverse_square_root(value)
        root = multiplied(1, multiplier, shift + KEPT_BITS)
        return multiplied(root, factor[0], factor[1] - KEPT_BITS) + result.zero_point

    with as_refusals():
        table = np.array([function(integer) for integer in range(-128, 128)])
    return lookup(converter, operator, table, "rsqrt")


register_all(("RSQRT",), rsqrt, "float32", "int8")
