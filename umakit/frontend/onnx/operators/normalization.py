# SPDX-License-Identifier: Apache-2.0
"""GroupNormalization."""

from __future__ import annotations

from umakit import tvm_api
from umakit.frontend.onnx.node import Node
from umakit.frontend.onnx.registry import STASH, converts

relax = tvm_api.relax

PER_CHANNEL_SINCE = 21
"""First opset with scale and bias per channel; before, per group."""


@converts("GroupNormalization", "epsilon num_groups", ignored={"stash_type": STASH})
def group_normalization(node: Node) -> tvm_api.Expr:
    """GroupNormalization of float32 [N, C, ...], as three steps that are fused later."""
    shape, groups = node.shape(0), int(node.attribute("num_groups"))
    if node.dtype(0) != "float32" or len(shape) < 3 or groups < 1 or shape[1] % groups:
        raise node.refuse(
            f"has num_groups={groups} and an input {node.dtype(0)}{list(shape)}",
            "export the model with float32 and a divisor of the number of channels",
        )
    per_group = shape[1] // groups
    grouped = node.emit(relax.op.reshape(node.inputs[0], [shape[0], groups, -1]))
    mean = node.emit(relax.op.mean(grouped, [2], keepdims=True))
    centered = node.emit(relax.op.subtract(grouped, mean))
    squares = node.emit(relax.op.multiply(centered, centered))
    variance = node.emit(relax.op.mean(squares, [2], keepdims=True))
    epsilon = relax.const(node.attribute("epsilon", 1e-5), "float32")
    deviation = node.emit(relax.op.sqrt(node.emit(relax.op.add(variance, epsilon))))
    normal = node.emit(relax.op.divide(centered, deviation))
    normal = node.emit(relax.op.reshape(normal, shape))
    channels = [1, shape[1], *[1] * (len(shape) - 2)]
    factors = []
    for position in (1, 2):
        factor = node.inputs[position]
        expected = shape[1] if node.opset >= PER_CHANNEL_SINCE else groups
        if node.shape(position) != (expected,):
            raise node.refuse(
                f"has {node.shape(position)} values in its input {position}, not {expected}"
            )
        if node.opset < PER_CHANNEL_SINCE and per_group > 1:
            factor = node.emit(relax.op.repeat(factor, per_group, 0))
        factors.append(node.emit(relax.op.reshape(factor, channels)))
    return relax.op.add(node.emit(relax.op.multiply(normal, factors[0])), factors[1])
