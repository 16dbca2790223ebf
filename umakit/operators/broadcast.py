# SPDX-License-Identifier: Apache-2.0
"""BROADCAST_TO and BROADCAST_ARGS of TensorFlow Lite."""

from __future__ import annotations

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.tflite import ANY, TfliteConverter, TfliteOperator, register_all

relax = tvm_api.relax


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
