# SPDX-License-Identifier: Apache-2.0
"""RESHAPE, SQUEEZE, EXPAND_DIMS, TRANSPOSE, SHAPE, FILL, BROADCAST_TO, BROADCAST_ARGS and SELECT_V2
of TensorFlow Lite.
"""

from __future__ import annotations

import math

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.tflite import ANY, TfliteConverter, TfliteOperator, register_all

relax = tvm_api.relax


def reshape(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """RESHAPE, SQUEEZE and EXPAND_DIMS, converted by the shape of the result."""
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
    """SHAPE, a constant."""
    return relax.const(np.array(converter.shape(operator.inputs[0]), np.int32))


register_all(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), reshape, *ANY, same_scale=True)
register_all(("TRANSPOSE",), transpose, *ANY, same_scale=True)
register_all(("SHAPE",), shape_of, *((dtype, "int32") for dtype in ANY), scaled=False)


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


def broadcast_to(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """BROADCAST_TO of (data, shape)."""
    shape = converter.shape(operator.outputs[0])
    if list(shape) != converter.integers(operator, 1):
        raise ModelError(f"its result has the shape {list(shape)}")
    return relax.op.broadcast_to(converter.value(operator.inputs[0]), shape)


def broadcast_args(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """BROADCAST_ARGS of two constant shapes."""
    shapes = [converter.integers(operator, position) for position in (0, 1)]
    try:
        shape = np.broadcast_shapes(*map(tuple, shapes))
    except ValueError:
        raise ModelError(f"its shapes {shapes[0]} and {shapes[1]} do not broadcast") from None
    dtype = converter.tensor(operator.outputs[0]).dtype
    return relax.const(np.array(shape, dtype), dtype)


register_all(("BROADCAST_TO",), broadcast_to, *ANY, same_scale=True)
register_all(("BROADCAST_ARGS",), broadcast_args, "int32", "int64", same_dtype=True)


def select(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """Elements of the second input where the first is true, else of the third, with
    broadcasting."""
    condition, *choices = operator.inputs
    dtypes = [converter.tensor(number).dtype for number in operator.inputs]
    if len(choices) != 2 or dtypes[0] != "bool" or dtypes[1] != dtypes[2]:
        raise ModelError(f"its inputs are {', '.join(dtypes)}")
    return relax.op.where(*(converter.value(number) for number in (condition, *choices)))


register_all(("SELECT_V2",), select, "float32", "int8", "int16", data=1, same_scale=True)
