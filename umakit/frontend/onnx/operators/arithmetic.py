# SPDX-License-Identifier: Apache-2.0
"""Arithmetic: powers, remainders, shifts, sums, means, dropout, tests for infinity, reductions.

Broadcasting before opset 7 is here too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.frontend.onnx.registry import Node, converts
from umakit.frontend.onnx.shapes import BROADCAST_SINCE
from umakit.tvm_api import relax

op = relax.op


@converts("Pow", "axis broadcast")
def power(node: Node) -> Any | None:
    """x ** y in the dtype of x. TVM converts Pow of two equal float dtypes.

    Other pairs are computed in float64 and rounded once, as in ONNX Runtime: exact for integers up
    to 2**53, saturated beyond the range of the dtype. A constant exponent of 2 or 3 becomes
    products.
    """
    legacy = legacy_broadcast(node)
    base, exponent = node.dtype(0), node.dtype(1)
    if legacy is not None or (base == exponent and base.startswith("float")):
        return legacy
    x, constant = node.inputs[0], node.constant(1)
    if constant is not None and constant.size == 1 and len(constant.shape) <= len(node.shape(0)):
        value = constant.reshape(())
        if value in (2, 3):
            square = node.emit(op.multiply(x, x))
            return square if value == 2 else op.multiply(square, x)
    wide = [node.emit(op.astype(each, "float64")) for each in node.inputs]
    return op.astype(node.emit(op.power(*wide)), base)


@converts("IsInf", "detect_negative detect_positive")
def is_infinite(node: Node) -> Any | None:
    """IsInf for one sign or for none. TVM converts IsInf for both signs."""
    x, dtype = node.inputs[0], node.dtype(0)
    positive = bool(node.attribute("detect_positive", 1))
    negative = bool(node.attribute("detect_negative", 1))
    if not dtype.startswith("float") or (positive and negative):
        return None
    if positive or negative:
        return op.equal(x, relax.const(np.inf if positive else -np.inf, dtype))
    return op.less(x, relax.const(-np.inf, dtype))  # never so


@converts("Mod", "fmod")
def floating_modulo(node: Node) -> Any | None:
    """Mod of floats with fmod=0: the sign of the divisor, as in `numpy.mod`.

    The result is derived from the exact remainder of `fmod`. A quotient could overflow.
    """
    dtype = node.dtype(0)
    if not dtype.startswith("float") or node.attribute("fmod", 0) or node.dtype(1) != dtype:
        return None
    x, y = node.inputs
    zero, negative_zero = relax.const(0.0, dtype), relax.const(-0.0, dtype)
    remainder = node.emit(op.mod(x, y))
    below = node.emit(op.less(y, zero))
    other_sign = op.not_equal(op.less(remainder, zero), below)
    shifted = op.where(other_sign, op.add(remainder, y), remainder)
    signed_zero = op.where(below, negative_zero, zero)
    return op.where(op.equal(remainder, zero), signed_zero, shifted)


@converts("BitShift", "direction")
def bit_shift(node: Node) -> Any | None:
    """BitShift by any amount.

    Amounts below 0 or of at least the bit width shift out every bit: the result is 0, or -1 for a
    right shift of a negative number. C leaves such shifts undefined, and left shifts of negative
    numbers too, so left shifts use the unsigned type of the same width.
    """
    dtype = node.dtype(0)
    if "int" not in dtype or node.dtype(1) != dtype:
        return None
    x, amount = node.inputs
    width = np.dtype(dtype).itemsize * 8

    def const(value: int) -> tvm_api.GenericConst:
        return relax.const(value, dtype)

    signed = not dtype.startswith("u")
    outside: tvm_api.Expr = op.greater_equal(amount, const(width))
    if signed:
        outside = op.logical_or(outside, op.less(amount, const(0)))
    outside = node.emit(outside)
    to_the_right = node.attribute("direction") == "RIGHT"
    if to_the_right and signed:
        return op.right_shift(x, op.where(outside, const(width - 1), amount))
    amount = node.emit(op.where(outside, const(0), amount))
    if signed:
        unsigned = f"u{dtype}"
        shifted = op.left_shift(op.astype(x, unsigned), op.astype(amount, unsigned))
        return op.where(outside, const(0), op.astype(shifted, dtype))
    shifted = (op.right_shift if to_the_right else op.left_shift)(x, amount)
    return op.where(outside, const(0), shifted)


@converts(
    "Dropout",
    "ratio",
    only={"is_test": (1,)},
    ignored={"seed": "used in training only, which is refused unless nothing is dropped"},
)
def dropout(node: Node) -> Any | None:
    """Dropout in inference mode: the input, and a mask of ones."""
    training = node.input(2)
    if training is not None:
        trains, ratio = node.constant(2), node.constant(1)
        dropped = 0.5 if node.input(1) is None else None if ratio is None else float(ratio.item())
        if trains is None:
            raise node.refuse(
                "is told at run time whether to drop elements, which is not supported"
            )
        if trains.any() and dropped != 0.0:
            raise node.refuse(
                "has training_mode=1 and drops elements at random, which is not supported",
                fix="export the model for inference",
            )
    if len(node.proto.output) == 1:
        return node.inputs[0]
    dtype = "bool" if node.opset >= 10 else node.dtype(0)
    return [node.inputs[0], relax.const(np.ones(node.shape(0), dtype), dtype)]


@converts("Mean Sum")
def mean_or_sum(node: Node) -> Any:
    """Sum and Mean, added from left to right. A single tensor is returned unchanged."""
    total, *others = node.inputs
    for other in others:
        total = node.emit(op.add(total, other))
    if node.proto.op_type == "Sum" or not others:
        return total
    return op.divide(total, relax.const(len(node.inputs), node.dtype(0)))


LEGACY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": op.add,
    "And": op.logical_and,
    "Div": op.divide,
    "Equal": op.equal,
    "Greater": op.greater,
    "Less": op.less,
    "Mul": op.multiply,
    "Or": op.logical_or,
    "Pow": op.power,
    "Sub": op.subtract,
    "Xor": op.logical_xor,
}


@converts("Add And Div Equal Greater Less Mul Or Sub Xor", "axis broadcast")
def legacy_broadcast(node: Node) -> Any | None:
    """Operators of two inputs before opset 7: the second input's dimensions start at `axis`."""
    axis = node.attribute("axis")
    if node.opset >= BROADCAST_SINCE or axis is None or not node.attribute("broadcast", 0):
        return None
    shape, other = node.shape(0), node.shape(1)
    axis += len(shape) if axis < 0 else 0
    if not 0 <= axis <= len(shape) - len(other):
        raise node.refuse(f"has axis={axis}, where the second input does not fit")
    trailing = len(shape) - len(other) - axis
    second = op.reshape(node.inputs[1], [*other, *[1] * trailing])
    return LEGACY[node.proto.op_type](node.inputs[0], second)


ELEMENTWISE: dict[str, Callable[[Any], Any]] = {
    "ReduceL1": op.abs,
    "ReduceL2": op.abs,
    "ReduceLogSum": op.log,
    "ReduceSumSquare": lambda x: op.multiply(x, x),
    **{f"Reduce{name}": lambda x: x for name in "LogSumExp Max Mean Min Prod Sum".split()},
}
"""Elementwise function that each reduction computes if it reduces over no axis."""


REDUCTION = "axes keepdims noop_with_empty_axes"
"""Attributes of all reductions, in some opset."""


def _axes(node: Node) -> list[int]:
    """Return the axes of a reduction; empty if none are given."""
    given = node.attribute("axes", ())
    if node.input(1) is not None:
        array = node.constant(1)
        if array is None:
            raise node.refuse(
                "has axes that are computed at run time, which is not supported",
                fix="make them constants",
            )
        given = array.reshape(-1).tolist()
    rank = len(node.shape(0))
    return [int(axis) % rank for axis in given]


@converts(" ".join(set(ELEMENTWISE) - {"ReduceLogSumExp"}), REDUCTION)
def reduction(node: Node) -> Any | None:
    """Reduction over no axis, which only transforms each element. TVM converts other reductions."""
    if not node.dtype(0):
        return None
    axes = _axes(node)
    if not axes and node.attribute("noop_with_empty_axes", 0):
        return ELEMENTWISE[node.proto.op_type](node.inputs[0])
    return None


@converts("ReduceLogSumExp", REDUCTION)
def log_sum_exp(node: Node) -> Any | None:
    """ReduceLogSumExp: `log(sum(exp(x - m))) + m`, where m is the largest finite element or 0."""
    result = reduction(node)
    if result is not None or not node.dtype(0).startswith("float"):
        return result
    x, dtype = node.inputs[0], node.dtype(0)
    axes = _axes(node) or list(range(len(node.shape(0))))
    zero = relax.const(0.0, dtype)
    largest = node.emit(op.max(x, axes, True))
    infinite = op.equal(op.abs(largest), relax.const(np.inf, dtype))
    offset = node.emit(op.where(infinite, zero, largest))
    total = op.log(op.sum(op.exp(op.subtract(x, offset)), axes, True))
    result = op.add(total, offset)
    return result if node.attribute("keepdims", 1) else op.squeeze(result, axes)


@converts("CumSum", "exclusive reverse")
def cumulative_sum(node: Node) -> tvm_api.Expr:
    """Cumulative sum along a constant axis; `reverse` sums from the end.

    Elements are added in their order, or in reverse order, as in ONNX Runtime.
    """
    axis = int(np.asarray(node.constant_input(1, "axis")).item()) % len(node.shape(0))
    data, reverse = node.inputs[0], bool(node.attribute("reverse", 0))
    if reverse:
        data = node.emit(op.flip(data, axis))
    exclusive = bool(node.attribute("exclusive", 0))
    total = op.cumsum(data, axis, node.dtype(0), exclusive=exclusive)
    return op.flip(node.emit(total), axis) if reverse else total
