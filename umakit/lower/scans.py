# SPDX-License-Identifier: Apache-2.0
"""CPU kernels that go along an axis one element after the other: running sums, and the top k."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from umakit import tvm_api
from umakit.lower.integer.loops import buffer, int32, kernel, loop, loops, sequence

relax, tirx = tvm_api.relax, tvm_api.tirx

Rule = Callable[[Any, Any], Any]
"""(block builder, call) -> call_tir."""


def rules() -> dict[str, Rule]:
    """Rules for `LegalizeOps`, by operator; TVM has none for C."""
    return {"relax.cumsum": _cumsum, "relax.topk": _topk}


def _shape_of(call: Any) -> tuple[int, ...]:
    shape = tvm_api.static_shape(call.args[0])
    if shape is None:
        raise ValueError("an operand has no static shape")
    return shape


def _along(
    shape: Sequence[int], axis: int, body: Callable[[Callable[[Any], list[Any]]], Any]
) -> Any:
    """Loops over all lines along an axis.

    Args:
        shape: of the tensor.
        axis: of the lines.
        body: from (position on the axis -> indices of the element) to statements.
    """
    others = [(f"i{number}", size) for number, size in enumerate(shape) if number != axis]

    def line(*place: Any) -> Any:
        return body(lambda at: [*place[:axis], at, *place[axis:]])

    return loops(others, line)


def _cumsum(builder: Any, call: Any) -> Any:
    """Sums of the elements up to each one, or before it, added in their order in one dtype."""
    shape, attributes = _shape_of(call), call.attrs
    source, dtype = tvm_api.dtype_of(call.args[0]), tvm_api.dtype_of(call)
    if attributes.axis is None:
        if len(shape) != 1:
            raise ValueError("a running sum over all axes of several")
        axis = 0
    else:
        axis = int(attributes.axis) % len(shape)
    data, output = buffer("data", shape, source), buffer("output", shape, dtype)
    exclusive = bool(attributes.exclusive)

    def line(at: Callable[[Any], list[Any]]) -> Any:
        def element(position: Any) -> Any:
            return data[tuple(at(position))].astype(dtype)

        def step(number: Any) -> Any:
            before, here = number, number + int32(1)
            added = element(before if exclusive else here)
            return tirx.BufferStore(output, output[tuple(at(before))] + added, at(here))

        zero = int32(0)
        first = tirx.const(0, dtype) if exclusive else element(zero)
        start = tirx.BufferStore(output, first, at(zero))
        return sequence(start, loop("step", shape[axis] - 1, step)) if shape[axis] > 1 else start

    body = _along(shape, axis, line)
    variable = builder.add_func(kernel([data, output], body), "cumsum")
    return relax.call_tir(variable, relax.Tuple([call.args[0]]), call.ty)


def _topk(builder: Any, call: Any) -> Any:
    """The k largest or smallest elements in order, and where they are.

    Of equal elements the first one comes first. NaN is larger than every number. Elements are
    inserted into the result one by one, with no position that depends on data.
    """
    shape, attributes = _shape_of(call), call.attrs
    if str(attributes.ret_type) != "both":
        raise ValueError("one result of top k alone")
    axis = int(attributes.axis) % len(shape)
    fields = list(call.ty.fields)
    dtypes = [str(field.dtype) for field in fields]
    results = [tvm_api.static_type_shape(field) for field in fields]
    if results[0] is None:
        raise ValueError("k is not known")
    count = results[0][axis]
    data = buffer("data", shape, dtypes[0])
    values = buffer("values", results[0], dtypes[0])
    indices = buffer("indices", results[0], dtypes[1])
    carried = tirx.decl_buffer([1], dtypes[0], "value", scope="local")
    origin = tirx.decl_buffer([1], dtypes[1], "index", scope="local")
    largest = bool(attributes.largest)

    def line(at: Callable[[Any], list[Any]]) -> Any:
        def insert(number: Any) -> Any:
            def place(rank: Any) -> Any:
                here, zero = at(rank), int32(0)
                kept, kept_at = values[tuple(here)], indices[tuple(here)]
                put = sequence(
                    tirx.BufferStore(values, carried[zero], here),
                    tirx.BufferStore(indices, origin[zero], here),
                )
                first = _precedes((carried[zero], origin[zero]), (kept, kept_at), largest)
                value, other = tirx.Var("other", dtypes[0]), tirx.Var("other_index", dtypes[1])
                swap = sequence(
                    tirx.Bind(value, kept), tirx.Bind(other, kept_at), put,
                    tirx.BufferStore(carried, value, [zero]),
                    tirx.BufferStore(origin, other, [zero]),
                )  # fmt: skip
                filled = tirx.IfThenElse(first, swap, None)
                return tirx.IfThenElse(
                    rank < number, filled, tirx.IfThenElse(tirx.EQ(rank, number), put, None)
                )

            return sequence(
                tirx.BufferStore(carried, data[tuple(at(number))], [int32(0)]),
                tirx.BufferStore(origin, number.astype(dtypes[1]), [int32(0)]),
                loop("rank", count, place),
            )

        return loop("number", shape[axis], insert)

    body = _along(shape, axis, line)
    body = sequence(tirx.AllocBuffer(carried), tirx.AllocBuffer(origin), body)
    variable = builder.add_func(kernel([data, values, indices], body), "topk")
    return relax.call_tir(variable, relax.Tuple([call.args[0]]), fields)


def _precedes(left: tuple[Any, Any], right: tuple[Any, Any], largest: bool) -> Any:
    """Whether one (value, index) comes before another one in the result."""
    (a, i), (b, j) = left, right
    better = a > b if largest else a < b
    equal = tirx.EQ(a, b)
    if tvm_api.dtype_of(a).startswith("float"):
        a_nan, b_nan = tirx.isnan(a), tirx.isnan(b)
        alone = tirx.And(a_nan, tirx.Not(b_nan)) if largest else tirx.And(b_nan, tirx.Not(a_nan))
        better = tirx.Or(better, alone)
        equal = tirx.Or(equal, tirx.And(a_nan, b_nan))
    return tirx.Or(better, tirx.And(equal, i < j))
