# SPDX-License-Identifier: Apache-2.0
"""ConvInteger."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from umakit.frontend.onnx.rewriting import Rewriter, rewrites


@rewrites("ConvInteger")
def convolution_of_integers(node: Rewriter) -> None:
    """int32 sums of products of integers minus their zero points.

    Inputs are x, w and their zero points; w has one zero point, or one per output channel. Padding
    has
    the value of x's zero point, as in ONNX Runtime.
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
