# SPDX-License-Identifier: Apache-2.0
"""FILL, ZEROS_LIKE, SHAPE, BROADCAST_TO and BROADCAST_ARGS of TensorFlow Lite."""

from __future__ import annotations

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.tflite import ANY, TfliteConverter, TfliteOperator, register_all

relax = tvm_api.relax


def fill(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """FILL of (shape, scalar)."""
    shape = converter.shape(operator.outputs[0])
    if list(shape) != converter.integers(operator, 0):
        raise ModelError(f"its result has the shape {list(shape)}")
    return relax.op.broadcast_to(converter.value(operator.inputs[1]), shape)


def zeros_like(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """ZEROS_LIKE; the integer 0, whatever the zero point."""
    tensor = converter.tensor(operator.outputs[0])
    return relax.const(np.zeros(tensor.shape, tensor.dtype), tensor.dtype)


def shape_of(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """SHAPE, which is a constant."""
    return relax.const(np.array(converter.shape(operator.inputs[0]), np.int32))


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


register_all(("FILL",), fill, "float32", "int8", "int32", data=1, same_scale=True)
register_all(("ZEROS_LIKE",), zeros_like, "float32", "int8", "int32", "int64", scaled=False)
register_all(("SHAPE",), shape_of, *((dtype, "int32") for dtype in ANY), scaled=False)
register_all(("BROADCAST_TO",), broadcast_to, *ANY, same_scale=True)
register_all(("BROADCAST_ARGS",), broadcast_args, "int32", "int64", same_dtype=True)
