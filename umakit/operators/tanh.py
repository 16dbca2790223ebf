# SPDX-License-Identifier: Apache-2.0
"""tanh(x): a table for 8 bits, `quantized.sigmoid_lookup` for 16 bits.

Sources are TensorFlow Lite Micro's `tanh.h` and `tanh.cc`.
"""

from __future__ import annotations

from umakit.operators.registry import register
from umakit.operators.sigmoid_lookup import of_all_widths
from umakit.operators.tables.activations import fixed_point_tanh
from umakit.operators.tflite import QUANTIZED, TfliteConverter, TfliteOperator, converts
from umakit.tvm_api import Expr, relax

register(of_all_widths("tanh", "tanh", fixed_point_tanh, 7, 0))


@converts("TANH", "float32", *QUANTIZED)
def convert(converter: TfliteConverter, operator: TfliteOperator) -> Expr:
    """TANH."""
    return converter.island(operator, relax.op.tanh)
