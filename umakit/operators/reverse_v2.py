# SPDX-License-Identifier: Apache-2.0
"""REVERSE_V2 of TensorFlow Lite."""

from __future__ import annotations

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.tflite import ANY, TfliteConverter, TfliteOperator, register_all

relax = tvm_api.relax


def reverse(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """The elements in reverse order along constant axes."""
    rank, axes = len(converter.shape(operator.inputs[0])), converter.integers(operator, 1)
    if any(not -rank <= axis < rank for axis in axes):
        raise ModelError(f"its axes are {axes}")
    value = converter.value(operator.inputs[0])
    for axis in sorted({axis % rank for axis in axes}):
        value = converter.emit(relax.op.flip(value, axis))
    return value


register_all(("REVERSE_V2",), reverse, *ANY, same_scale=True)
