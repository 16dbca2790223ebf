# SPDX-License-Identifier: Apache-2.0
"""CONCATENATION and PACK of TensorFlow Lite."""

from __future__ import annotations

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.tflite import ANY, TfliteConverter, TfliteOperator, imported, register_all

relax = tvm_api.relax


def pack(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """PACK of tensors of one shape along a new axis."""
    options = converter.options(operator, "PackOptions")
    result = converter.shape(operator.outputs[0])
    axis = options.Axis() + (len(result) if options.Axis() < 0 else 0)
    if not 0 <= axis < len(result):
        raise ModelError(f"its axis is {options.Axis()}")
    part = (*result[:axis], 1, *result[axis + 1 :])
    if any(converter.shape(number) != part[:axis] + part[axis + 1 :] for number in operator.inputs):
        raise ModelError(f"its result has the shape {list(result)}")
    parts = [
        converter.emit(relax.op.reshape(converter.value(number), part))
        for number in operator.inputs
    ]
    return relax.op.concat(parts, axis)


register_all(("CONCATENATION",), imported, *ANY, same_dtype=True, same_scale=True)
register_all(("PACK",), pack, *ANY, same_dtype=True, same_scale=True)
