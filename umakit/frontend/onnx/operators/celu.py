# SPDX-License-Identifier: Apache-2.0
"""Celu."""

from __future__ import annotations

from umakit import tvm_api
from umakit.frontend.onnx.node import Node
from umakit.frontend.onnx.registry import converts

op = tvm_api.relax.op


@converts("Celu", "alpha")
def celu(node: Node) -> tvm_api.Expr:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)), float32 of any shape."""
    alpha, dtype = float(node.attribute("alpha", 1.0)), node.dtype(0)
    if alpha == 0 or not dtype.startswith("float"):
        raise node.refuse(f"has alpha={alpha} and an input of {dtype}")
    x, zero = node.inputs[0], tvm_api.relax.const(0.0, dtype)
    factor, one = (tvm_api.relax.const(value, dtype) for value in (alpha, 1.0))
    power = node.emit(op.exp(op.divide(x, factor)))
    negative = node.emit(op.multiply(factor, op.subtract(power, one)))
    return op.add(node.emit(op.maximum(x, zero)), node.emit(op.minimum(negative, zero)))
