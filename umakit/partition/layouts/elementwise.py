# SPDX-License-Identifier: Apache-2.0
"""Rules of operators that compute each element alone, whose operands may broadcast."""

from __future__ import annotations

from typing import Any

from umakit import tvm_api
from umakit.operators.parameters import PREFIX
from umakit.partition.layouts.flip import Flip
from umakit.partition.layouts.rules import (
    Operands,
    Rule,
    RuleOf,
    is_variable,
    made,
    one_operand,
)

FLOAT = (
    "abs add ceil clip cos divide erf exp floor log logical_not maximum minimum multiply negative "
    "nn.gelu nn.gelu_tanh nn.leakyrelu nn.relu nn.relu6 nn.silu nn.softplus power round rsqrt "
    "sigmoid sin sqrt square subtract tanh where"
).split()

PAIRS = "add subtract multiply divide squared_difference float32_sum float32_product".split()
"""Integer operators of two operands that broadcast."""

SINGLE = ("requantize quantize leaky_relu lookup interpolation sigmoid_lookup").split()
"""Integer operators of one operand, whose other operands are tables."""


def broadcasting(call: tvm_api.Call, flip: Flip) -> Rule | None:
    """Rule for operands with the axes of the result; constants change at compile time."""
    shape = tvm_api.static_shape(call)
    if shape is None:
        return None
    rank, data = len(shape), []
    for operand in call.args:
        if not tvm_api.dtype_of(operand) or tvm_api.static_shape(operand) is None:
            if is_variable(operand):
                return None
            continue  # a number, such as a bound of a clip
        if is_variable(operand):
            if len(tvm_api.static_shape(operand) or ()) != rank:
                return None
            data.append(operand)
        elif flip.constant(operand, rank) is None:
            return None

    def build(operands: Operands) -> tvm_api.Expr:
        return made(call, [_operand(each, operands) for each in call.args], _shape(call, flip))

    def _operand(operand: tvm_api.Expr, operands: Operands) -> tvm_api.Expr:
        if is_variable(operand):
            return operands.flipped(operand)
        return flip.constant(operand, rank) or operand

    return Rule(tuple(data), build) if data else None


def of_one(call: tvm_api.Call, flip: Flip) -> Rule | None:
    """Rule for the first operand; tables stay unchanged."""
    return one_operand(call, lambda: _shape(call, flip))


def change_of_type(call: tvm_api.Call, flip: Flip) -> Rule | None:
    """Rule of a quantize or dequantize, with a scale per element of an axis, or one scale."""
    shape = tvm_api.static_shape(call)
    if shape is None or any(is_variable(operand) for operand in call.args[1:]):
        return None
    axis = flip.axis(int(call.attrs.axis), len(shape))
    return one_operand(call, lambda: {"axis": axis})


def _shape(call: tvm_api.Call, flip: Flip) -> dict[str, Any]:
    if not tvm_api.operator_name(call).startswith(PREFIX):
        return {}
    return {"output_shape": flip.shape([int(extent) for extent in call.attrs["output_shape"]])}


RULES: dict[str, RuleOf] = {
    **dict.fromkeys(FLOAT, broadcasting),
    **dict.fromkeys((f"{PREFIX}{name}" for name in PAIRS), broadcasting),
    **dict.fromkeys((f"{PREFIX}{name}" for name in SINGLE), of_one),
    "astype": of_one,
    "quantize": change_of_type,
    "dequantize": change_of_type,
}
