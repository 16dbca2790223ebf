# SPDX-License-Identifier: Apache-2.0
"""Shrink of integers, whose attributes are real numbers."""

from __future__ import annotations

from umakit import tvm_api
from umakit.frontend.onnx.node import Node
from umakit.frontend.onnx.registry import converts

op = tvm_api.relax.op


@converts("Shrink", "bias lambd")
def shrink(node: Node) -> tvm_api.Expr | None:
    """Shrink of integers, computed in float64 and truncated. TVM converts Shrink of floats."""
    x, dtype = node.inputs[0], node.dtype(0)
    if dtype.startswith("float"):
        return None
    limit, bias, zero = (
        tvm_api.relax.const(float(value), "float64")
        for value in (node.attribute("lambd", 0.5), node.attribute("bias", 0.0), 0.0)
    )
    real = node.emit(op.astype(x, "float64"))
    above = op.where(op.greater(real, limit), op.subtract(real, bias), zero)
    below = op.less(real, op.negative(limit))
    return op.astype(node.emit(op.where(below, op.add(real, bias), above)), dtype)
