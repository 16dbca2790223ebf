# SPDX-License-Identifier: Apache-2.0
"""LayerNormalization."""

from __future__ import annotations

from typing import Any

from umakit import tvm_api
from umakit.frontend.onnx.node import Node
from umakit.frontend.onnx.registry import STASH, converts

op = tvm_api.relax.op


@converts("LayerNormalization", "axis epsilon", ignored={"stash_type": STASH})
def layer_normalization(node: Node) -> Any | None:
    """LayerNormalization with the outputs Mean and InvStdDev, or of float64.

    Mean and InvStdDev are float32 with size 1 along reduced axes. TVM converts float32 with output
    Y only.
    """
    shape, dtype = node.shape(0), node.dtype(0)
    names = [*node.proto.output, "", ""]
    if not any(names[1:3]) and dtype != "float64":
        return None
    axis = int(node.attribute("axis", -1))
    if not -len(shape) <= axis < len(shape) or dtype not in ("float32", "float64"):
        raise node.refuse(f"has axis={axis} and an input {dtype}{list(shape)}")
    axes = list(range(axis % len(shape), len(shape)))
    epsilon = tvm_api.relax.const(float(node.attribute("epsilon", 1e-5)), dtype)
    mean = node.emit(op.mean(node.inputs[0], axes, keepdims=True))
    centered = node.emit(op.subtract(node.inputs[0], mean))
    squares = node.emit(op.multiply(centered, centered))
    variance = node.emit(op.mean(squares, axes, keepdims=True))
    deviation = node.emit(op.sqrt(node.emit(op.add(variance, epsilon))))
    result = node.emit(op.multiply(op.divide(centered, deviation), node.inputs[1]))
    if node.input(2) is not None:
        result = node.emit(op.add(result, node.inputs[2]))
    inverse = node.emit(op.divide(tvm_api.relax.const(1.0, dtype), deviation))
    statistics = [mean, inverse]
    if dtype != "float32":
        statistics = [node.emit(op.astype(value, "float32")) for value in statistics]
    return [result, *statistics]
