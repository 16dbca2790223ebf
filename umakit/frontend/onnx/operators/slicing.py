# SPDX-License-Identifier: Apache-2.0
"""Slice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from umakit import tvm_api
from umakit.frontend.onnx.node import Node
from umakit.frontend.onnx.registry import converts

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
    return tvm_api.relax.op.strided_slice(node.inputs[0], places, begins, stops, list(steps))


def _taken(start: int, end: int, step: int, size: int) -> range:
    """Return the elements that a slice takes from an axis.

    By the specification, a start before the first element is clamped to the first element. Unlike
    in
    Python, this also holds for negative steps.
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
