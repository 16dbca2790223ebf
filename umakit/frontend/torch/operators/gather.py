# SPDX-License-Identifier: Apache-2.0
"""Elements along a dimension by a tensor of numbers for each: gather and scatter.

Negative indices are invalid: constant ones are refused, computed ones end a run with a status.
"""

from __future__ import annotations

from collections.abc import Sequence

from umakit.frontend.torch.operands import axis_of, check_index, constant, op, operand
from umakit.frontend.torch.registry import Arguments, Expr, Graph, Node, converts

REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
"""Reduction of Relax by `reduce` argument of scatter_reduce."""


@converts("gather.default", "self dim index sparse_grad")
def _gather(graph: Graph, node: Node, given: Arguments) -> Expr:
    """Gather. The index tensor may be smaller than the data along other dimensions."""
    value, index = graph.value(given["self"]), graph.value(given["index"])
    shape, wanted = (graph.type_of(given[name])[0] for name in ("self", "index"))
    if not shape:
        value, index = (op.reshape(each, [1]) for each in (value, index))
        return op.reshape(op.take(value, index, axis=0, mode="fast"), [])
    axis = axis_of(graph, given["self"], given["dim"])
    check_index(graph, node, index, (0, shape[axis]))
    others = [place for place in range(len(shape)) if place != axis]
    value = _first(value, shape, wanted, others)
    return op.gather_elements(value, index, axis)


@converts("scatter.src scatter_add.default", "self dim index src")
def _scatter(graph: Graph, node: Node, given: Arguments) -> Expr:
    adds = node.target.__name__.startswith("scatter_add")
    return _scattered(graph, node, given, "add" if adds else "update")


@converts("scatter.value", "self dim index value")
def _scatter_value(graph: Graph, node: Node, given: Arguments) -> Expr:
    return _scattered(graph, node, given, "update")


@converts("scatter_reduce.two", "self dim index src reduce")
def _scatter_reduce(graph: Graph, node: Node, given: Arguments) -> Expr:
    if given["reduce"] not in REDUCTIONS:
        raise graph.refuse(node, f"has reduce={given['reduce']}, which is not supported")
    return _scattered(graph, node, given, REDUCTIONS[given["reduce"]])


def _scattered(graph: Graph, node: Node, given: Arguments, reduction: str) -> Expr:
    """Scatter into a copy. The index tensor may be smaller than data and values."""
    shape, dtype = graph.type_of(given["self"])
    wanted, index_dtype = graph.type_of(given["index"])
    if not shape:
        raise graph.refuse(node, "scatters into a tensor without dimensions")
    axis = axis_of(graph, given["self"], given["dim"])
    index = graph.value(given["index"])
    check_index(graph, node, index, (0, shape[axis]))
    if "src" in given:
        source = graph.type_of(given["src"])[0]
        updates = _first(graph.value(given["src"]), source, wanted, range(len(source)))
    else:
        updates = op.broadcast_to(operand(graph, given["value"], dtype), list(wanted))
    # Relax counts negative indices from the end, so they are replaced by out-of-range indices.
    size, zero = constant(shape[axis], index_dtype), constant(0, index_dtype)
    index = op.where(op.less(index, zero), size, index)
    return op.scatter_elements(graph.value(given["self"]), index, updates, axis, reduction)


def _first(
    value: Expr, shape: tuple[int, ...], wanted: tuple[int, ...], axes: Sequence[int]
) -> Expr:
    """Return the first `wanted` elements along some axes."""
    cut = [axis for axis in axes if wanted[axis] != shape[axis]]
    if not cut:
        return value
    return op.strided_slice(value, cut, [0] * len(cut), [wanted[axis] for axis in cut])
