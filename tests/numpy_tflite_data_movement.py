# SPDX-License-Identifier: Apache-2.0
"""Operators of TensorFlow Lite that move numbers, in NumPy: the same for all types."""

from __future__ import annotations

import numpy as np
from numpy_fixed_point import Array
from numpy_tflite_tensors import Kernel, Operator, round_away


def reshape(operator: Operator) -> Array:
    return np.asarray(operator.inputs[0].value.reshape(operator.outputs[0].shape))


def pad(operator: Operator) -> Array:
    x, widths, *rest = operator.inputs
    value = rest[0].value.item() if rest else 0 if x.real else x.zero_point
    return np.pad(x.value, widths.value, constant_values=value)


def transpose(operator: Operator) -> Array:
    return np.asarray(operator.inputs[0].value.transpose(operator.inputs[1].value))


def concatenation(operator: Operator) -> Array:
    return np.concatenate([x.value for x in operator.inputs], operator.options.Axis())


def split(operator: Operator) -> list[Array]:
    axis, x = operator.inputs
    return np.split(x.value, len(operator.outputs), int(axis.value.item()))


def split_of_sizes(operator: Operator) -> list[Array]:
    x, sizes, axis = operator.inputs
    return np.split(x.value, np.cumsum(sizes.value)[:-1], int(axis.value.item()))


def slice_(operator: Operator) -> Array:
    x, begins, _ = operator.inputs
    bounds = zip(begins.value, operator.outputs[0].shape, strict=True)
    return np.asarray(x.value[tuple(slice(begin, begin + count) for begin, count in bounds)])


def strided_slice(operator: Operator) -> Array:
    x, *triple = operator.inputs
    options, places = operator.options, []
    masks = (
        (options.BeginMask(), options.EndMask(), options.ShrinkAxisMask()) if options else (0,) * 3
    )
    for axis, (begin, end, step) in enumerate(zip(*(t.value for t in triple), strict=True)):
        free_begin, free_end, single = (mask >> axis & 1 for mask in masks)
        bounds = None if free_begin else begin, None if free_end else end
        places.append(begin if single else slice(*bounds, step))
    return np.asarray(x.value[tuple(places)])


def resize_nearest(operator: Operator) -> Array:
    """Coordinates are float32 in the kernel, which decides which neighbour is taken."""
    x, options = operator.inputs[0], operator.options
    value = x.value
    offset = np.float32(0.5 if options.HalfPixelCenters() else 0)
    for axis in (1, 2):
        size, count = x.shape[axis], operator.outputs[0].shape[axis]
        aligned = options.AlignCorners() and count > 1
        scale = np.float32(size - 1 if aligned else size) / np.float32(
            count - 1 if aligned else count
        )
        places = (np.arange(count, dtype=np.float32) + offset) * scale
        places = round_away(places) if options.AlignCorners() else np.floor(places)
        value = value.take(np.clip(places, 0, size - 1).astype(int), axis)
    return np.asarray(value)


DATA_MOVEMENT: dict[str, Kernel] = {
    "CONCATENATION": concatenation, "EXPAND_DIMS": reshape, "PAD": pad, "PADV2": pad,
    "RESHAPE": reshape, "RESIZE_NEAREST_NEIGHBOR": resize_nearest, "SLICE": slice_,
    "SPLIT": split, "SPLIT_V": split_of_sizes, "SQUEEZE": reshape,
    "STRIDED_SLICE": strided_slice, "TRANSPOSE": transpose,
}  # fmt: skip
