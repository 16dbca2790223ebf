# SPDX-License-Identifier: Apache-2.0
"""The logistic function: a table for 8 bits, `quantized.sigmoid_lookup` for 16 bits.

Sources are TensorFlow Lite Micro's `logistic.h` and `logistic_common.cc`.
"""

from __future__ import annotations

from functools import partial

from umakit import tvm_api
from umakit.operators.islands import Island
from umakit.operators.lookup import tflm_activation
from umakit.operators.numeric.fixed_point import shift_right_rounding
from umakit.operators.registry import IntegerOperator, Recognition, register
from umakit.operators.sigmoid_lookup import lookup_call
from umakit.operators.tables.activations import check_result, fixed_point_sigmoid, saturating_table
from umakit.operators.tensors import Array, Scale
from umakit.operators.tflite import QUANTIZED, TfliteConverter, TfliteOperator, converts
from umakit.tvm_api import relax


def _derive(island: Island) -> tvm_api.Expr:
    return tflm_activation(
        "logistic", island, island.operand(), _table, partial(lookup_call, "logistic")
    )


def _table(source: Scale, result: Scale) -> Array:
    """int8[256], for x = -128, ..., 127.

    Raises:
        NoIntegerForm: the kernel has another scale of the result.
        ValueError: the reference does not support the operand's scale.
    """
    check_result(result, 1 / 256, -128)

    def function(argument: int) -> int:
        return shift_right_rounding(fixed_point_sigmoid(argument), 31 - 8) - 128

    return saturating_table(source, function)


register(IntegerOperator(name="logistic", recognitions=(Recognition(("sigmoid",), _derive),)))


@converts("LOGISTIC", "float32", *QUANTIZED)
def convert(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """LOGISTIC."""
    return converter.island(operator, relax.op.sigmoid)
