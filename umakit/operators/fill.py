# SPDX-License-Identifier: Apache-2.0
"""FILL and ZEROS_LIKE of TensorFlow Lite."""

from __future__ import annotations

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.tflite import TfliteConverter, TfliteOperator, register_all

relax = tvm_api.relax


def fill(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """FILL of (shape, scalar)."""
    shape = converter.shape(operator.outputs[0])
    if list(shape) != converter.integers(operator, 0):
        raise ModelError(f"its result has the shape {list(shape)}")
    return relax.op.broadcast_to(converter.value(operator.inputs[1]), shape)


def zeros_like(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """ZEROS_LIKE: the integer 0, even if the zero point is not 0."""
    tensor = converter.tensor(operator.outputs[0])
    return relax.const(np.zeros(tensor.shape, tensor.dtype), tensor.dtype)


register_all(("FILL",), fill, "float32", "int8", "int32", data=1, same_scale=True)
register_all(("ZEROS_LIKE",), zeros_like, "float32", "int8", "int32", "int64", scaled=False)
