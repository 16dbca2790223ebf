# SPDX-License-Identifier: Apache-2.0
"""Movement of elements and their number: DepthToSpace, Split, Pad, Slice, Shape and Size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.frontend.onnx.registry import ABSENT, Node, converts
from umakit.tvm_api import Expr, relax

COUNTED_SPLIT_SINCE = 18
"""First opset whose Split may have unequal parts without explicit sizes."""


@converts("SpaceToDepth", "blocksize mode")
def space_to_depth(node: Node) -> Expr:
    """SpaceToDepth in the orders DCR and CRD (ONNX operator specification, opset 28)."""
    block, mode, shape = _block(node)
    batch, channels, height, width = shape
    if height % block or width % block:
        raise node.refuse(f"has an image of {height} x {width}, no multiple of {block}")
    parts = [batch, channels, height // block, block, width // block, block]
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    result = [batch, channels * block**2, height // block, width // block]
    return _rearranged(node, parts, order, result)


@converts("DepthToSpace", "blocksize mode")
def depth_to_space(node: Node) -> Expr:
    block, mode, shape = _block(node)
    batch, channels, height, width = shape
    if channels % block**2:
        raise node.refuse(f"has {channels} channels, no multiple of {block**2}")
    depth = channels // block**2
    if mode == "DCR":
        parts, order = [batch, block, block, depth, height, width], (0, 3, 4, 1, 5, 2)
    else:
        parts, order = [batch, depth, block, block, height, width], (0, 1, 4, 2, 5, 3)
    return _rearranged(node, parts, order, [batch, depth, height * block, width * block])


def _block(node: Node) -> tuple[int, str, tuple[int, ...]]:
    """Return block size, order and shape of the operand [N, C, H, W]."""
    block, shape = int(node.attribute("blocksize")), node.shape(0)
    mode = node.attribute("mode", "DCR")
    if block < 1 or mode not in ("DCR", "CRD") or len(shape) != 4:
        raise node.refuse(f"has blocksize={block}, mode={mode} and an input of shape {list(shape)}")
    return block, mode, shape


def _rearranged(node: Node, parts: list[int], order: tuple[int, ...], result: list[int]) -> Expr:
    split = node.emit(relax.op.reshape(node.inputs[0], parts))
    moved = node.emit(relax.op.permute_dims(split, list(order)))
    return relax.op.reshape(moved, result)


@converts("Split", "axis num_outputs split")
def split(node: Node) -> None:
    """Refuse a Split whose sizes do not match its operand. TVM converts the node."""
    shape, results = node.shape(0), len(node.proto.output)
    axis = int(node.attribute("axis", 0))
    size = shape[axis]
    given = node.constant_input(1, "split")
    sizes = node.attribute("split") if given is None else [int(part) for part in given]
    if sizes is not None:
        if len(sizes) != results or sum(sizes) != size or min(sizes) < 0:
            raise node.refuse(
                f"splits {size} elements into {results} results of the sizes {list(sizes)}"
            )
        return
    count = int(node.attribute("num_outputs", results))
    largest = -(-size // count) if count > 0 else 0
    uneven = size % max(count, 1) and node.opset < COUNTED_SPLIT_SINCE
    if count != results or uneven or size - largest * (count - 1) <= 0:
        raise node.refuse(f"splits {size} elements into {count} parts with {results} results")


@converts("Pad", "mode pads value", only={"paddings": (ABSENT,)})
def pad(node: Node) -> Any | None:
    """Pad of a dequantized tensor as one operator, and of what is left of a cropped one.

    TVM's importer would make a TIR kernel of the former, and does not crop before it pads.
    """
    if node.attribute("mode", "constant") != "constant":
        return _continued(node)
    if node.proto.input[0] not in node.dequantized:
        return None
    arrays = [node.constant(n) for n in range(1, len(node.inputs)) if node.input(n) is not None]
    if not 1 <= len(arrays) <= 2 or any(array is None for array in arrays):
        return None
    pads = np.asarray(arrays[0], np.int64).reshape(2, -1)
    if pads.min() < 0 or pads.shape[1] != len(node.shape(0)):
        return None
    value = float(np.asarray(arrays[1]).reshape(-1)[0]) if len(arrays) > 1 else 0.0
    widths = [int(width) for width in pads.T.reshape(-1)]
    return relax.op.nn.pad(node.inputs[0], widths, pad_value=value)


def _continued(node: Node) -> Any | None:
    """Return a Pad that repeats or reflects the input and crops an axis; None for other ones.

    Raises:
        ModelError: nothing is left of an axis, or too little to be reflected.
    """
    shape, mode = node.static_shape(0), str(node.attribute("mode"))
    given = node.attribute("pads") if node.opset < PADS_ARE_AN_INPUT_SINCE else node.constant(1)
    axes = node.constant(3)
    if shape is None or given is None or (axes is None and node.input(3) is not None):
        return None
    places = range(len(shape)) if axes is None else [int(axis) % len(shape) for axis in axes]
    pads = np.reshape(given, (2, -1)).tolist()
    for axis, before, after in zip(places, *pads, strict=True):
        left = shape[axis] + min(before, 0) + min(after, 0)
        if left < 1 or (mode == "reflect" and max(before, after) >= left):
            raise node.refuse(
                f"has the pads {before} and {after} at axis {axis} of size {shape[axis]}, which "
                f"mode {mode} cannot fill",
                f"pad by at most {left - 1}" if left > 0 else "crop less",
            )
    if np.min(pads) >= 0:
        return None
    result = node.inputs[0]
    for axis, before, after in zip(places, *pads, strict=True):
        if before or after:
            kept = np.arange(max(-before, 0), shape[axis] + min(after, 0))
            widths = (max(before, 0), max(after, 0))
            table = np.pad(kept, widths, mode=mode)  # type: ignore[call-overload]
            result = node.emit(relax.op.take(result, relax.const(table, "int64"), axis))
    return result


PADS_ARE_AN_INPUT_SINCE = 11
INPUTS_SINCE = 10
"""First opset with the bounds as inputs instead of attributes."""


@converts("Slice", "starts ends axes")
def sliced(node: Node) -> Any | None:
    """Slice with constant bounds in attributes or inputs. TVM converts other nodes.

    Negative bounds count from the end. Bounds outside the axis are clamped to its ends.
    """
    shape, given = tvm_api.static_shape(node.inputs[0]), _places(node)
    if shape is None or given is None:
        return None
    starts, ends, axes, steps = given
    axes = axes if axes is not None else range(len(starts))
    places = [axis % len(shape) for axis in axes if -len(shape) <= axis < len(shape)]
    steps = steps if steps is not None else [1] * len(starts)
    lengths = {len(part) for part in (starts, ends, axes, steps, set(places))}
    if len(lengths) > 1 or not all(steps):
        raise node.refuse(
            f"has starts={list(starts)}, ends={list(ends)}, axes={list(axes)}, "
            f"steps={list(steps)} for {len(shape)} dimensions"
        )
    begins, stops = [], []
    for start, end, axis, step in zip(starts, ends, places, steps, strict=True):
        taken = _taken(start, end, step, shape[axis])
        if not taken:
            raise node.refuse(f"takes no elements of an input of shape {list(shape)}")
        begins.append(taken.start)
        # A place before the first element would count from the end.
        stops.append(taken.stop if taken.stop >= 0 else -shape[axis] - 1)
    return relax.op.strided_slice(node.inputs[0], places, begins, stops, list(steps))


def _taken(start: int, end: int, step: int, size: int) -> range:
    """Return the elements that a slice takes from an axis.

    By the specification, a start before the first element is clamped to the first element. Unlike
    in Python, this also holds for negative steps.
    """
    start, end = (place + size if place < 0 else place for place in (start, end))
    if step > 0:
        return range(min(max(start, 0), size), min(max(end, 0), size), step)
    return range(min(max(start, 0), size - 1), min(max(end, -1), size - 1), step)


def _places(node: Node) -> tuple[Sequence[int], Sequence[int], Any, Any] | None:
    """Return starts, ends, axes and steps, or None if any is computed at run time.

    Axes and steps are None if omitted.
    """
    if node.opset < INPUTS_SINCE:
        starts, ends = (list(node.attribute(name) or ()) for name in ("starts", "ends"))
        return starts, ends, node.attribute("axes") or None, None
    arrays: list[Any] = []
    for position in range(1, 5):
        array = node.constant(position)
        if array is None and node.input(position) is not None:
            return None
        arrays.append(None if array is None else [int(value) for value in array.reshape(-1)])
    return arrays[0], arrays[1], arrays[2], arrays[3]


@converts("Shape", "start end")
def shape(node: Node) -> Any | None:
    """Shape of a tensor, or a slice of it, as a constant int64[n].

    TVM converts Shape of tensors with data-dependent sizes.
    """
    sizes = _known_sizes(node)
    if sizes is None:
        return None
    end = node.attribute("end")
    part = sizes[int(node.attribute("start", 0)) : None if end is None else int(end)]
    return relax.const(np.array(part, np.int64), "int64")


@converts("Size")
def size(node: Node) -> Any | None:
    """Number of elements of a tensor with known shape, as a constant."""
    sizes = _known_sizes(node)
    return None if sizes is None else relax.const(np.asarray(math.prod(sizes)), "int64")


def _known_sizes(node: Node) -> tuple[int, ...] | None:
    data = node.inputs[0]
    if isinstance(data, relax.ShapeExpr):
        return (len(data.values),)
    return tvm_api.static_shape(data)
