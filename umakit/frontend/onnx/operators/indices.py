# SPDX-License-Identifier: Apache-2.0
"""Operators that take indices: constant ones out of range are refused, others checked in C.

TVM's importer builds most of the operators but does not check constant indices. This module imports
the operators that TVM's importer gets wrong.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.frontend.onnx.registry import Node, converts
from umakit.tvm_api import relax

Array = npt.NDArray[Any]


@converts("Gather GatherElements Scatter", "axis")
@converts("ScatterElements", "axis reduction")
def along_an_axis(node: Node) -> None:
    """Check constant indices of Gather, GatherElements, ScatterElements and Scatter."""
    indices, shape, axis = node.constant(1), _data_shape(node), int(node.attribute("axis", 0))
    if indices is None or shape is None:
        return
    if -len(shape) <= axis < len(shape):
        _check(node, indices, shape[axis], axis % len(shape))


@converts("GatherND", "batch_dims")
@converts("ScatterND", "reduction")
def in_the_last_axis(node: Node) -> None:
    """Check constant indices of GatherND and ScatterND, whose last axis is a position."""
    indices, shape = node.constant(1), _data_shape(node)
    if indices is None or shape is None or not indices.ndim:
        return
    first = int(node.attribute("batch_dims", 0))
    for number, size in zip(range(indices.shape[-1]), shape[first:], strict=False):
        _check(node, indices[..., number], size, first + number)


@converts("OneHot", "axis")
def one_hot(node: Node) -> Any | None:
    """OneHot. An index outside [-depth, depth-1] yields a row of `off` values."""
    depth, values = node.constant(1), node.constant(2)
    if depth is None or values is None or depth.size != 1 or values.size != 2:
        raise node.refuse(
            "needs a constant depth and two constant values",
            "make depth and values initializers of the model",
        )
    count, rank = int(depth.reshape(-1)[0]), len(node.shape(0)) + 1
    axis = int(node.attribute("axis", -1))
    if count < 1:
        raise node.refuse(f"has the depth {count}", "give it a depth of at least 1")
    axis %= rank
    indices = node.emit(relax.op.astype(node.inputs[0], "int64"))
    zero, size = (relax.const(np.int64(value), "int64") for value in (0, count))
    from_the_end = node.emit(relax.op.add(indices, size))
    is_negative = node.emit(relax.op.less(indices, zero))
    positive = node.emit(relax.op.where(is_negative, from_the_end, indices))
    column = np.arange(count).reshape([-1 if place == axis else 1 for place in range(rank)])
    rows = node.emit(relax.op.expand_dims(positive, axis))
    chosen = node.emit(relax.op.equal(rows, relax.const(column, "int64")))
    off, on = (relax.const(value, str(values.dtype)) for value in values.reshape(-1))
    return relax.op.where(chosen, on, off)


@converts("MaxUnpool", "kernel_shape pads strides")
def max_unpool(node: Node) -> tvm_api.Expr:
    """MaxUnpool. Indices are non-negative positions in the flattened result.

    The indices refer to the shape that the attributes determine. A larger `output_shape` appends
    zeros, as in ONNX's own tests.
    """
    data, indices = node.shape(0), node.shape(1)
    kernel = [int(size) for size in node.attribute("kernel_shape", ())]
    strides = [int(step) for step in node.attribute("strides", [1] * len(kernel))]
    pads = [int(pad) for pad in node.attribute("pads", [0] * 2 * len(kernel))]
    ranks = {len(data) - 2, len(kernel), len(strides)}
    if len(ranks) > 1 or indices != data or min(kernel, default=0) < 1:
        raise node.refuse(
            f"has a kernel_shape of {kernel} and inputs {list(data)}, {list(indices)}"
        )
    sizes = zip(data[2:], strides, kernel, pads[: len(kernel)], pads[len(kernel) :], strict=True)
    shape = [*data[:2], *((n - 1) * step + size - a - b for n, step, size, a, b in sizes)]
    count = math.prod(shape)
    constant = node.constant(1)
    if constant is not None:
        _check(node, constant, count, 0, from_the_end=False)
    zeros = relax.const(np.zeros(count, node.dtype(0)), node.dtype(0))
    places = node.emit(relax.op.reshape(node.inputs[1], (math.prod(data), 1)))
    updates = node.emit(relax.op.reshape(node.inputs[0], (math.prod(data),)))
    result = relax.op.reshape(node.emit(relax.op.scatter_nd(zeros, places, updates)), shape)
    if node.input(2) is None:
        return result
    wanted = node.constant(2)
    if wanted is None or wanted.shape != (len(data),) or (wanted < shape).any():
        raise node.refuse(f"has an output_shape that is not a constant, or below {shape}")
    widths = [width for n, size in zip(wanted, shape, strict=True) for width in (0, int(n) - size)]
    return relax.op.nn.pad(node.emit(result), widths)


def _data_shape(node: Node) -> tuple[int, ...] | None:
    data = node.input(0)
    if data is None or isinstance(data, relax.ShapeExpr):
        return None
    return tvm_api.static_shape(data)


def _check(node: Node, indices: Array, size: int, axis: int, *, from_the_end: bool = True) -> None:
    outside = (indices < (-size if from_the_end else 0)) | (indices >= size)
    if outside.any():
        raise node.refuse(
            f"has the index {indices[outside].reshape(-1)[0]}, which is out of range for axis "
            f"{axis} of size {size}",
            fix="mend the constant indices in the model",
        )


K_IS_AN_INPUT_SINCE = 10
"""First opset with k as an input instead of an attribute."""


@converts("TopK", "axis k largest sorted")
def top_k(node: Node) -> list[tvm_api.Expr]:
    """Return the k largest or smallest elements along an axis and their indices, for constant k.

    Equal elements are in the order of their indices. `sorted=0` allows any order; results are
    sorted too.
    """
    shape, axis = node.shape(0), int(node.attribute("axis", -1))
    if node.opset < K_IS_AN_INPUT_SINCE:
        count = int(node.attribute("k", 0))
    else:
        given = node.constant_input(1, "K")
        count = int(given.reshape(-1)[0]) if given is not None and given.size == 1 else 0
    if not 1 <= count <= shape[axis]:
        raise node.refuse(f"takes {count} of {shape[axis]} elements")
    largest = bool(node.attribute("largest", 1))
    both = node.emit(
        relax.op.topk(node.inputs[0], count, axis, "both", largest=largest, dtype="int64")
    )
    return [relax.TupleGetItem(both, number) for number in range(2)]
