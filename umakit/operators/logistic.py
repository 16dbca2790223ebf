# SPDX-License-Identifier: Apache-2.0
"""The logistic function: a table for 8 bits, `quantized.sigmoid_lookup` for 16 bits.

Sources are TensorFlow Lite Micro's `logistic.h` and `logistic_common.cc`.
"""

from __future__ import annotations

from umakit.operators.registry import register
from umakit.operators.sigmoid_lookup import of_all_widths
from umakit.operators.tables.activations import fixed_point_sigmoid
from umakit.operators.tflite import QUANTIZED, TfliteConverter, TfliteOperator, converts
from umakit.tvm_api import Expr, relax

register(of_all_widths("logistic", "sigmoid", fixed_point_sigmoid, 8, -128))


@converts("LOGISTIC", "float32", *QUANTIZED)
def convert(converter: TfliteConverter, operator: TfliteOperator) -> Expr:
    """LOGISTIC."""
    return converter.island(operator, relax.op.sigmoid)
