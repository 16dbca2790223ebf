# SPDX-License-Identifier: Apache-2.0
"""Reductions."""

from __future__ import annotations

import math
from collections.abc import Callable

from umakit.frontend.torch.operands import (
    axis_of,
    cast,
    constant,
    moments,
    op,
    operand,
    reduced_axes,
    relax,
)
from umakit.frontend.torch.registry import (
    Arguments,
    Conversion,
    Expr,
    Graph,
    Node,
    converts,
    left_to_tvm,
)

left_to_tvm("argmax.default argmin.default", "self dim keepdim")


def _reduction(function: Callable[..., Expr]) -> Conversion:
    def convert(graph: Graph, node: Node, given: Arguments) -> Expr:
        dtype = graph.type_of(node)[1]
        value = operand(graph, given["self"], dtype)
        return function(value, reduced_axes(given), keepdims=bool(given.get("keepdim")))

    return convert


converts("mean.dim mean.default", "self dim keepdim dtype")(_reduction(op.mean))
converts("sum.dim_IntList sum.default", "self dim keepdim dtype")(_reduction(op.sum))
converts("amax.default", "self dim keepdim")(_reduction(op.max))
converts("amin.default", "self dim keepdim")(_reduction(op.min))


@converts("any.dim any.default any.dims", "self dim keepdim")
def _any(graph: Graph, node: Node, given: Arguments) -> Expr:
    truth = op.astype(cast(graph.value(given["self"]), "bool"), "int32")
    return op.astype(
        op.max(truth, reduced_axes(given), keepdims=bool(given.get("keepdim"))), "bool"
    )


@converts("var.correction", "self dim correction keepdim")
def _variance(graph: Graph, node: Node, given: Arguments) -> Expr:
    shape, dtype = graph.type_of(given["self"])
    axes = reduced_axes(given) or list(range(len(shape)))
    count = math.prod(shape[axis] for axis in axes)
    correction = 1 if given["correction"] is None else given["correction"]
    if count <= correction:
        raise graph.refuse(node, f"divides by zero: correction={correction} of {count} values")
    value = graph.value(given["self"])
    variance = moments(value, axes, graph.block_builder)[1]
    if correction:
        variance = op.multiply(variance, constant(count / (count - correction), dtype))
    return op.reshape(variance, graph.type_of(node)[0])


@converts("linalg_vector_norm.default", "self ord dim keepdim")
def _vector_norm(graph: Graph, node: Node, given: Arguments) -> Expr:
    value, keep = graph.value(given["self"]), bool(given["keepdim"])
    if given["ord"] == 1:
        return op.sum(op.abs(value), reduced_axes(given), keepdims=keep)
    if given["ord"] == math.inf:
        return op.max(op.abs(value), reduced_axes(given), keepdims=keep)
    if given["ord"] != 2:
        raise graph.refuse(node, f"has ord={given['ord']}, which is not supported")
    return op.sqrt(op.sum(op.multiply(value, value), reduced_axes(given), keepdims=keep))


def _extreme(value: Callable[..., Expr], place: Callable[..., Expr]) -> Conversion:
    def convert(graph: Graph, node: Node, given: Arguments) -> Expr:
        """Return the extreme elements and the position of the first of each. NaN counts as an
        extreme."""
        source, keep = graph.value(given["self"]), bool(given["keepdim"])
        if not graph.type_of(given["self"])[0]:
            raise graph.refuse(node, "is of a tensor without dimensions")
        axis = axis_of(graph, given["self"], given["dim"])
        emit = graph.block_builder.emit
        extreme = emit(value(source, [axis], keepdims=keep))
        return relax.Tuple([extreme, emit(place(source, axis, keepdims=keep))])

    return convert


converts("max.dim", "self dim keepdim")(_extreme(op.max, op.argmax))
converts("min.dim", "self dim keepdim")(_extreme(op.min, op.argmin))
