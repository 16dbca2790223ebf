# SPDX-License-Identifier: Apache-2.0
"""CumSum."""

from __future__ import annotations

from umakit import tvm_api
from umakit.frontend.onnx.node import Node
from umakit.frontend.onnx.registry import converts

op = tvm_api.relax.op


@converts("CumSum", "exclusive reverse")
def cumulative_sum(node: Node) -> tvm_api.Expr:
    """Cumulative sum along a constant axis; `reverse` sums from the end.

    Elements are added in their order, or in reverse order, as in ONNX Runtime.
    """
    shape, given = node.shape(0), node.constant_input(1, "axis")
    axis = int(given.reshape(-1)[0]) if given is not None and given.size == 1 else len(shape)
    if not -len(shape) <= axis < len(shape):
        raise node.refuse(f"has the axis {axis}, but its input has {len(shape)} dimensions")
    axis %= len(shape)
    data, reverse = node.inputs[0], bool(node.attribute("reverse", 0))
    if reverse:
        data = node.emit(op.flip(data, axis))
    exclusive = bool(node.attribute("exclusive", 0))
    total = op.cumsum(data, axis, node.dtype(0), exclusive=exclusive)
    return op.flip(node.emit(total), axis) if reverse else total
