# SPDX-License-Identifier: Apache-2.0
"""Functions of single elements: activations, elementary functions, tests, selections."""

from __future__ import annotations

from umakit.frontend.torch.registry import (
    Arguments,
    Expr,
    Graph,
    Node,
    constant,
    constants,
    converts,
    expm1,
    left_to_tvm,
    op,
    operand,
)

left_to_tvm("_log_softmax.default _softmax.default", "self dim")
left_to_tvm("gelu.default", "self approximate")
left_to_tvm("leaky_relu.default", "self negative_slope")
left_to_tvm("relu.default sigmoid.default", "self")
left_to_tvm("where.self", "condition self other")


@converts("clamp.default", "self min max")
@converts("hardtanh.default", "self min_val max_val")
def _clipped(graph: Graph, node: Node, given: Arguments) -> Expr:
    least, most = (given.get(end, given.get(f"{end}_val")) for end in ("min", "max"))
    dtype = graph.type_of(node)[1]
    value = operand(graph, given["self"], dtype)
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


left_to_tvm(
    "abs.default acos.default asin.default atan.default ceil.default cos.default cosh.default "
    "erf.default exp.default floor.default isinf.default isnan.default log.default neg.default "
    "reciprocal.default round.default rsqrt.default sin.default sinh.default sqrt.default "
    "tan.default tanh.default trunc.default",
    "self",
)


@converts("expm1.default", "self")
def _expm1(graph: Graph, node: Node, given: Arguments) -> Expr:
    dtype = graph.type_of(node)[1]
    return expm1(operand(graph, given["self"], dtype), dtype)


@converts("log1p.default", "self")
def _log1p(graph: Graph, node: Node, given: Arguments) -> Expr:
    """log(1 + x). For small x, the identity 2 artanh(x / (x + 2)) avoids cancellation.

    Kahan's formula fails here: TVM simplifies (1 + x) - 1 to x.
    """
    dtype = graph.type_of(node)[1]
    value, one, two = operand(graph, given["self"], dtype), *constants(dtype, 1, 2)
    small = op.multiply(two, op.atanh(op.divide(value, op.add(value, two))))
    is_small = op.less(op.abs(value), constant(0.5, dtype))
    return op.where(is_small, small, op.log(op.add(value, one)))


@converts("sign.default", "self")
def _sign(graph: Graph, node: Node, given: Arguments) -> Expr:
    """Sign as (0 < x) - (x < 0), as in torch: 0 for NaN."""
    dtype = graph.type_of(node)[1]
    value = operand(graph, given["self"], dtype)
    sign = op.sign(value)
    if not dtype.startswith("float"):
        return sign
    return op.where(op.isnan(value), constant(0, dtype), sign)
