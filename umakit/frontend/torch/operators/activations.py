# SPDX-License-Identifier: Apache-2.0
"""Activations, and selections by a condition."""

from __future__ import annotations

from umakit.frontend.torch.operands import constant, expm1, op, operand
from umakit.frontend.torch.registry import Arguments, Expr, Graph, Node, converts, left_to_tvm

left_to_tvm("_log_softmax.default _softmax.default", "self dim")
left_to_tvm("gelu.default", "self approximate")
left_to_tvm("leaky_relu.default", "self negative_slope")
left_to_tvm("relu.default sigmoid.default", "self")
left_to_tvm("where.self", "condition self other")


@converts("clamp.default", "self min max")
def _clamp(graph: Graph, node: Node, given: Arguments) -> Expr:
    return _clipped(graph, node, given["self"], given["min"], given["max"])


@converts("hardtanh.default", "self min_val max_val")
def _hardtanh(graph: Graph, node: Node, given: Arguments) -> Expr:
    return _clipped(graph, node, given["self"], given["min_val"], given["max_val"])


def _clipped(
    graph: Graph, node: Node, source: Node, least: float | None, most: float | None
) -> Expr:
    dtype = graph.type_of(node)[1]
    value = operand(graph, source, dtype)
    if (least, most) == (0, None):
        return op.nn.relu(value)
    if least is not None and most is not None and least <= most:
        return op.clip(value, least, most)
    if least is not None:
        value = op.maximum(value, constant(least, dtype))
    return value if most is None else op.minimum(value, constant(most, dtype))


@converts("elu.default", "self alpha scale input_scale")
def _elu(graph: Graph, node: Node, given: Arguments) -> Expr:
    dtype = graph.type_of(node)[1]
    value = operand(graph, given["self"], dtype)
    scaled = value
    if given["input_scale"] != 1:
        scaled = op.multiply(value, constant(given["input_scale"], dtype))
    below = op.multiply(expm1(scaled, dtype), constant(given["alpha"] * given["scale"], dtype))
    above = value
    if given["scale"] != 1:
        above = op.multiply(value, constant(given["scale"], dtype))
    return op.where(op.greater(value, constant(0, dtype)), above, below)
