# SPDX-License-Identifier: Apache-2.0
"""Reductions over no axis, and sums of exponentials of infinite numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.frontend.onnx.node import Node
from umakit.frontend.onnx.registry import converts

op = tvm_api.relax.op

ELEMENTWISE: dict[str, Callable[[Any], Any]] = {
    "ReduceL1": op.abs,
    "ReduceL2": op.abs,
    "ReduceLogSum": op.log,
    "ReduceLogSumExp": lambda x: x,
    "ReduceMax": lambda x: x,
    "ReduceMean": lambda x: x,
    "ReduceMin": lambda x: x,
    "ReduceProd": lambda x: x,
    "ReduceSum": lambda x: x,
    "ReduceSumSquare": lambda x: op.multiply(x, x),
}
"""Elementwise function that each reduction computes if it reduces over no axis."""


REDUCTION = "axes keepdims noop_with_empty_axes"
"""Attributes of all reductions, in some opset."""


def _axes(node: Node) -> list[int]:
    """Return the axes of a reduction; empty if none are given.

    Raises:
        ModelError: the axes are computed at run time or out of range.
    """
    given = node.attribute("axes", ())
    if node.input(1) is not None:
        array = node.constant(1)
        if array is None:
            raise node.refuse(
                "has axes that are computed at run time, which is not supported",
                fix="make them constants",
            )
        given = array.reshape(-1).tolist()
    rank = len(node.shape(0))
    wrong = [axis for axis in given if not -rank <= axis < rank]
    if wrong:
        raise node.refuse(f"has the axis {wrong[0]}, but its input has {rank} dimensions")
    return [int(axis) % rank for axis in given]


@converts(" ".join(set(ELEMENTWISE) - {"ReduceLogSumExp"}), REDUCTION)
def reduction(node: Node) -> Any | None:
    """Reduction over no axis, which only transforms each element. TVM converts other reductions."""
    if not node.dtype(0):
        return None
    axes = _axes(node)
    if not axes and node.attribute("noop_with_empty_axes", 0):
        return ELEMENTWISE[node.proto.op_type](node.inputs[0])
    return None


@converts("ReduceLogSumExp", REDUCTION)
def log_sum_exp(node: Node) -> Any | None:
    """ReduceLogSumExp: `log(sum(exp(x - m))) + m`, where m is the largest finite element or 0."""
    result = reduction(node)
    if result is not None or not node.dtype(0).startswith("float"):
        return result
    x, dtype = node.inputs[0], node.dtype(0)
    axes = _axes(node) or list(range(len(node.shape(0))))
    zero = tvm_api.relax.const(0.0, dtype)
    largest = node.emit(op.max(x, axes, True))
    infinite = op.equal(op.abs(largest), tvm_api.relax.const(np.inf, dtype))
    offset = node.emit(op.where(infinite, zero, largest))
    total = op.log(op.sum(op.exp(op.subtract(x, offset)), axes, True))
    result = op.add(total, offset)
    return result if node.attribute("keepdims", 1) else op.squeeze(result, axes)
