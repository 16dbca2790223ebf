# SPDX-License-Identifier: Apache-2.0
"""Elements by number: rows of a table, elements along dimensions."""

from __future__ import annotations

from typing import Any

from umakit import tvm_api
from umakit.frontend.torch.operands import (
    constant,
    op,
)
from umakit.frontend.torch.registry import (
    Arguments,
    Expr,
    Graph,
    Node,
    converts,
)


@converts("embedding.default", "weight indices padding_idx scale_grad_by_freq sparse")
def _embedding(graph: Graph, node: Node, given: Arguments) -> Expr:
    """Rows by number, which is never negative."""
    rows = graph.value(given["indices"])
    _check_constant(graph, node, rows, (0, graph.type_of(given["weight"])[0][0]))
    return op.take(graph.value(given["weight"]), rows, axis=0, mode="fast")


def _check_constant(graph: Graph, node: Node, index: Any, limits: tuple[int, int]) -> None:
    """Refuse a constant index that is not from the first limit to below the second one.

    Others are checked in C.
    """
    values = tvm_api.constant_array(index)
    if values is None or not values.size:
        return
    least, end = limits
    outside = values[(values < least) | (values >= end)]
    if outside.size:
        raise graph.refuse(
            node,
            f"has the index {outside.reshape(-1)[0]}, which is out of range for a size of {end}",
            "mend the constant indices in the model",
        )


@converts("index_select.default", "self dim index")
def _index_select(graph: Graph, node: Node, given: Arguments) -> Expr:
    axis = given["dim"] % len(graph.type_of(given["self"])[0])
    index = graph.value(given["index"])
    _check_constant(graph, node, index, (0, graph.type_of(given["self"])[0][axis]))
    return op.take(graph.value(given["self"]), index, axis=axis, mode="fast")


@converts("index.Tensor", "self indices")
def _index(graph: Graph, node: Node, given: Arguments) -> Expr:
    """Elements of one dimension by number, counted from the end where it is negative."""
    used = [(axis, index) for axis, index in enumerate(given["indices"]) if index is not None]
    (axis, index), several = used[0], used[1:]
    dtype = graph.type_of(index)[1]
    if several or dtype not in ("int32", "int64"):
        raise graph.refuse(node, "has an index other than one tensor of integers")
    extent = graph.type_of(given["self"])[0][axis]
    size = constant(extent, dtype)
    numbers = graph.value(index)
    _check_constant(graph, node, numbers, (-extent, extent))
    numbers = op.where(op.less(numbers, constant(0, dtype)), op.add(numbers, size), numbers)
    return op.take(graph.value(given["self"]), numbers, axis=axis, mode="fast")
