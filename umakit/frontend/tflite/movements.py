# SPDX-License-Identifier: Apache-2.0
"""Converters of TensorFlow Lite operators that only move numbers, integers as well as reals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tflite

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.frontend.tflite.graph import TfliteOperator

if TYPE_CHECKING:
    from umakit.frontend.tflite.converter import Converter

relax = tvm_api.relax

Convert = Callable[["Converter", TfliteOperator], Any]
"""(converter, operator) -> the value of its result, a list for several results."""


def extremum(function: Any) -> Convert:
    """MAXIMUM or MINIMUM of integers of one scale, or of real numbers."""

    def convert(converter: Converter, operator: TfliteOperator) -> Any:
        return function(*(converter.value(number) for number in operator.inputs))

    return convert


def reshape(converter: Converter, operator: TfliteOperator) -> Any:
    """RESHAPE, SQUEEZE and EXPAND_DIMS: the result's shape says it all."""
    shape, data = converter.shape(operator.outputs[0]), converter.value(operator.inputs[0])
    if math.prod(shape) != math.prod(tvm_api.static_shape(data) or ()):
        raise ModelError(f"its result of shape {list(shape)} has another number of elements")
    return relax.op.reshape(data, shape)


def transpose(converter: Converter, operator: TfliteOperator) -> Any:
    """TRANSPOSE by a constant permutation."""
    order = converter.integers(operator, 1)
    if sorted(order) != list(range(len(converter.shape(operator.inputs[0])))):
        raise ModelError(f"its permutation is {order}")
    return relax.op.permute_dims(converter.value(operator.inputs[0]), order)


def pad(converter: Converter, operator: TfliteOperator) -> Any:
    """PAD with zeros, in integers the zero point; PADV2 with a given constant."""
    tensor = converter.tensor(operator.inputs[0])
    data = converter.value(operator.inputs[0])
    widths = converter.integers(operator, 1)
    if len(widths) != 2 * len(tensor.shape) or min(widths, default=0) < 0:
        raise ModelError(f"its paddings are {widths}")
    fill: float = int(tensor.zero_points[0]) if tensor.scales.size else 0
    if len(operator.inputs) > 2:
        values = converter.constant(operator, 2).reshape(-1)
        if values.size != 1:
            raise ModelError(f"it pads with {values.size} values")
        fill = values[0].item()
    return relax.op.nn.pad(data, widths, pad_value=fill)


def strided_slice(converter: Converter, operator: TfliteOperator) -> Any:
    """STRIDED_SLICE with constant bounds, `strided_slice_logic.h`; ellipses are refused."""
    options = converter.options(operator, tflite.StridedSliceOptions)
    if options.EllipsisMask() or options.NewAxisMask():
        raise ModelError("it has an ellipsis or a new axis")
    shape = converter.shape(operator.inputs[0])
    bounds = [converter.integers(operator, position) for position in (1, 2, 3)]
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
    return _sliced(converter, operator, places)


def slice_(converter: Converter, operator: TfliteOperator) -> Any:
    """SLICE with constant first elements and sizes; -1 is all that is left."""
    shape = converter.shape(operator.inputs[0])
    begins, sizes = (converter.integers(operator, position) for position in (1, 2))
    if len(begins) != len(shape) or len(sizes) != len(shape):
        raise ModelError(f"it begins at {begins} and has the size {sizes}")
    places = [
        range(begin, extent if size == -1 else begin + size)
        for extent, begin, size in zip(shape, begins, sizes, strict=True)
    ]
    return _sliced(converter, operator, places)


def _sliced(converter: Converter, operator: TfliteOperator, places: list[range]) -> Any:
    """Elements at some places of each axis, in the result's shape."""
    number = operator.inputs[0]
    value = take_ranges(converter, number, places)
    return relax.op.reshape(value, converter.shape(operator.outputs[0]))


def take_ranges(converter: Converter, number: int, places: list[range]) -> Any:
    """A slice of a tensor; not bound yet, so that each result of a SPLIT ends where it is bound.

    Raises:
        ModelError: it is empty, or leaves the tensor.
    """
    shape = converter.shape(number)
    for extent, place in zip(shape, places, strict=True):
        if not place or min(place) < 0 or max(place) >= extent:
            raise ModelError(f"it takes {place} of an axis of {extent}")
    # Before element 0 is no end that a positive number can say.
    ends = [
        place[-1] + (1 if place.step > 0 else -1 - (extent if place[-1] == 0 else 0))
        for extent, place in zip(shape, places, strict=True)
    ]
    return relax.op.strided_slice(
        converter.value(number), list(range(len(shape))), [place.start for place in places], ends,
        [place.step for place in places],
    )  # fmt: skip


def split(converter: Converter, operator: TfliteOperator) -> list[Any]:
    """SPLIT of (axis, data) in equal parts."""
    return _split(converter, operator, 1, converter.integers(operator, 0))


def split_v(converter: Converter, operator: TfliteOperator) -> list[Any]:
    """SPLIT_V of (data, sizes, axis); the sizes are those of the results."""
    return _split(converter, operator, 0, converter.integers(operator, 2))


def _split(converter: Converter, operator: TfliteOperator, data: int, axes: list[int]) -> list[Any]:
    shape = converter.shape(operator.inputs[data])
    if len(axes) != 1 or not -len(shape) <= axes[0] < len(shape):
        raise ModelError(f"its axis is {axes}")
    axis, start, values = axes[0] % len(shape), 0, []
    for number in operator.outputs:
        result = converter.shape(number)
        if len(result) != len(shape):
            raise ModelError(f"a result has the shape {list(result)}")
        places = [range(extent) for extent in shape]
        places[axis] = range(start, start + result[axis])
        start += result[axis]
        values.append(take_ranges(converter, operator.inputs[data], places))
    if start != shape[axis]:
        raise ModelError(f"its results have {start} of the {shape[axis]} elements")
    return values


def resize_nearest(converter: Converter, operator: TfliteOperator) -> Any:
    """RESIZE_NEAREST_NEIGHBOR of [N, H, W, C]; the neighbours are known beforehand."""
    options = converter.options(operator, tflite.ResizeNearestNeighborOptions)
    source, result = (converter.shape(item) for item in (operator.inputs[0], operator.outputs[0]))
    if len(source) != 4 or list(result[1:3]) != converter.integers(operator, 1):
        raise ModelError(f"its result has the shape {list(result)}")
    value = converter.value(operator.inputs[0])
    for axis in (1, 2):
        places = [
            nearest(place, source[axis], result[axis], options.AlignCorners(),
                    options.HalfPixelCenters())
            for place in range(result[axis])
        ]  # fmt: skip
        indices = relax.const(np.array(places, np.int32))
        value = converter.bb.emit(relax.op.take(value, indices, axis, mode="clip"))
    return value


def nearest(place: int, size: int, result: int, align: bool, half_pixel: bool) -> int:
    """`GetNearestNeighbor` of `resize_nearest_neighbor.h`, in its float32.

    Args:
        place: in the result.
        size: of the operand.
        result: its size.
        align: whether corners are aligned.
        half_pixel: whether pixels are known by their centers.
    """
    aligned = align and result > 1
    scale = np.float32(size - 1 if aligned else size) / np.float32(
        result - 1 if aligned else result
    )
    position = float((np.float32(place) + np.float32(0.5 if half_pixel else 0)) * scale)
    found = math.floor(position + 0.5) if align else math.floor(position)
    return max(min(found, size - 1), 0)


def pack(converter: Converter, operator: TfliteOperator) -> Any:
    """PACK of tensors of one shape along a new axis."""
    options = converter.options(operator, tflite.PackOptions)
    result = converter.shape(operator.outputs[0])
    axis = options.Axis() + (len(result) if options.Axis() < 0 else 0)
    if not 0 <= axis < len(result):
        raise ModelError(f"its axis is {options.Axis()}")
    part = (*result[:axis], 1, *result[axis + 1 :])
    if any(converter.shape(number) != part[:axis] + part[axis + 1 :] for number in operator.inputs):
        raise ModelError(f"its result has the shape {list(result)}")
    parts = [
        converter.bb.emit(relax.op.reshape(converter.value(number), part))
        for number in operator.inputs
    ]
    return relax.op.concat(parts, axis)


def unpack(converter: Converter, operator: TfliteOperator) -> list[Any]:
    """UNPACK of all places along an axis, which is left out."""
    options = converter.options(operator, tflite.UnpackOptions)
    shape = converter.shape(operator.inputs[0])
    axis = options.Axis() + (len(shape) if options.Axis() < 0 else 0)
    if not 0 <= axis < len(shape) or len(operator.outputs) != shape[axis]:
        raise ModelError(f"its axis is {options.Axis()}, with {len(operator.outputs)} results")
    values = []
    for place, number in enumerate(operator.outputs):
        places = [range(extent) for extent in shape]
        places[axis] = range(place, place + 1)
        taken = converter.bb.emit(take_ranges(converter, operator.inputs[0], places))
        values.append(relax.op.reshape(taken, converter.shape(number)))
    return values


MOVEMENTS: dict[str, Convert] = {
    "EXPAND_DIMS": reshape,
    "MAXIMUM": extremum(relax.op.maximum),
    "MINIMUM": extremum(relax.op.minimum),
    "PACK": pack,
    "PAD": pad,
    "PADV2": pad,
    "RESHAPE": reshape,
    "RESIZE_NEAREST_NEIGHBOR": resize_nearest,
    "SLICE": slice_,
    "SPLIT": split,
    "SPLIT_V": split_v,
    "SQUEEZE": reshape,
    "STRIDED_SLICE": strided_slice,
    "TRANSPOSE": transpose,
    "UNPACK": unpack,
}
