# SPDX-License-Identifier: Apache-2.0
"""CPU kernels of operators with index tensors: take, gather, scatter and indexed assignment.

TVM's kernels scatter into flattened tensors, where an index beyond one dimension silently falls
into the next row. These kernels keep all dimensions, so that `index_checks` can compare each index
with its own extent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.operators.kernels.loops import bound, buffer, kernel, loops, sequence
from umakit.tvm_api import int32

te = tvm_api.te
tirx = tvm_api.tirx

REDUCTIONS: dict[str, Callable[[tvm_api.Expr, tvm_api.Expr], tvm_api.Expr]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "mean": lambda old, new: (old + new) / 2,
    "min": tirx.min,
    "max": tirx.max,
}
"""New value of an element, as a function of the old value and the update, by reduction."""


def rules() -> dict[str, tvm_api.Legalization]:
    """Return the rules for `LegalizeOps` by operator."""
    return {
        "relax.gather_nd": _gather_nd,
        "relax.grad.take_backward": _take_backward,
        "relax.index_put": _index_put,
        "relax.index_tensor": _index_tensor,
        "relax.scatter_elements": _scatter_elements,
        "relax.scatter_nd": _scatter_nd,
        "relax.slice_scatter": _slice_scatter,
        "relax.take": _take,
    }


def _take(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
    """Lower `data[b, indices[k], r]` along an axis; TVM's rule warns that it may crash."""
    mode, axis = str(call.attrs.mode), call.attrs.axis
    if mode != "fast" or tvm_api.static_shape(call.args[1]) is None:
        return builder.call_te(tvm_api.topi.take, *call.args, axis, mode=mode)

    def take(data: te.Tensor, indices: te.Tensor) -> te.Tensor:
        first = 0 if axis is None else int(axis) % len(data.shape)
        inner = first + len(indices.shape)
        shape = [*data.shape[:first], *indices.shape, *data.shape[first + 1 :]]

        def element(*place: tvm_api.Expr) -> tvm_api.ExprOp:
            found = indices[place[first:inner]] if inner > first else indices[()]
            return data[(*place[:first], found, *place[inner:])]

        names = [f"ax{axis}" for axis in range(len(shape))]
        return te.compute(shape, element, "take", "injective", varargs_names=names)

    return builder.call_te(take, *call.args, primfunc_name_hint="take")


def _gather_nd(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
    """Lower `data[b, indices[b, k, :], r]` with batch axes b, index axes k and remaining axes r."""
    batch = int(call.attrs.batch_dims)

    def gather_nd(data: te.Tensor, indices: te.Tensor) -> te.Tensor:
        *outer, depth = (int(extent) for extent in indices.shape)
        rest = [int(extent) for extent in data.shape[batch + depth :]]

        def element(*place: tvm_api.Expr) -> tvm_api.ExprOp:
            first = place[: len(outer)]
            found = [indices[(*first, number)] for number in range(depth)]
            return data[(*place[:batch], *found, *place[len(outer) :])]

        names = [f"ax{axis}" for axis in range(len(outer) + len(rest))]
        return te.compute([*outer, *rest], element, "gather_nd", varargs_names=names)

    return builder.call_te(gather_nd, *call.args, primfunc_name_hint="gather_nd")


def _scatter_elements(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
    shapes = [_shape(operand) for operand in call.args]
    axis = int(call.attrs.axis) % len(shapes[0])
    reduction = str(call.attrs.reduction)

    def writes(data: Any, indices: Any, updates: Any, output: Any) -> tvm_api.Stmt:
        def write(*place: tvm_api.Expr) -> tvm_api.Stmt:
            index = _from_the_end(_signed(indices[place]), shapes[0][axis])
            bindings, index = bound("position", index)
            target = (*place[:axis], index, *place[axis + 1 :])
            return sequence(*bindings, _reduced(output, target, updates[place], reduction))

        return _over(shapes[1], write)

    return _scatter(builder, call, "scatter_elements", list(call.args), writes)


def _scatter_nd(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
    shapes = [_shape(operand) for operand in call.args]
    *outer, depth = shapes[1]
    rest = shapes[0][depth:]
    reduction = str(call.attrs.reduction)

    def writes(data: Any, indices: Any, updates: Any, output: Any) -> tvm_api.Stmt:
        def write(*place: tvm_api.Expr) -> tvm_api.Stmt:
            first, inside = place[: len(outer)], place[len(outer) :]
            found = [_signed(indices[(*first, int32(number))]) for number in range(depth)]
            return _reduced(output, (*found, *inside), updates[place], reduction)

        return _over((*outer, *rest), write)

    return _scatter(builder, call, "scatter_nd", list(call.args), writes)


def _fields(builder: tvm_api.BlockBuilder, indices: tvm_api.Expr) -> list[tvm_api.Expr]:
    """Return the tensors of a tuple of indices, or a single index tensor as a list."""
    if isinstance(indices, tvm_api.relax.Tuple):
        return list(indices.fields)
    if not isinstance(indices.ty, tvm_api.relax.TupleType):
        return [indices]
    numbers = range(len(indices.ty.fields))
    return [builder.emit(tvm_api.relax.TupleGetItem(indices, number)) for number in numbers]


def _index_tensor(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
    """Lower `data[i, j, ...]` with NumPy's semantics: indices are broadcast and may be negative."""
    operands = [call.args[0], *_fields(builder, call.args[1])]
    shape, *index_shapes = (_shape(operand) for operand in operands)
    chosen = np.broadcast_shapes(*index_shapes)
    result = (*chosen, *shape[len(index_shapes) :])

    def index_tensor(data: te.Tensor, *indices: te.Tensor) -> te.Tensor:
        def element(*place: tvm_api.Expr) -> tvm_api.ExprOp:
            first, inside = place[: len(chosen)], place[len(chosen) :]
            target = [
                _from_the_end(_signed(numbers(*_broadcast(first, given))), extent)
                for numbers, given, extent in zip(indices, index_shapes, shape, strict=False)
            ]
            return data[(*target, *inside)]

        names = [f"ax{axis}" for axis in range(len(result))]
        return te.compute(result, element, "index_tensor", varargs_names=names)

    return builder.call_te(index_tensor, *operands, primfunc_name_hint="index_tensor")


def _index_put(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
    """Lower `data[i, j, ...] = values` with NumPy's broadcast of indices and values.

    Unlike in NumPy, fewer indices than dimensions are allowed only by TVM's type rules.
    """
    data, indices, values = call.args
    operands = [data, *_fields(builder, indices), values]
    shape, *index_shapes, given = (_shape(operand) for operand in operands)
    chosen = np.broadcast_shapes(*index_shapes)
    rest = shape[len(index_shapes) :]
    if np.broadcast_shapes((*chosen, *rest), given) != (*chosen, *rest):
        raise ValueError("more values than positions")
    reduction = "add" if call.attrs.accumulate else "update"

    def writes(data: tvm_api.Buffer, *others: tvm_api.Buffer) -> tvm_api.Stmt:
        *positions, update, output = others

        def write(*place: tvm_api.Expr) -> tvm_api.Stmt:
            first, inside = place[: len(chosen)], place[len(chosen) :]
            bindings, target = [], []
            for axis, position in enumerate(positions):
                index = _signed(position[_broadcast(first, index_shapes[axis])])
                statements, index = bound("position", _from_the_end(index, shape[axis]))
                bindings += statements
                target.append(index)
            value = update[_broadcast(place, given)]
            return sequence(*bindings, _reduced(output, (*target, *inside), value, reduction))

        return _over((*chosen, *rest), write)

    return _scatter(builder, call, "index_put", operands, writes)


def _broadcast(place: Sequence[tvm_api.Expr], shape: Sequence[int]) -> tuple[tvm_api.Expr, ...]:
    """Return the indices into an operand that is broadcast to a larger shape."""
    last = place[len(place) - len(shape) :]
    return tuple(int32(0) if extent == 1 else at for at, extent in zip(last, shape, strict=True))


def _take_backward(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
    """Lower the gradient of `take`: add each slice to zeros at its index."""
    gradient, data, indices = call.args
    shape, places = _shape(data), _shape(gradient)
    axis = int(call.attrs.axis or 0) % len(shape)
    if len(_shape(indices)) != 1 or (call.attrs.axis is None and len(shape) != 1):
        raise ValueError("indices of several dimensions, or of flattened data")

    def writes(slices: Any, numbers: Any, output: Any) -> tvm_api.Stmt:
        def write(*place: tvm_api.Expr) -> tvm_api.Stmt:
            bindings, index = bound("position", _signed(numbers[place[axis]]))
            target = (*place[:axis], index, *place[axis + 1 :])
            return sequence(*bindings, _reduced(output, target, slices[place], "add"))

        return _over(places, write)

    def clear(output: Any, *_: Any) -> tvm_api.Stmt:
        return _over(shape, lambda *i: tirx.BufferStore(output, tirx.const(0, dtype), list(i)))

    dtype = tvm_api.dtype_of(data)
    output = buffer("output", shape, dtype)
    return _writing(builder, call, "take_backward", [gradient, indices], output, clear, writes)


def _slice_scatter(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
    """Lower the replacement of a slice; TVM's rule reads outside the slice's values."""
    data, values, *limits = call.args
    start, end, step = (tvm_api.integer_value(limit) for limit in limits)
    shape, given = _shape(data), _shape(values)
    axis = int(call.attrs.axis) % len(shape)
    if start is None or end is None or step is None or start < 0 or step < 1:
        raise ValueError("a slice that counts from the end, or is not a constant")
    replaced = range(*slice(start, max(end, 0), step).indices(shape[axis]))
    if given != (*shape[:axis], len(replaced), *shape[axis + 1 :]):
        raise ValueError("as many values as the slice has elements are needed")

    def slice_scatter(data: te.Tensor, values: te.Tensor) -> te.Tensor:
        def element(*place: tvm_api.Expr) -> tvm_api.Expr:
            distance = place[axis] - start
            inside = tirx.all(distance >= 0, place[axis] < min(end, shape[axis]))
            inside = tirx.all(inside, tirx.floormod(distance, step) == 0)
            source = (*place[:axis], tirx.floordiv(distance, step), *place[axis + 1 :])
            return tirx.if_then_else(inside, values[source], data[place])

        names = [f"ax{number}" for number in range(len(shape))]
        return te.compute(shape, element, "slice_scatter", "injective", varargs_names=names)

    return builder.call_te(slice_scatter, data, values, primfunc_name_hint="slice_scatter")


def _scatter(
    builder: tvm_api.BlockBuilder,
    call: tvm_api.Call,
    name: str,
    operands: Sequence[tvm_api.Expr],
    writes: Callable[..., tvm_api.Stmt],
) -> tvm_api.Expr:
    """Return a call of a kernel that copies its first operand and writes into the copy."""
    output = buffer("output", _shape(operands[0]), tvm_api.dtype_of(operands[0]))

    def copy(output: Any, data: Any, *_: Any) -> tvm_api.Stmt:
        shape = tvm_api.buffer_shape(data)
        return _over(shape, lambda *i: tirx.BufferStore(output, data[i], list(i)))

    return _writing(builder, call, name, operands, output, copy, writes)


def _writing(
    builder: tvm_api.BlockBuilder,
    call: tvm_api.Call,
    name: str,
    operands: Sequence[tvm_api.Expr],
    output: tvm_api.Buffer,
    start: Callable[..., tvm_api.Stmt],
    writes: Callable[..., tvm_api.Stmt],
) -> tvm_api.Expr:
    """Return a call of a kernel that initializes its output and then writes to parts of it.

    Args:
        start: (output, *operands) -> statements that initialize the output.
        writes: (*operands, output) -> statements that write to parts of the output.
    """
    inputs = [
        buffer(f"operand_{number}", _shape(operand), tvm_api.dtype_of(operand))
        for number, operand in enumerate(operands)
    ]
    body = sequence(start(output, *inputs), writes(*inputs, output))
    variable = builder.add_func(kernel([*inputs, output], body), name)
    return tvm_api.relax.call_tir(variable, tvm_api.relax.Tuple(list(operands)), call.ty)


def _over(shape: Sequence[int], body: Callable[..., tvm_api.Stmt]) -> tvm_api.Stmt:
    return loops([(f"i{axis}", extent) for axis, extent in enumerate(shape)], body)


def _reduced(
    output: tvm_api.Buffer, place: Sequence[Any], update: tvm_api.Expr, reduction: str
) -> tvm_api.Stmt:
    value = REDUCTIONS[reduction](output[tuple(place)], update)
    return tirx.BufferStore(output, value, list(place))


def _signed(index: tvm_api.PrimExpr) -> tvm_api.Expr:
    """Convert an index to int32, or to int64 if its dtype has a larger range."""
    dtype = tvm_api.dtype_of(index)
    wide = dtype in ("int64", "uint32", "uint64")
    return index.astype("int64" if wide else "int32")


def _from_the_end(index: tvm_api.PrimExpr, extent: int) -> tvm_api.Expr:
    """Return an index with negative values counted from the end."""
    zero, size = (tirx.IntImm(tvm_api.dtype_of(index), value) for value in (0, extent))
    return tirx.Select(index < zero, index + size, index)


def _shape(expression: tvm_api.PrimExpr) -> tuple[int, ...]:
    shape = tvm_api.static_shape(expression)
    if shape is None:
        raise ValueError("an operand has no static shape")
    return shape
