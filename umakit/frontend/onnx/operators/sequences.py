# SPDX-License-Identifier: Apache-2.0
"""Sequences whose length and positions are known when the network is imported."""

from __future__ import annotations

import numpy as np

from umakit import tvm_api
from umakit.frontend.onnx.registry import Node, converts
from umakit.tvm_api import Expr, relax

op = relax.op


def _elements(node: Node) -> list[Expr]:
    """Return the tensors of the sequence in the first input."""
    sequence = node.inputs[0]
    if not isinstance(sequence, tvm_api.RelaxTuple):
        raise node.refuse("has a sequence that is not built by the network itself")
    return list(sequence.fields)


def _position(node: Node, at: int, default: int, count: int) -> int:
    """Return the position in input `at`, below `count`. Negative ones count from the end."""
    position = default
    if node.input(at) is not None:
        array = node.constant(at)
        if array is None:
            raise node.refuse("has a position that is computed at run time, which is not supported")
        position = int(array.reshape(-1)[0])
    length = len(_elements(node))
    if not -length <= position < count:
        raise node.refuse(f"has the position {position}, but the sequence has {length} elements")
    return position


@converts("SequenceConstruct")
def construct(node: Node) -> Expr:
    """SequenceConstruct: one element per input."""
    return tvm_api.RelaxTuple(list(node.inputs))


@converts("SequenceInsert")
def insert(node: Node) -> Expr:
    """SequenceInsert: insert before a position, by default at the end."""
    elements = _elements(node)
    count = len(elements)
    elements.insert(_position(node, 2, count, count + 1), node.inputs[1])
    return tvm_api.RelaxTuple(elements)


@converts("SequenceErase")
def erase(node: Node) -> Expr:
    """SequenceErase: remove the element at a position, by default the last element."""
    elements = _elements(node)
    del elements[_position(node, 1, -1, len(elements))]
    return tvm_api.RelaxTuple(elements)


@converts("SequenceAt")
def at(node: Node) -> Expr:
    """SequenceAt: the element at a position."""
    elements = _elements(node)
    return elements[_position(node, 1, 0, len(elements))]


@converts("SequenceLength")
def length(node: Node) -> Expr:
    """SequenceLength: a constant int64 scalar."""
    return relax.const(len(_elements(node)), "int64")


@converts("ConcatFromSequence", "axis new_axis")
def concatenate(node: Node) -> Expr:
    """ConcatFromSequence: join the elements along an existing or a new axis."""
    elements = _elements(node)
    if not elements:
        raise node.refuse("joins a sequence without elements")
    axis = int(node.attribute("axis"))
    if node.attribute("new_axis", 0):
        return op.stack(elements, axis)
    return op.concat(elements, axis)


@converts("SplitToSequence", "axis keepdims")
def split(node: Node) -> Expr:
    """SplitToSequence: parts of equal size (the last part may be smaller), or of given sizes."""
    shape = node.shape(0)
    axis = int(node.attribute("axis", 0)) % len(shape)
    extent = shape[axis]
    sizes = _sizes(node, extent)
    if min(sizes, default=0) < 1 or sum(sizes) != extent:
        raise node.refuse(f"splits {extent} elements into {sizes}, which does not fit")
    ends = [int(end) for end in np.cumsum(sizes)]
    parts = []
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        part = node.emit(op.strided_slice(node.inputs[0], [axis], [begin], [end]))
        if node.input(1) is None and not node.attribute("keepdims", 1):
            part = node.emit(op.squeeze(part, [axis]))
        parts.append(part)
    return tvm_api.RelaxTuple(parts)


def _sizes(node: Node, extent: int) -> list[int]:
    if node.input(1) is None:
        return [1] * extent
    array = node.constant(1)
    if array is None:
        raise node.refuse("has sizes that are computed at run time, which is not supported")
    if array.ndim:
        return [int(size) for size in array]
    size = int(array)
    if size < 1:
        raise node.refuse(f"splits into parts of {size} elements")
    return [min(size, extent - begin) for begin in range(0, extent, size)]
