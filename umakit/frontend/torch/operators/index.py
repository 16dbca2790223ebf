# SPDX-License-Identifier: Apache-2.0
"""Elements by tensors of numbers: `x[i]`, `x[i] = y`, gather, scatter, rows of a table, one-hot.

Constant indices out of range are refused; computed ones end a run with a status. Gather and scatter
take no negative indices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from umakit.frontend.torch.registry import (
    Arguments,
    Expr,
    Graph,
    Node,
    axis_of,
    check_index,
    constant,
    converts,
    op,
    operand,
)
from umakit.tvm_api import relax

Used = list[tuple[int, Node]]
"""Dimensions that have an index, ascending, each with it."""


@converts("index.Tensor", "self indices")
def _index(graph: Graph, node: Node, given: Arguments) -> Expr:
    """Elements at integer indices. Negative indices count from the end."""
    used = _used(graph, node, given)
    shapes = [graph.type_of(index)[0] for _, index in used]
    axes = [axis for axis, _ in used]
    value, shape = graph.value(given["self"]), graph.type_of(given["self"])[0]
    if len(used) == 1 or (_is_adjacent(axes) and _are_of_one_dimension_each(shapes)):
        for axis, index in reversed(used):
            numbers = _from_the_start(graph, index, shape[axis])
            if len(used) > 1:
                numbers = op.reshape(numbers, [math.prod(graph.type_of(index)[0])])
            value = graph.block_builder.emit(op.take(value, numbers, axis=axis, mode="fast"))
        return value
    rest = [axis for axis in range(len(shape)) if axis not in axes]
    emit = graph.block_builder.emit
    value = emit(op.permute_dims(value, [*axes, *rest]))
    numbers = emit(relax.Tuple([graph.value(index) for _, index in used]))
    value = op.index_tensor(value, numbers)
    if not _is_adjacent(axes) or axes[0] == 0:
        return value
    # Dimensions of adjacent indices stay in place; otherwise they come first.
    chosen = len(np.broadcast_shapes(*shapes))
    before = range(chosen, chosen + axes[0])
    after = range(chosen + axes[0], chosen + len(rest))
    return op.permute_dims(emit(value), [*before, *range(chosen), *after])


@converts("index_put.default", "self indices values accumulate")
def _index_put(graph: Graph, node: Node, given: Arguments) -> Expr:
    """Return a copy with elements of the first dimensions replaced or added to."""
    used, (shape, _) = _used(graph, node, given), graph.type_of(given["self"])
    if [axis for axis, _ in used] != list(range(len(used))):
        raise graph.refuse(node, "writes to all of a dimension before one with an index")
    emit, rest = graph.block_builder.emit, shape[len(used) :]
    chosen = np.broadcast_shapes(*(graph.type_of(index)[0] for _, index in used))
    indices = []
    for axis, index in used:
        numbers = emit(op.broadcast_to(_from_the_start(graph, index, shape[axis]), chosen))
        indices.append(emit(op.expand_dims(op.astype(numbers, "int64"), [len(chosen)])))
    places = emit(op.concat(indices, axis=-1)) if len(indices) > 1 else indices[0]
    values = emit(op.broadcast_to(graph.value(given["values"]), (*chosen, *rest)))
    reduction = "add" if given["accumulate"] else "update"
    return op.scatter_nd(graph.value(given["self"]), places, values, reduction)


def _used(graph: Graph, node: Node, given: Arguments) -> Used:
    """Return (axis, index) pairs. Constant indices are checked."""
    used = [(axis, index) for axis, index in enumerate(given["indices"]) if index is not None]
    for axis, index in used:
        if graph.type_of(index)[1] not in ("int32", "int64"):
            raise graph.refuse(node, "has an index other than tensors of integers")
        extent = graph.type_of(given["self"])[0][axis]
        check_index(graph, node, graph.value(index), (-extent, extent))
    return used


def _from_the_start(graph: Graph, index: Node, size: int) -> Expr:
    numbers, dtype = graph.value(index), graph.type_of(index)[1]
    is_negative = op.less(numbers, constant(0, dtype))
    return op.where(is_negative, op.add(numbers, constant(size, dtype)), numbers)


def _is_adjacent(axes: Sequence[int]) -> bool:
    return axes[-1] - axes[0] == len(axes) - 1


def _are_of_one_dimension_each(shapes: Sequence[tuple[int, ...]]) -> bool:
    """Return whether the n-th of n indices varies along the n-th of n dimensions only."""
    count = len(shapes)
    padded = [(1,) * (count - len(shape)) + shape for shape in shapes]
    return all(
        len(shape) == count and math.prod(shape) == shape[number]
        for number, shape in enumerate(padded)
    )


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
@converts("scatter.value", "self dim index value")
@converts("scatter_reduce.two", "self dim index src reduce")
def _scattered(graph: Graph, node: Node, given: Arguments) -> Expr:
    """Scatter into a copy. The index tensor may be smaller than data and values."""
    adds = node.target.__name__.startswith("scatter_add")
    reduction = "add" if adds else "update"
    if "reduce" in given:
        if given["reduce"] not in REDUCTIONS:
            raise graph.refuse(node, f"has reduce={given['reduce']}, which is not supported")
        reduction = REDUCTIONS[given["reduce"]]
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
    cut = [axis for axis in axes if wanted[axis] != shape[axis]]
    if not cut:
        return value
    return op.strided_slice(value, cut, [0] * len(cut), [wanted[axis] for axis in cut])


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


@converts("one_hot.default", "self num_classes", decomposed=False)
def _one_hot(graph: Graph, node: Node, given: Arguments) -> Expr:
    """One-hot int64[..., classes]. A class out of range ends a run with a status."""
    numbers, count = graph.value(given["self"]), graph.type_of(node)[0][-1]
    check_index(graph, node, numbers, (0, count))
    classes = relax.const(np.arange(count, dtype=np.int64), "int64")
    # The table lookup checks the range of each class.
    looked_up = graph.block_builder.emit(op.take(classes, numbers, axis=0, mode="fast"))
    return op.astype(op.equal(op.expand_dims(looked_up, [-1]), classes), "int64")
