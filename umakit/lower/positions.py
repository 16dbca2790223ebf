# SPDX-License-Identifier: Apache-2.0
"""CPU kernels of operators that read or write at positions from a tensor.

TVM's own scatter into flattened tensors, where a position beyond one dimension falls into the next
row unseen. These keep all dimensions, so that `index_checks` can compare each index with its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from umakit import tvm_api
from umakit.lower.integer.loops import bound, buffer, int32, kernel, loops, sequence

tirx = tvm_api.tirx

Rule = Callable[[Any, Any], Any]
"""(block builder, call) -> call_tir."""

REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "mean": lambda old, new: (old + new) / 2,
    "min": tirx.min,
    "max": tirx.max,
}
"""What becomes of an element, from itself and the update."""


def rules() -> dict[str, Rule]:
    """Rules for `LegalizeOps`, by operator."""
    return {
        "relax.gather_nd": _gather_nd,
        "relax.scatter_elements": _scatter_elements,
        "relax.scatter_nd": _scatter_nd,
        "relax.take": _take,
    }


def _take(builder: Any, call: Any) -> Any:
    """`data[b, indices[k], r]` along an axis; TVM's own says on the terminal that it may crash."""
    mode, axis = str(call.attrs.mode), call.attrs.axis
    if mode != "fast" or tvm_api.static_shape(call.args[1]) is None:
        return builder.call_te(tvm_api.topi.take, *call.args, axis, mode=mode)

    def take(data: Any, indices: Any) -> Any:
        first = 0 if axis is None else int(axis) % len(data.shape)
        inner = first + len(indices.shape)
        shape = [*data.shape[:first], *indices.shape, *data.shape[first + 1 :]]

        def element(*place: Any) -> Any:
            found = indices[place[first:inner]] if inner > first else indices[()]
            return data[(*place[:first], found, *place[inner:])]

        names = [f"ax{axis}" for axis in range(len(shape))]
        return tvm_api.te.compute(shape, element, "take", "injective", varargs_names=names)

    return builder.call_te(take, *call.args, primfunc_name_hint="take")


def _gather_nd(builder: Any, call: Any) -> Any:
    """`data[b, indices[b, k, :], r]` for batch dimensions b, further ones k and the rest r."""
    batch = int(call.attrs.batch_dims)

    def gather_nd(data: Any, indices: Any) -> Any:
        *outer, depth = (int(extent) for extent in indices.shape)
        rest = [int(extent) for extent in data.shape[batch + depth :]]

        def element(*place: Any) -> Any:
            first = place[: len(outer)]
            found = [indices[(*first, number)] for number in range(depth)]
            return data[(*place[:batch], *found, *place[len(outer) :])]

        names = [f"ax{axis}" for axis in range(len(outer) + len(rest))]
        return tvm_api.te.compute([*outer, *rest], element, "gather_nd", varargs_names=names)

    return builder.call_te(gather_nd, *call.args, primfunc_name_hint="gather_nd")


def _scatter_elements(builder: Any, call: Any) -> Any:
    shapes = [_shape(operand) for operand in call.args]
    axis = int(call.attrs.axis) % len(shapes[0])
    reduction = str(call.attrs.reduction)

    def writes(data: Any, indices: Any, updates: Any, output: Any) -> Any:
        def write(*place: Any) -> Any:
            index = _from_the_end(_signed(indices[place]), shapes[0][axis])
            bindings, index = bound("position", index)
            target = (*place[:axis], index, *place[axis + 1 :])
            return sequence(*bindings, _reduced(output, target, updates[place], reduction))

        return _over(shapes[1], write)

    return _scatter(builder, call, "scatter_elements", writes)


def _scatter_nd(builder: Any, call: Any) -> Any:
    shapes = [_shape(operand) for operand in call.args]
    *outer, depth = shapes[1]
    rest = shapes[0][depth:]
    reduction = str(call.attrs.reduction)

    def writes(data: Any, indices: Any, updates: Any, output: Any) -> Any:
        def write(*place: Any) -> Any:
            first, inside = place[: len(outer)], place[len(outer) :]
            found = [_signed(indices[(*first, int32(number))]) for number in range(depth)]
            return _reduced(output, (*found, *inside), updates[place], reduction)

        return _over((*outer, *rest), write)

    return _scatter(builder, call, "scatter_nd", writes)


def _scatter(builder: Any, call: Any, name: str, writes: Callable[..., Any]) -> Any:
    """A kernel (data, indices, updates, output) that copies the data and writes into the copy."""
    operands = [
        buffer(part, _shape(operand), tvm_api.dtype_of(operand))
        for part, operand in zip(("data", "indices", "updates"), call.args, strict=True)
    ]
    data = operands[0]
    output = buffer("output", _shape(call.args[0]), tvm_api.buffer_dtype(data))
    copy = _over(tvm_api.buffer_shape(data), lambda *i: tirx.BufferStore(output, data[i], list(i)))
    function = kernel([*operands, output], sequence(copy, writes(*operands, output)))
    variable = builder.add_func(function, name)
    return tvm_api.relax.call_tir(variable, tvm_api.relax.Tuple(list(call.args)), call.ty)


def _over(shape: Sequence[int], body: Callable[..., Any]) -> Any:
    """Loops over all places of a shape."""
    return loops([(f"i{axis}", extent) for axis, extent in enumerate(shape)], body)


def _reduced(output: Any, place: Sequence[Any], update: Any, reduction: str) -> Any:
    value = REDUCTIONS[reduction](output[tuple(place)], update)
    return tirx.BufferStore(output, value, list(place))


def _signed(index: Any) -> Any:
    """An index as int32 or, if its dtype has more values, int64."""
    dtype = tvm_api.dtype_of(index)
    wide = dtype in ("int64", "uint32", "uint64")
    return index.astype("int64" if wide else "int32")


def _from_the_end(index: Any, extent: int) -> Any:
    """An index that counts from the end where it is negative."""
    zero, size = (tirx.IntImm(tvm_api.dtype_of(index), value) for value in (0, extent))
    return tirx.Select(index < zero, index + size, index)


def _shape(expression: Any) -> tuple[int, ...]:
    shape = tvm_api.static_shape(expression)
    if shape is None:
        raise ValueError("an operand has no static shape")
    return shape
