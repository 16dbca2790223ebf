# SPDX-License-Identifier: Apache-2.0
"""DYNAMIC_UPDATE_SLICE of TensorFlow Lite: replacement of a slice at a run-time position."""

from __future__ import annotations

import numpy as np

from umakit.errors import ModelError
from umakit.operators.tflite import TfliteNode, converts
from umakit.tvm_api import Expr, relax


@converts("DYNAMIC_UPDATE_SLICE", "float32", "int8", "int32", same_scale=True)
def convert(node: TfliteNode) -> Expr:
    """DYNAMIC_UPDATE_SLICE of (data, update, start int32 or int64[rank]).

    As in dynamic_update_slice.cc, a start is clamped to the nearest valid start if the update would
    exceed the data.
    """
    shape, extents, starts = (tensor.shape for tensor in node.tensors)
    if len(extents) != len(shape) or any(n > size for n, size in zip(extents, shape, strict=True)):
        raise ModelError(f"an update of shape {list(extents)} does not fit {list(shape)}")
    given, other, dtype = (tensor.dtype for tensor in node.tensors)
    if given != other:
        raise ModelError(f"its update is {other}, its data {given}")
    if starts != (len(shape),) or dtype not in ("int32", "int64"):
        raise ModelError(f"its start is {dtype}{list(starts)}, not one integer for each dimension")
    data, update, start = node.values()
    inside = None
    for axis, (size, extent) in enumerate(zip(shape, extents, strict=True)):
        if extent == size:
            continue
        first = node.emit(relax.op.take(start, relax.const([axis], "int32"), 0))
        limited = _clip(node, first, size - extent, dtype)
        first = node.emit(relax.op.astype(limited, "int32"))
        steps = relax.const(np.arange(size, dtype=np.int32))
        place = node.emit(relax.op.subtract(steps, first))
        nearest = _clip(node, place, extent - 1, "int32")
        update = node.emit(relax.op.take(update, nearest, axis, mode="clip"))
        reached = node.emit(relax.op.equal(place, nearest))
        row = [size if other == axis else 1 for other in range(len(shape))]
        reached = node.emit(relax.op.reshape(reached, row))
        inside = reached if inside is None else node.emit(relax.op.logical_and(inside, reached))
    return update if inside is None else relax.op.where(inside, update, data)


def _clip(node: TfliteNode, value: Expr, largest: int, dtype: str) -> Expr:
    """Return integers of a dtype, limited to 0, ..., `largest`."""
    least = node.emit(relax.op.maximum(value, relax.const(0, dtype)))
    return node.emit(relax.op.minimum(least, relax.const(largest, dtype)))
