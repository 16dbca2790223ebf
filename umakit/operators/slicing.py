# SPDX-License-Identifier: Apache-2.0
"""STRIDED_SLICE, SLICE, SPLIT, SPLIT_V and UNPACK of TensorFlow Lite."""

from __future__ import annotations

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.tflite import ANY, TfliteConverter, TfliteOperator, one_axis, register_all

relax = tvm_api.relax


def strided_slice(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """STRIDED_SLICE with constant bounds, `strided_slice_logic.h`; ellipses are refused."""
    options = converter.options(operator, "StridedSliceOptions")
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


def slice_(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """SLICE with constant first elements and sizes; -1 is the rest of an axis."""
    shape = converter.shape(operator.inputs[0])
    begins, sizes = (converter.integers(operator, position) for position in (1, 2))
    if len(begins) != len(shape) or len(sizes) != len(shape):
        raise ModelError(f"it begins at {begins} and has the size {sizes}")
    places = [
        range(begin, extent if size == -1 else begin + size)
        for extent, begin, size in zip(shape, begins, sizes, strict=True)
    ]
    return _sliced(converter, operator, places)


def _sliced(
    converter: TfliteConverter, operator: TfliteOperator, places: list[range]
) -> tvm_api.Expr:
    """Elements at given places of each axis, in the result's shape."""
    number = operator.inputs[0]
    value = take_ranges(converter, number, places)
    return relax.op.reshape(value, converter.shape(operator.outputs[0]))


def take_ranges(converter: TfliteConverter, number: int, places: list[range]) -> tvm_api.Expr:
    """Return a slice of a tensor, without a variable: each result of a SPLIT is bound later.

    Raises:
        ModelError: the slice is empty, or leaves the tensor.
    """
    shape = converter.shape(number)
    for extent, place in zip(shape, places, strict=True):
        if not place or min(place) < 0 or max(place) >= extent:
            raise ModelError(f"it takes {place} of an axis of {extent}")
    # No positive number can state an end before element 0.
    ends = [
        place[-1] + (1 if place.step > 0 else -1 - (extent if place[-1] == 0 else 0))
        for extent, place in zip(shape, places, strict=True)
    ]
    return relax.op.strided_slice(
        converter.value(number), list(range(len(shape))), [place.start for place in places], ends,
        [place.step for place in places],
    )  # fmt: skip


def split(converter: TfliteConverter, operator: TfliteOperator) -> list[tvm_api.Expr]:
    """SPLIT of (axis, data) in equal parts."""
    return _split(converter, operator, 1, converter.integers(operator, 0))


def split_v(converter: TfliteConverter, operator: TfliteOperator) -> list[tvm_api.Expr]:
    """SPLIT_V of (data, sizes, axis); the sizes follow from the results."""
    return _split(converter, operator, 0, converter.integers(operator, 2))


def _split(
    converter: TfliteConverter, operator: TfliteOperator, data: int, axes: list[int]
) -> list[tvm_api.Expr]:
    shape = converter.shape(operator.inputs[data])
    axis, start = one_axis(axes, len(shape)), 0
    values: list[tvm_api.Expr] = []
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


def unpack(converter: TfliteConverter, operator: TfliteOperator) -> list[tvm_api.Expr]:
    """UNPACK of all places along an axis; the axis is dropped."""
    options = converter.options(operator, "UnpackOptions")
    shape = converter.shape(operator.inputs[0])
    axis = options.Axis() + (len(shape) if options.Axis() < 0 else 0)
    if not 0 <= axis < len(shape) or len(operator.outputs) != shape[axis]:
        raise ModelError(f"its axis is {options.Axis()}, with {len(operator.outputs)} results")
    values: list[tvm_api.Expr] = []
    for place, number in enumerate(operator.outputs):
        places = [range(extent) for extent in shape]
        places[axis] = range(place, place + 1)
        taken = converter.emit(take_ranges(converter, operator.inputs[0], places))
        values.append(relax.op.reshape(taken, converter.shape(number)))
    return values


register_all(("STRIDED_SLICE",), strided_slice, *ANY, same_scale=True)
register_all(("SLICE",), slice_, *ANY, same_scale=True)
register_all(("SPLIT",), split, *ANY, data=1, same_scale=True)
register_all(("SPLIT_V",), split_v, *ANY, same_scale=True)
register_all(("UNPACK",), unpack, *ANY, same_scale=True)
