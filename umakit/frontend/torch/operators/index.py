# SPDX-License-Identifier: Apache-2.0
"""Elements by tensors of numbers for one dimension or several: `x[i]`, `x[:, i, j]`, `x[i] = y`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from umakit.frontend.torch.operands import check_index, constant, op, relax
from umakit.frontend.torch.registry import Arguments, Expr, Graph, Node, converts

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
    """Return (axis, index) pairs. Constant indices are checked.

    Raises:
        ModelError: an index is not a tensor of integers, or is out of range.
    """
    used = [(axis, index) for axis, index in enumerate(given["indices"]) if index is not None]
    for axis, index in used:
        if graph.type_of(index)[1] not in ("int32", "int64"):
            raise graph.refuse(node, "has an index other than tensors of integers")
        extent = graph.type_of(given["self"])[0][axis]
        check_index(graph, node, graph.value(index), (-extent, extent))
    return used


def _from_the_start(graph: Graph, index: Node, size: int) -> Expr:
    """Return indices with negative ones converted to count from the start."""
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
