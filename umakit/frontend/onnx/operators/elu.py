# SPDX-License-Identifier: Apache-2.0
"""Elu."""

from __future__ import annotations

from umakit import tvm_api
from umakit.frontend.onnx.node import Node
from umakit.frontend.onnx.registry import converts

op = tvm_api.relax.op


@converts("Elu", "alpha")
def elu(node: Node) -> tvm_api.Expr:
    """alpha * (exp(x) - 1) below 0, else x. TVM adds two terms, which turns -0.0 into 0.0."""
    x, dtype = node.inputs[0], node.dtype(0)
    alpha, zero, one = (
        tvm_api.relax.const(value, dtype)
        for value in (float(node.attribute("alpha", 1.0)), 0.0, 1.0)
    )
    negative = op.multiply(alpha, node.emit(op.subtract(node.emit(op.exp(x)), one)))
    return op.where(node.emit(op.less(x, zero)), node.emit(negative), x)
