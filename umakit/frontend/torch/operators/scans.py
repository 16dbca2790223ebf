# SPDX-License-Identifier: Apache-2.0
"""Running sums and products along a dimension."""

from __future__ import annotations

from collections.abc import Callable

from umakit.frontend.torch.operands import axis_of, op, operand
from umakit.frontend.torch.registry import Arguments, Conversion, Expr, Graph, Node, converts


def _scan(function: Callable[..., Expr]) -> Conversion:
    def convert(graph: Graph, node: Node, given: Arguments) -> Expr:
        shape, dtype = graph.type_of(node)
        value = operand(graph, given["self"], dtype)
        return function(value, axis_of(graph, node, given["dim"]), dtype) if shape else value

    return convert


converts("cumsum.default", "self dim dtype")(_scan(op.cumsum))
converts("cumprod.default", "self dim dtype")(_scan(op.cumprod))
