# SPDX-License-Identifier: Apache-2.0
"""DynamicQuantizeLinear."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from umakit.frontend.onnx.rewriting import Rewriter, rewrites


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
