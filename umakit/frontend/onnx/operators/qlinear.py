# SPDX-License-Identifier: Apache-2.0
"""Operators of ONNX Runtime's quantized format (QOperator) as the float ones between integers.

QLinearConv(x, w) becomes QuantizeLinear(Conv(DequantizeLinear(x), DequantizeLinear(w))), for which
ONNX Runtime computes the same integers. All scales and zero points have to be constants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from umakit.frontend.onnx.rewriting import MICROSOFT, Array, Rewriter, rewrites


@rewrites("QLinearConv")
def convolution(node: Rewriter) -> None:
    """Inputs x and w with scale and zero point each, those of y, and a bias.

    Weights and bias are constants of one or two spatial axes, which are computed in integers.
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
    """Inputs a, b and y; b may have a scale for each column."""
    left, right = _dequantized(node, 0), _dequantized(node, 3, axis=-1)
    _quantize(node, 6, node.add("MatMul", left, right))


@rewrites("QGemm", MICROSOFT)
def gemm(node: Rewriter) -> None:
    """Inputs A, B, C (int32) and Y; float32 where Y has no scale."""
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
    """Inputs A, B and C, of uint8: for int8 ONNX Runtime rounds ties of float32 in another way."""
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
    """Scale and zero point of the result, then any number of inputs with theirs."""
    parts = [_dequantized(node, first) for first in range(2, len(node.proto.input), 3)]
    _quantize(node, 0, node.add("Concat", *parts, **node.attributes()))


def _of_one(operator: str, allowed: str = "", refused: str = "") -> Callable[[Rewriter], None]:
    """A rewrite of an operator of X with scale and zero point, and those of Y.

    Args:
        operator: of the standard domain.
        allowed: attributes that it has too.
        refused: attributes that must be 0.
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
    """Return the real numbers of an input that is followed by its scale and zero point.

    Args:
        node: that is rewritten.
        first: number of the input.
        axis: along which there may be several scales, None for one scale only.
    """
    scale, zero, count = _scale(node, first + 1, axis is not None)
    given = [scale, zero] if zero else [scale]
    attributes: dict[str, Any] = {"axis": axis} if count > 1 else {}
    return node.add("DequantizeLinear", node.input(first), *given, **attributes)


def _quantize(node: Rewriter, first: int, value: str) -> None:
    """Finish the node with integers whose scale and zero point are inputs."""
    scale, zero, _ = _scale(node, first, False)
    node.finish("QuantizeLinear", value, scale, *([zero] if zero else []))


def _scale(node: Rewriter, first: int, several: bool) -> tuple[str, str, int]:
    """Names of a scale and its zero point, empty if it has none, and how many there are."""
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
    """Real numbers of an int32 bias, whose scale is that of the products."""
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
