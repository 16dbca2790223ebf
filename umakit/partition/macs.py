# SPDX-License-Identifier: Apache-2.0
"""Numbers of multiply-accumulates of operators, including those on padding.

Apart from the report, which commands read without TVM."""

from __future__ import annotations

import math

from umakit import tvm_api
from umakit.operators.registry import operator_of

CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")
TRANSPOSED_CONVOLUTIONS = ("nn.conv1d_transpose", "nn.conv2d_transpose")


def multiply_accumulates(operator: str, call: tvm_api.Call, result: tvm_api.Expr) -> int:
    """Return the MACs of an operator; 0 for operators without MACs and for symbolic shapes."""
    if operator == "recurrent":
        gates, weights = (tvm_api.static_shape(argument) for argument in call.args[:2])
        return math.prod(gates) * weights[1] if gates and weights else 0
    output = tvm_api.static_shape(result)
    if output is None:
        return 0
    if operator in CONVOLUTIONS + TRANSPOSED_CONVOLUTIONS:
        weights = tvm_api.static_shape(call.args[1])
        data = tvm_api.static_shape(call.args[0])
        if weights is None or data is None:
            return 0
        layout = str(call.attrs.kernel_layout)
        transposed = operator in TRANSPOSED_CONVOLUTIONS
        channel_axis = layout.index("I" if transposed else "O")
        per_position = math.prod(weights) // weights[channel_axis]
        return math.prod(data if transposed else output) * per_position
    integer = operator_of(call)
    if integer is not None:
        return 0 if integer.macs is None else integer.macs(call, output)
    if operator == "matmul":
        left = tvm_api.static_shape(call.args[0])
        return math.prod(output) * left[-1] if left else 0
    return 0
