# SPDX-License-Identifier: Apache-2.0
"""Quantized operators as float ones: QOperator, DynamicQuantizeLinear, ConvInteger.

QLinearConv(x, w) of ONNX Runtime's QOperator format becomes
QuantizeLinear(Conv(DequantizeLinear(x), DequantizeLinear(w))), for which ONNX Runtime computes the
same integers. All scales and zero points have to be constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from umakit.frontend.onnx.rewriting import MICROSOFT, Array, Rewriter, rewrites


@rewrites("QLinearConv")
def convolution(node: Rewriter) -> None:
    """QLinearConv: inputs x and w with scales and zero points, scale and zero point of y, bias.

    Weights and bias are constants. One or two spatial axes are supported.
    """
    rank = node.values(3, "weight").ndim
    if rank not in (3, 4) or (node.input(8) and not node.values(8, "bias").size):
        raise node.refuse(f"has weights of {rank} dimensions, where 3 or 4 are supported")
    data, weights = _dequantized(node, 0), _dequantized(node, 3, axis=0)
    operands = [data, weights]
    if node.input(8):
        scale = node.values(1, "scale") * node.values(4, "scale")
        operands.append(_bias(node, 8, scale))
    _quantize(node, 6, node.add("Conv", *operands, **node.attributes()))


@rewrites("QLinearMatMul")
def matmul(node: Rewriter) -> None:
    """QLinearMatMul: inputs a and b, scale and zero point of y. b may have one scale per column."""
    left, right = _dequantized(node, 0), _dequantized(node, 3, axis=-1)
    _quantize(node, 6, node.add("MatMul", left, right))


@rewrites("QGemm", MICROSOFT)
def gemm(node: Rewriter) -> None:
    """QGemm: inputs A, B, int32 C, scale and zero point of Y. Without a scale, Y is float32."""
    axis = 0 if node.attribute("transB", 0) else 1
    operands = [_dequantized(node, 0), _dequantized(node, 3, axis=axis)]
    if node.attribute("alpha", 1.0) != 1.0:
        raise node.refuse("has an attribute alpha other than 1, which is not supported")
    if node.input(6):
        scale = node.values(1, "scale") * node.values(4, "scale")
        operands.append(_bias(node, 6, scale))
    attributes = node.attributes(without="alpha")
    if node.input(7):
        _quantize(node, 7, node.add("Gemm", *operands, **attributes))
    else:
        node.finish("Gemm", *operands, **attributes)


@rewrites("QLinearAdd QLinearMul", MICROSOFT)
def pair(node: Rewriter) -> None:
    """Operator of two uint8 inputs. For int8, ONNX Runtime rounds float32 ties differently."""
    dtype = node.values(7, "zero point").dtype if node.input(7) else "unknown type"
    if dtype != np.uint8:
        raise node.refuse(
            f"has a result of {dtype}, where uint8 is supported",
            "quantize activations as uint8, or with quant_format=QuantFormat.QDQ",
        )
    operator = node.proto.op_type.removeprefix("QLinear")
    _quantize(node, 6, node.add(operator, _dequantized(node, 0), _dequantized(node, 3)))


@rewrites("QLinearConcat", MICROSOFT)
def concat(node: Rewriter) -> None:
    """QLinearConcat: scale and zero point of the result, then inputs, each with its own."""
    parts = [_dequantized(node, first) for first in range(2, len(node.proto.input), 3)]
    _quantize(node, 0, node.add("Concat", *parts, **node.attributes()))


def _of_one(operator: str, allowed: str = "", refused: str = "") -> Callable[[Rewriter], None]:
    """Return a rewrite of an operator with one input X, scales and zero points of X and Y.

    `allowed` attributes are kept, and `refused` ones must be 0; names are separated by spaces.
    """

    def rewrite(node: Rewriter) -> None:
        for name in refused.split():
            if node.attribute(name, 0):
                raise node.refuse(f"has {name}={node.attribute(name)}, which is not supported")
        given = node.attributes()
        attributes: dict[str, Any] = {n: v for n, v in given.items() if n in allowed.split()}
        _quantize(node, 3, node.add(operator, _dequantized(node, 0), **attributes))

    return rewrite


rewrites("QLinearLeakyRelu", MICROSOFT)(_of_one("LeakyRelu", "alpha"))
rewrites("QLinearSigmoid", MICROSOFT)(_of_one("Sigmoid"))
rewrites("QLinearGlobalAveragePool", MICROSOFT)(
    _of_one("GlobalAveragePool", refused="channels_last")
)


def _dequantized(node: Rewriter, first: int, axis: int | None = None) -> str:
    """Return the DequantizeLinear of input `first`, whose scale and zero point follow.

    `axis` is the axis of per-channel scales, None for a single scale.
    """
    scale, zero, count = _scale(node, first + 1, axis is not None)
    given = [scale, zero] if zero else [scale]
    attributes: dict[str, Any] = {"axis": axis} if count > 1 else {}
    return node.add("DequantizeLinear", node.input(first), *given, **attributes)


def _quantize(node: Rewriter, first: int, value: str) -> None:
    scale, zero, _ = _scale(node, first, False)
    node.finish("QuantizeLinear", value, scale, *([zero] if zero else []))


def _scale(node: Rewriter, first: int, several: bool) -> tuple[str, str, int]:
    """Return the names of scale and zero point (empty if omitted), and the number of scales."""
    scale = node.values(first, "scale")
    zero = node.values(first + 1, "zero point") if node.input(first + 1) else None
    if scale.size > 1 and not several:
        raise node.refuse(f"has {scale.size} scales where one is supported")
    if zero is not None and zero.size not in (1, scale.size):
        raise node.refuse(f"has {scale.size} scales and {zero.size} zero points")
    count = int(scale.size)

    def constant(array: Array) -> str:
        shape = (count,) if count > 1 else ()
        return node.constant(np.broadcast_to(array.reshape(-1), max(count, 1)).reshape(shape))

    return constant(scale), "" if zero is None else constant(zero), count


def _bias(node: Rewriter, position: int, scale: Array) -> str:
    """Return the DequantizeLinear of an int32 bias. Its scale is the scale of the products."""
    scale = np.asarray(scale, np.float32).reshape(-1)
    scale = scale if scale.size > 1 else scale.reshape(())
    zero = np.zeros(scale.shape, np.int32)
    attributes: dict[str, Any] = {"axis": 0} if scale.size > 1 else {}
    return node.add(
        "DequantizeLinear",
        node.input(position),
        node.constant(scale),
        node.constant(zero),
        **attributes,
    )


@rewrites("DynamicQuantizeLinear")
def dynamic_quantization(node: Rewriter) -> None:
    """Quantize to uint8 with scale and zero point computed at run time in float32.

    Formulas of the ONNX operator specification. An all-zero tensor gets scale 1, as in ONNX
    Runtime.
    """
    x, add = node.input(0), node.add
    zero, most, one = (node.constant(np.float32(value)) for value in (0, 255, 1))
    high = add("Max", add("ReduceMax", x, keepdims=0), zero)
    low = add("Min", add("ReduceMin", x, keepdims=0), zero)
    width = add("Sub", high, low)
    names = [*node.proto.output, "", ""]
    is_zero = add("Equal", width, zero)
    scale = add("Where", is_zero, one, add("Div", width, most), output=names[1])

    def limited(value: str) -> str:
        return add("Min", add("Max", value, zero), most)

    place = add("Round", limited(add("Sub", zero, add("Div", low, scale))))
    if names[2]:
        add("Cast", place, output=names[2], to=TensorProto.UINT8)
    integers = add("Add", add("Round", add("Div", x, scale)), place)
    node.finish("Cast", limited(integers), to=TensorProto.UINT8)


@rewrites("ConvInteger")
def convolution_of_integers(node: Rewriter) -> None:
    """int32 sums of products of integers minus their zero points.

    Inputs are x, w and their zero points; w has one zero point, or one per output channel. Padding
    has the value of x's zero point, as in ONNX Runtime.
    """
    operands = []
    for position in range(2):
        wide = node.add("Cast", node.input(position), to=TensorProto.INT32)
        zero = node.input(2 + position)
        if zero:
            one = node.is_constant(2 + position) and node.values(2 + position, "").size == 1
            zero = node.add("Cast", zero, to=TensorProto.INT32)
            if position == 1 and not one:
                zero = _by_channel(node, zero)
            wide = node.add("Sub", wide, zero)
        operands.append(wide)
    node.finish("Conv", *operands, **node.attributes())


def _by_channel(node: Rewriter, zero: str) -> str:
    """Return zero points of weights [M, C, ...] in a shape that broadcasts."""
    kernel = (
        node.attribute("kernel_shape") or node.values(1, "weight without kernel_shape").shape[2:]
    )
    shape = node.constant(np.array([-1, *[1] * (1 + len(kernel))], np.int64))
    return node.add("Reshape", zero, shape)
