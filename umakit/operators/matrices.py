# SPDX-License-Identifier: Apache-2.0
"""BATCH_MATMUL of TensorFlow Lite."""

from __future__ import annotations

from typing import Any

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.tflite import TfliteConverter, TfliteOperator, register_all

relax = tvm_api.relax


MOST_MATMUL_AXES = 5
"""Of an operand of BATCH_MATMUL."""


def batch_matmul(converter: TfliteConverter, operator: TfliteOperator) -> Any:
    """BATCH_MATMUL of matrices whose leading axes broadcast."""
    options = converter.options(operator, "BatchMatMulOptions")
    operands = []
    for number, adjoint in zip(operator.inputs, (options.AdjX(), options.AdjY()), strict=True):
        rank = len(converter.shape(number))
        if not 2 <= rank <= MOST_MATMUL_AXES:
            raise ModelError(f"an operand has {rank} axes")
        value = converter.dequantized(number)
        if adjoint:
            order = [*range(rank - 2), rank - 1, rank - 2]
            value = converter.emit(relax.op.permute_dims(value, order))
        operands.append(value)
    return converter.quantized(operator, relax.op.matmul(*operands))


register_all(("BATCH_MATMUL",), batch_matmul, "float32", "int8", "int16", same_dtype=True)
