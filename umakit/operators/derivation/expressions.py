# SPDX-License-Identifier: Apache-2.0
"""Operators with a constant scalar, from which importers compose activation functions."""

from __future__ import annotations

from umakit import tvm_api
from umakit.operators.tensors import Definition


def with_scalar(
    call: tvm_api.Expr, operator: str, definition: Definition
) -> tuple[tvm_api.Expr, float] | None:
    """Return the first operand and the constant scalar second operand; None for other calls."""
    if tvm_api.operator_name(call) != operator:
        return None
    number = tvm_api.constant_array(definition(call.args[1]))
    return None if number is None or number.size != 1 else (call.args[0], float(number.item()))
