# SPDX-License-Identifier: Apache-2.0
"""PRelu."""

from __future__ import annotations

from umakit import tvm_api
from umakit.frontend.onnx.node import Node
from umakit.frontend.onnx.registry import converts

relax = tvm_api.relax

BROADCAST_SINCE = 7
"""First opset with broadcast slopes; before, a vector of slopes lies along the channels."""


@converts("PRelu")
def prelu(node: Node) -> tvm_api.Expr:
    """PRelu of any opset: x for x >= 0, slope * x elsewhere."""
    data, slope = node.inputs
    shape, slopes = node.shape(0), node.shape(1)
    constant = node.constant(1)
    if constant is not None and constant.size == 1 and node.dtype(0) == "float32":
        return relax.op.nn.leakyrelu(data, float(constant.reshape(())))
    if node.opset < BROADCAST_SINCE and len(slopes) == 1 and slopes[0] > 1:
        axis = 1 if len(shape) > 1 else 0
        extents = [1] * len(shape)
        extents[axis] = slopes[0]
        slopes = tuple(extents)
        slope = node.emit(relax.op.reshape(slope, slopes))
    fits = len(slopes) <= len(shape) and all(
        one in (1, size) for one, size in zip(slopes[::-1], shape[::-1], strict=False)
    )
    if not fits:
        raise node.refuse(
            f"has slopes of shape {list(node.shape(1))}, which cannot be broadcast to its input "
            f"of shape {list(shape)}"
        )
    negative = relax.op.less(data, relax.const(0, node.dtype(0)))
    return relax.op.where(node.emit(negative), node.emit(relax.op.multiply(data, slope)), data)
