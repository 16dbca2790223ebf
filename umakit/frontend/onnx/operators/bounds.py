# SPDX-License-Identifier: Apache-2.0
"""Clip and ThresholdedRelu."""

from __future__ import annotations

from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.frontend.onnx.node import Node
from umakit.frontend.onnx.registry import converts

FLOATS = ("float32", "float64")


@converts("Clip", "min max")
def clip(node: Node) -> Any | None:
    """Clip of floats: min(max, max(data, min)), as in the specification.

    Constant bounds make one operator. TVM's converter, which handles integers, makes six operators
    and
    ignores a NaN bound.
    """
    dtype = node.dtype(0)
    if dtype not in FLOATS:
        return None
    relax, value = tvm_api.relax, node.input(0)
    low, high = _bound(node, 1, "min", -np.inf), _bound(node, 2, "max", np.inf)
    if dtype == "float32" and isinstance(low, float) and isinstance(high, float) and low <= high:
        return relax.op.clip(value, tvm_api.float_value(low), tvm_api.float_value(high))
    least, most = (relax.const(b, dtype) if isinstance(b, float) else b for b in (low, high))
    return relax.op.minimum(node.emit(relax.op.maximum(value, least)), most)


def _bound(node: Node, position: int, name: str, default: float) -> float | tvm_api.Expr:
    """Return a bound as a number, or as a Relax expression if it is computed at run time."""
    expression = node.input(position)
    if expression is None:
        return float(node.attribute(name, default))
    array = tvm_api.constant_array(expression)
    if array is not None and array.size == 1:
        return float(array.reshape(()))
    return node.emit(tvm_api.relax.op.reshape(expression, []))


@converts("ThresholdedRelu", "alpha")
def thresholded_relu(node: Node) -> tvm_api.Expr:
    """Return x above the threshold, else 0. TVM multiplies by 0, which turns inf into NaN."""
    relax, dtype = tvm_api.relax, node.dtype(0)
    data, threshold = node.input(0), relax.const(float(node.attribute("alpha", 1.0)), dtype)
    return relax.op.where(relax.op.greater(data, threshold), data, relax.const(0.0, dtype))
