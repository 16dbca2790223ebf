# SPDX-License-Identifier: Apache-2.0
"""Operators that move elements, copy them, or make constants of them."""

from __future__ import annotations

import numpy as np

from umakit.frontend.torch.quantization import in_front_of_dequantize, single_grid
from umakit.frontend.torch.registry import (
    Arguments,
    Expr,
    Graph,
    Node,
    axis_of,
    cast,
    converts,
    left_to_tvm,
    op,
)
from umakit.tvm_api import relax

left_to_tvm("cat.default", "tensors dim")
left_to_tvm("constant_pad_nd.default", "self pad value")
left_to_tvm("expand.default view.default", "self size")
left_to_tvm("flip.default permute.default", "self dims")
left_to_tvm("repeat.default", "self repeats")
left_to_tvm("slice.Tensor", "self dim start end step")
left_to_tvm("unsqueeze.default", "self dim")


@converts("squeeze.dims squeeze.dim squeeze.default _unsafe_view.default", "self dim size")
def _reshape(graph: Graph, node: Node, given: Arguments) -> Expr:
    return op.reshape(graph.value(given["self"]), list(graph.type_of(node)[0]))


@converts("select.int", "self dim index")
def _select(graph: Graph, node: Node, given: Arguments) -> Expr:
    """One slice of a dimension. TVM's conversion reads out of bounds for index -1."""
    sizes = graph.type_of(given["self"])[0]
    axis, index = given["dim"] % len(sizes), given["index"] % sizes[given["dim"]]
    part = op.strided_slice(graph.value(given["self"]), [axis], [index], [index + 1])
    return op.reshape(part, list(graph.type_of(node)[0]))


@converts("clone.default alias.default detach.default lift_fresh_copy.default", "self")
def _same(graph: Graph, node: Node, given: Arguments) -> Expr:
    return graph.value(given["self"])


@converts("_to_copy.default", "self dtype")
def _to_copy(graph: Graph, node: Node, given: Arguments) -> Expr:
    return cast(graph.value(given["self"]), graph.type_of(node)[1])


@converts("full_like.default", "self fill_value dtype")
def _full_like(graph: Graph, node: Node, given: Arguments) -> Expr:
    shape, dtype = graph.type_of(node)
    return relax.const(np.full(shape, given["fill_value"], dtype), dtype)


@converts("slice_scatter.default", "self src dim start end step")
def _slice_scatter(graph: Graph, node: Node, given: Arguments) -> Expr:
    """Return a copy with every `step`-th element between start and end replaced."""
    shape = graph.type_of(given["self"])[0]
    axis = axis_of(graph, given["self"], given["dim"])
    start, end, _ = slice(given["start"], given["end"]).indices(shape[axis])
    values = graph.value(given["src"])
    if end <= start:
        return graph.value(given["self"])
    limits = (relax.prim_value(number) for number in (start, end, given["step"]))
    return op.slice_scatter(graph.value(given["self"]), values, *limits, axis=axis)


@converts("split_with_sizes.default", "self split_sizes dim")
def _split(graph: Graph, node: Node, given: Arguments) -> Expr:
    """Split. Dequantized integers become slices, each of which stays a data movement."""
    value = graph.value(given["self"])
    if single_grid(graph.definition(value)) is None:
        return graph.by_tvm(node)
    ends = np.cumsum(given["split_sizes"]).tolist()
    axis = given["dim"] % len(graph.type_of(given["self"])[0])
    emit = graph.block_builder.emit
    slices = [
        emit(relax.op.strided_slice(value, [axis], [end - size], [end]))
        for size, end in zip(given["split_sizes"], ends, strict=True)
    ]
    return relax.Tuple([emit(in_front_of_dequantize(graph, part)) for part in slices])
