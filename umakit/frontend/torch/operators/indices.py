# SPDX-License-Identifier: Apache-2.0
"""Elements by number: rows of a table, elements along dimensions."""

from __future__ import annotations

from umakit.frontend.torch.operands import check_index, op
from umakit.frontend.torch.registry import Arguments, Expr, Graph, Node, converts


@converts("embedding.default", "weight indices padding_idx scale_grad_by_freq sparse")
def _embedding(graph: Graph, node: Node, given: Arguments) -> Expr:
    """Rows of a table at non-negative indices."""
    rows = graph.value(given["indices"])
    check_index(graph, node, rows, (0, graph.type_of(given["weight"])[0][0]))
    return op.take(graph.value(given["weight"]), rows, axis=0, mode="fast")


@converts("index_select.default", "self dim index")
def _index_select(graph: Graph, node: Node, given: Arguments) -> Expr:
    axis = given["dim"] % len(graph.type_of(given["self"])[0])
    index = graph.value(given["index"])
    check_index(graph, node, index, (0, graph.type_of(given["self"])[0][axis]))
    return op.take(graph.value(given["self"]), index, axis=axis, mode="fast")
