# SPDX-License-Identifier: Apache-2.0
"""Remainders of integers, which have the sign of the divisor."""

from __future__ import annotations

from umakit.frontend.torch.operands import op, operand
from umakit.frontend.torch.registry import Arguments, Expr, Graph, Node, converts


@converts("remainder.Scalar remainder.Tensor", "self other")
def _remainder(graph: Graph, node: Node, given: Arguments) -> Expr:
    dtype = graph.type_of(node)[1]
    if "int" not in dtype:
        raise graph.refuse(node, f"of {dtype} is not supported", "take remainders of integers")
    return op.floor_mod(operand(graph, given["self"], dtype), operand(graph, given["other"], dtype))
