# SPDX-License-Identifier: Apache-2.0
"""Pow of every pair of dtypes."""

from __future__ import annotations

from typing import Any

from umakit import tvm_api
from umakit.frontend.onnx.node import Node
from umakit.frontend.onnx.operators.arithmetic import legacy_broadcast
from umakit.frontend.onnx.registry import converts

op = tvm_api.relax.op


@converts("Pow", "axis broadcast")
def power(node: Node) -> Any | None:
    """x ** y in the dtype of x; that of two equal dtypes of floats is TVM's.

    Others are computed in float64 and rounded once, as ONNX Runtime does: exact for all integers
    up to 2**53, and the limits of the dtype beyond its range. A constant 2 or 3 makes products.
    """
    legacy = legacy_broadcast(node)
    base, exponent = node.dtype(0), node.dtype(1)
    if legacy is not None or (base == exponent and base.startswith("float")):
        return legacy
    x, constant = node.inputs[0], node.constant(1)
    if constant is not None and constant.size == 1 and len(constant.shape) <= len(node.shape(0)):
        value = constant.reshape(())
        if value in (2, 3):
            square = node.emit(op.multiply(x, x))
            return square if value == 2 else op.multiply(square, x)
    wide = [node.emit(op.astype(each, "float64")) for each in node.inputs]
    return op.astype(node.emit(op.power(*wide)), base)
