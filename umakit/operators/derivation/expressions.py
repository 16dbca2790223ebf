# SPDX-License-Identifier: Apache-2.0
"""Operators with a constant scalar, of which importers make up activation functions."""

from __future__ import annotations

from typing import Any

from umakit import tvm_api
from umakit.operators.tensors import Definition


def with_scalar(call: Any, operator: str, definition: Definition) -> tuple[Any, float] | None:
    """Operand and number of an operator with a constant scalar as its second operand."""
    if tvm_api.operator_name(call) != operator:
        return None
    number = tvm_api.constant_array(definition(call.args[1]))
    return None if number is None or number.size != 1 else (call.args[0], float(number.item()))
