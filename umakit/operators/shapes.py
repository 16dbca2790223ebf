# SPDX-License-Identifier: Apache-2.0
"""Shapes and parts of tensors of TensorFlow Lite: reshapes, broadcasts, slices, splits."""

from __future__ import annotations

import math

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.tflite import ANY, TfliteNode, converts, one_axis
from umakit.tvm_api import Expr, relax


@converts("RESHAPE SQUEEZE EXPAND_DIMS", *ANY, same_scale=True)
def reshape(node: TfliteNode) -> Expr:
    """RESHAPE, SQUEEZE and EXPAND_DIMS, converted by the shape of the result."""
    shape, data = node.result.shape, node.value(0)
    if math.prod(shape) != math.prod(tvm_api.static_shape(data) or ()):
        raise ModelError(f"its result of shape {list(shape)} has another number of elements")
    return relax.op.reshape(data, shape)


@converts("TRANSPOSE", *ANY, same_scale=True)
def transpose(node: TfliteNode) -> Expr:
    """TRANSPOSE by a constant permutation."""
    order = node.integers(1)
    if sorted(order) != list(range(len(node.shape(0)))):
        raise ModelError(f"its permutation is {order}")
    return relax.op.permute_dims(node.value(0), order)


@converts("SHAPE", *((dtype, "int32") for dtype in ANY), scaled=False)
def shape_of(node: TfliteNode) -> Expr:
    """SHAPE, a constant."""
    return relax.const(np.array(node.shape(0), np.int32))


@converts("FILL", "float32", "int8", "int32", data=1, same_scale=True)
def fill(node: TfliteNode) -> Expr:
    """FILL of (shape, scalar)."""
    shape = node.result.shape
    if list(shape) != node.integers(0):
        raise ModelError(f"its result has the shape {list(shape)}")
    return relax.op.broadcast_to(node.value(1), shape)


@converts("ZEROS_LIKE", "float32", "int8", "int32", "int64", scaled=False)
def zeros_like(node: TfliteNode) -> Expr:
    """ZEROS_LIKE: the integer 0, even if the zero point is not 0."""
    tensor = node.result
    return relax.const(np.zeros(tensor.shape, tensor.dtype), tensor.dtype)


@converts("BROADCAST_TO", *ANY, same_scale=True)
def broadcast_to(node: TfliteNode) -> Expr:
    """BROADCAST_TO of (data, shape)."""
    shape = node.result.shape
    if list(shape) != node.integers(1):
        raise ModelError(f"its result has the shape {list(shape)}")
    return relax.op.broadcast_to(node.value(0), shape)


@converts("BROADCAST_ARGS", "int32", "int64", same_dtype=True)
def broadcast_args(node: TfliteNode) -> Expr:
    """BROADCAST_ARGS of two constant shapes."""
    shapes = [node.integers(position) for position in (0, 1)]
    try:
        shape = np.broadcast_shapes(*map(tuple, shapes))
    except ValueError:
        raise ModelError(f"its shapes {shapes[0]} and {shapes[1]} do not broadcast") from None
    dtype = node.result.dtype
    return relax.const(np.array(shape, dtype), dtype)


@converts("SELECT_V2", "float32", "int8", "int16", data=1, same_scale=True)
def select(node: TfliteNode) -> Expr:
    """Elements of the second input where the first is true, else of the third."""
    dtypes = [tensor.dtype for tensor in node.tensors]
    if len(dtypes) != 3 or dtypes[0] != "bool" or dtypes[1] != dtypes[2]:
        raise ModelError(f"its inputs are {', '.join(dtypes)}")
    return relax.op.where(*node.values())


@converts("STRIDED_SLICE", *ANY, same_scale=True)
def strided_slice(node: TfliteNode) -> Expr:
    """STRIDED_SLICE with constant bounds, `strided_slice_logic.h`; ellipses are refused."""
    options = node.options("StridedSliceOptions")
    if options.EllipsisMask() or options.NewAxisMask():
        raise ModelError("it has an ellipsis or a new axis")
    shape = node.shape(0)
    bounds = [node.integers(position) for position in (1, 2, 3)]
    if any(len(numbers) != len(shape) for numbers in bounds) or 0 in bounds[2]:
        raise ModelError(f"its bounds and steps are {bounds}")
    places = []
    for axis, (extent, begin, end, step) in enumerate(zip(shape, *bounds, strict=True)):
        bit = 1 << axis
        first = None if options.BeginMask() & bit else begin
        if options.ShrinkAxisMask() & bit:
            start = range(extent)[slice(first, None, 1)].start
            places.append(range(start, start + 1))
        else:
            places.append(
                range(extent)[slice(first, None if options.EndMask() & bit else end, step)]
            )
    return _sliced(node, places)


@converts("SLICE", *ANY, same_scale=True)
def slice_(node: TfliteNode) -> Expr:
    """SLICE with constant first elements and sizes; -1 is the rest of an axis."""
    shape = node.shape(0)
    begins, sizes = (node.integers(position) for position in (1, 2))
    if len(begins) != len(shape) or len(sizes) != len(shape):
        raise ModelError(f"it begins at {begins} and has the size {sizes}")
    places = [
        range(begin, extent if size == -1 else begin + size)
        for extent, begin, size in zip(shape, begins, sizes, strict=True)
    ]
    return _sliced(node, places)


def _sliced(node: TfliteNode, places: list[range]) -> Expr:
    return relax.op.reshape(take_ranges(node, 0, places), node.result.shape)


def take_ranges(node: TfliteNode, position: int, places: list[range]) -> Expr:
    """Return a slice of a tensor, without a variable: each result of a SPLIT is bound later."""
    shape = node.shape(position)
    for extent, place in zip(shape, places, strict=True):
        if not place or min(place) < 0 or max(place) >= extent:
            raise ModelError(f"it takes {place} of an axis of {extent}")
    # No positive number can state an end before element 0.
    ends = [
        place[-1] + (1 if place.step > 0 else -1 - (extent if place[-1] == 0 else 0))
        for extent, place in zip(shape, places, strict=True)
    ]
    return relax.op.strided_slice(
        node.value(position), list(range(len(shape))), [place.start for place in places], ends,
        [place.step for place in places],
    )  # fmt: skip


@converts("SPLIT", *ANY, data=1, same_scale=True)
def split(node: TfliteNode) -> list[Expr]:
    """SPLIT of (axis, data) in equal parts."""
    return _split(node, 1, node.integers(0))


@converts("SPLIT_V", *ANY, same_scale=True)
def split_v(node: TfliteNode) -> list[Expr]:
    """SPLIT_V of (data, sizes, axis); the sizes follow from the results."""
    return _split(node, 0, node.integers(2))


def _split(node: TfliteNode, data: int, axes: list[int]) -> list[Expr]:
    shape = node.shape(data)
    axis, start = one_axis(axes, len(shape)), 0
    values: list[Expr] = []
    for result in (tensor.shape for tensor in node.results):
        if len(result) != len(shape):
            raise ModelError(f"a result has the shape {list(result)}")
        places = [range(extent) for extent in shape]
        places[axis] = range(start, start + result[axis])
        start += result[axis]
        values.append(take_ranges(node, data, places))
    if start != shape[axis]:
        raise ModelError(f"its results have {start} of the {shape[axis]} elements")
    return values


@converts("UNPACK", *ANY, same_scale=True)
def unpack(node: TfliteNode) -> list[Expr]:
    """UNPACK of all places along an axis; the axis is dropped."""
    options = node.options("UnpackOptions")
    shape = node.shape(0)
    axis = options.Axis() + (len(shape) if options.Axis() < 0 else 0)
    if not 0 <= axis < len(shape) or len(node.results) != shape[axis]:
        raise ModelError(f"its axis is {options.Axis()}, with {len(node.results)} results")
    values: list[Expr] = []
    for place, result in enumerate(node.results):
        places = [range(extent) for extent in shape]
        places[axis] = range(place, place + 1)
        taken = node.emit(take_ranges(node, 0, places))
        values.append(relax.op.reshape(taken, result.shape))
    return values
