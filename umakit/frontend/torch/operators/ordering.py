# SPDX-License-Identifier: Apache-2.0
"""Elements in order: topk, sort, the k-th value.

Equal elements are in the order of their positions, which torch guarantees only for stable sorts.
NaN is larger than every number. `sorted=False` allows any order; results are sorted too.
"""

from __future__ import annotations

from umakit.frontend.torch.operands import axis_of, op, relax
from umakit.frontend.torch.registry import Arguments, Expr, Graph, Node, converts


@converts("topk.default", "self k dim largest sorted")
def _topk(graph: Graph, node: Node, given: Arguments) -> Expr:
    return _first(graph, node, given, given["k"], bool(given["largest"]))


@converts("sort.default sort.stable", "self stable dim descending")
def _sort(graph: Graph, node: Node, given: Arguments) -> Expr:
    shape, _ = graph.type_of(given["self"])
    count = shape[given["dim"]] if shape else 1
    return _first(graph, node, given, count, bool(given["descending"]))


@converts("kthvalue.default", "self k dim keepdim")
def _kth_value(graph: Graph, node: Node, given: Arguments) -> Expr:
    smallest = graph.block_builder.emit(_first(graph, node, given, given["k"], False))
    axis, last = axis_of(graph, given["self"], given["dim"]), given["k"] - 1
    fields = []
    for number, (shape, _) in enumerate(graph.types_of(node)):
        field: Expr = relax.TupleGetItem(smallest, number)
        if graph.type_of(given["self"])[0]:
            field = op.strided_slice(field, [axis], [last], [last + 1])
        fields.append(graph.block_builder.emit(op.reshape(field, list(shape))))
    return relax.Tuple(fields)


def _first(graph: Graph, node: Node, given: Arguments, count: int, largest: bool) -> Expr:
    """Return the first `count` elements and their positions, as a tuple."""
    value, (shape, dtype) = graph.value(given["self"]), graph.type_of(given["self"])
    if dtype == "bool" or count < 1:
        raise graph.refuse(node, f"takes {count} elements of {dtype}, which is not supported")
    axis = axis_of(graph, given["self"], given["dim"])
    if shape:
        return op.topk(value, count, axis, "both", largest, "int64")
    both = graph.block_builder.emit(op.topk(op.reshape(value, [1]), 1, 0, "both", largest, "int64"))
    fields = [op.reshape(relax.TupleGetItem(both, number), []) for number in range(2)]
    return relax.Tuple([graph.block_builder.emit(field) for field in fields])
