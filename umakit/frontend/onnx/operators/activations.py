# SPDX-License-Identifier: Apache-2.0
"""Activations: Celu, Clip, Elu, Gelu, PRelu, Shrink, ThresholdedRelu.

ONNX Runtime's BiasGelu, FastGelu and QuickGelu become other operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.frontend.onnx.registry import Node, converts
from umakit.frontend.onnx.rewriting import MICROSOFT, Rewriter, rewrites
from umakit.frontend.onnx.shapes import BROADCAST_SINCE
from umakit.tvm_api import Expr, relax

op = relax.op


@converts("PRelu")
def prelu(node: Node) -> Expr:
    """PRelu of any opset: x for x >= 0, slope * x elsewhere."""
    data, slope = node.inputs
    shape, slopes = node.shape(0), node.shape(1)
    constant = node.constant(1)
    if constant is not None and constant.size == 1 and node.dtype(0) == "float32":
        return op.nn.leakyrelu(data, float(constant.reshape(())))
    # Before, a vector of slopes lies along the channels.
    if node.opset < BROADCAST_SINCE and len(slopes) == 1 and slopes[0] > 1:
        extents = [1] * len(shape)
        extents[1 if len(shape) > 1 else 0] = slopes[0]
        slopes = tuple(extents)
        slope = node.emit(op.reshape(slope, slopes))
    fits = len(slopes) <= len(shape) and all(
        one in (1, size) for one, size in zip(slopes[::-1], shape[::-1], strict=False)
    )
    if not fits:
        raise node.refuse(
            f"has slopes of shape {list(node.shape(1))}, which cannot be broadcast to its input "
            f"of shape {list(shape)}"
        )
    negative = op.less(data, relax.const(0, node.dtype(0)))
    return op.where(node.emit(negative), node.emit(op.multiply(data, slope)), data)


@converts("Celu", "alpha")
def celu(node: Node) -> Expr:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)), float32 of any shape."""
    alpha, dtype = float(node.attribute("alpha", 1.0)), node.dtype(0)
    if alpha == 0 or not dtype.startswith("float"):
        raise node.refuse(f"has alpha={alpha} and an input of {dtype}")
    x, zero = node.inputs[0], relax.const(0.0, dtype)
    factor, one = (relax.const(value, dtype) for value in (alpha, 1.0))
    power = node.emit(op.exp(op.divide(x, factor)))
    negative = node.emit(op.multiply(factor, op.subtract(power, one)))
    return op.add(node.emit(op.maximum(x, zero)), node.emit(op.minimum(negative, zero)))


@converts("Elu", "alpha")
def elu(node: Node) -> Expr:
    """alpha * (exp(x) - 1) below 0, else x. TVM adds two terms, which turns -0.0 into 0.0."""
    x, dtype = node.inputs[0], node.dtype(0)
    alpha, zero, one = (
        relax.const(value, dtype) for value in (float(node.attribute("alpha", 1.0)), 0.0, 1.0)
    )
    negative = op.multiply(alpha, node.emit(op.subtract(node.emit(op.exp(x)), one)))
    return op.where(node.emit(op.less(x, zero)), node.emit(negative), x)


@converts("Gelu", "approximate")
def approximate_gelu(node: Node) -> Expr:
    """Gelu in exact or tanh form. Older opsets get this operator from the rewrites below."""
    functions = {"none": op.nn.gelu, "tanh": op.nn.gelu_tanh}
    form = node.attribute("approximate", "none")
    if form not in functions:
        raise node.refuse(f"has approximate={form}, which is not supported")
    return functions[form](node.inputs[0])


@rewrites("Gelu BiasGelu FastGelu", MICROSOFT)
def gelu(node: Rewriter) -> None:
    """Gelu of the input plus the optional bias: x / 2 * (1 + erf(x / sqrt(2))).

    FastGelu is x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))).
    """
    bias = node.input(1)
    data = node.add("Add", node.input(0), bias) if bias else node.input(0)
    form = "tanh" if node.proto.op_type == "FastGelu" else "none"
    node.finish("Gelu", data, approximate=form)


@rewrites("QuickGelu", MICROSOFT)
def quick_gelu(node: Rewriter) -> None:
    """x * sigmoid(alpha * x) of float32."""
    alpha = float(node.attribute("alpha", 1.702))
    scaled = node.add("Mul", node.input(0), node.constant(np.float32(alpha)))
    node.finish("Mul", node.input(0), node.add("Sigmoid", scaled))


@converts("Shrink", "bias lambd")
def shrink(node: Node) -> Expr | None:
    """Shrink of integers, computed in float64 and truncated. TVM converts Shrink of floats."""
    x, dtype = node.inputs[0], node.dtype(0)
    if dtype.startswith("float"):
        return None
    limit, bias, zero = (
        relax.const(float(value), "float64")
        for value in (node.attribute("lambd", 0.5), node.attribute("bias", 0.0), 0.0)
    )
    real = node.emit(op.astype(x, "float64"))
    above = op.where(op.greater(real, limit), op.subtract(real, bias), zero)
    below = op.less(real, op.negative(limit))
    return op.astype(node.emit(op.where(below, op.add(real, bias), above)), dtype)


FLOATS = ("float32", "float64")


@converts("Clip", "min max")
def clip(node: Node) -> Any | None:
    """Clip of floats: min(max, max(data, min)), as in the specification.

    Constant bounds make one operator. TVM's converter, which handles integers, makes six operators
    and ignores a NaN bound.
    """
    dtype = node.dtype(0)
    if dtype not in FLOATS:
        return None
    value = node.input(0)
    low, high = _bound(node, 1, "min", -np.inf), _bound(node, 2, "max", np.inf)
    if dtype == "float32" and isinstance(low, float) and isinstance(high, float) and low <= high:
        return op.clip(value, tvm_api.float_value(low), tvm_api.float_value(high))
    least, most = (relax.const(b, dtype) if isinstance(b, float) else b for b in (low, high))
    return op.minimum(node.emit(op.maximum(value, least)), most)


def _bound(node: Node, position: int, name: str, default: float) -> float | Expr:
    expression = node.input(position)
    if expression is None:
        return float(node.attribute(name, default))
    array = tvm_api.constant_array(expression)
    if array is not None and array.size == 1:
        return float(array.reshape(()))
    return node.emit(op.reshape(expression, []))


@converts("ThresholdedRelu", "alpha")
def thresholded_relu(node: Node) -> Expr:
    """Return x above the threshold, else 0. TVM multiplies by 0, which turns inf into NaN."""
    dtype = node.dtype(0)
    data, threshold = node.input(0), relax.const(float(node.attribute("alpha", 1.0)), dtype)
    return op.where(op.greater(data, threshold), data, relax.const(0.0, dtype))
