# SPDX-License-Identifier: Apache-2.0
"""FLOOR_DIV and FLOOR_MOD of float32 of TensorFlow Lite."""

from __future__ import annotations

from umakit import tvm_api
from umakit.operators.tflite import TfliteConverter, TfliteOperator, float32, register_all

relax = tvm_api.relax


def floor_div(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """FLOOR_DIV: the floor of the float32 quotient."""
    operands = [converter.value(number) for number in operator.inputs]
    return relax.op.floor(converter.emit(relax.op.divide(*operands)))


def floor_mod(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """FLOOR_MOD: C's `fmod`, plus the divisor if the signs differ (`floor_mod.h`)."""
    emit = converter.emit
    left, right = (converter.value(number) for number in operator.inputs)
    rest = emit(relax.op.mod(left, right))
    zero = float32(0.0)
    negative = [emit(relax.op.less(value, zero)) for value in (rest, right)]
    moved = emit(
        relax.op.logical_and(
            emit(relax.op.not_equal(rest, zero)),
            emit(relax.op.logical_xor(*negative)),
        )
    )
    return relax.op.where(moved, emit(relax.op.add(rest, right)), rest)


register_all(("FLOOR_DIV",), floor_div, "float32", same_dtype=True)
register_all(("FLOOR_MOD",), floor_mod, "float32", same_dtype=True)
