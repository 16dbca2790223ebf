# SPDX-License-Identifier: Apache-2.0
"""Reductions, cumulative sums, and elements in order: topk, sort, the k-th value.

Of equal elements the first come first, which torch guarantees only for stable sorts. NaN is larger
than every number. `sorted=False` allows any order; results are sorted too."""

from __future__ import annotations

import math
from collections.abc import Callable

from umakit.frontend.torch.registry import (
    Arguments,
    Conversion,
    Expr,
    Graph,
    Node,
    axis_of,
    cast,
    constant,
    converts,
    left_to_tvm,
    moments,
    op,
    operand,
    reduced_axes,
)
from umakit.tvm_api import relax

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
        """Return extreme elements, NaN among them, and the position of the first of each."""
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


def _scan(function: Callable[..., Expr]) -> Conversion:
    def convert(graph: Graph, node: Node, given: Arguments) -> Expr:
        shape, dtype = graph.type_of(node)
        value = operand(graph, given["self"], dtype)
        return function(value, axis_of(graph, node, given["dim"]), dtype) if shape else value

    return convert


converts("cumsum.default", "self dim dtype")(_scan(op.cumsum))
converts("cumprod.default", "self dim dtype")(_scan(op.cumprod))


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
    value, (shape, dtype) = graph.value(given["self"]), graph.type_of(given["self"])
    if dtype == "bool" or count < 1:
        raise graph.refuse(node, f"takes {count} elements of {dtype}, which is not supported")
    axis = axis_of(graph, given["self"], given["dim"])
    if shape:
        return op.topk(value, count, axis, "both", largest, "int64")
    both = graph.block_builder.emit(op.topk(op.reshape(value, [1]), 1, 0, "both", largest, "int64"))
    fields = (op.reshape(relax.TupleGetItem(both, number), []) for number in range(2))
    return relax.Tuple([graph.block_builder.emit(field) for field in fields])
