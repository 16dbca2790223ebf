# SPDX-License-Identifier: Apache-2.0
"""RESHAPE, SQUEEZE, EXPAND_DIMS, TRANSPOSE and SHAPE of TensorFlow Lite."""

from __future__ import annotations

import math

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.tflite import ANY, TfliteConverter, TfliteOperator, register_all

relax = tvm_api.relax


def reshape(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """RESHAPE, SQUEEZE and EXPAND_DIMS: the result's shape says it all."""
    shape, data = converter.shape(operator.outputs[0]), converter.value(operator.inputs[0])
    if math.prod(shape) != math.prod(tvm_api.static_shape(data) or ()):
        raise ModelError(f"its result of shape {list(shape)} has another number of elements")
    return relax.op.reshape(data, shape)


def transpose(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """TRANSPOSE by a constant permutation."""
    order = converter.integers(operator, 1)
    if sorted(order) != list(range(len(converter.shape(operator.inputs[0])))):
        raise ModelError(f"its permutation is {order}")
    return relax.op.permute_dims(converter.value(operator.inputs[0]), order)


def shape_of(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """SHAPE, which is a constant."""
    return relax.const(np.array(converter.shape(operator.inputs[0]), np.int32))


register_all(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), reshape, *ANY, same_scale=True)
register_all(("TRANSPOSE",), transpose, *ANY, same_scale=True)
register_all(("SHAPE",), shape_of, *((dtype, "int32") for dtype in ANY), scaled=False)
