# SPDX-License-Identifier: Apache-2.0
"""Activation functions that importers write as several operators, and how they are known again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from umakit import tvm_api

Definition = Callable[[Any], Any]


def hard_swish_argument(call: Any, definition: Definition) -> Any | None:
    """x of an expression (x * clip(x + 3, 0, 6)) * (1 / 6), None if it is none.

    Args:
        call: a Relax call.
        definition: what a variable is bound to.
    """
    sixth = _scaled(call, "multiply", definition)
    if sixth is None or not math.isclose(sixth[1], 1 / 6, rel_tol=1e-6):
        return None
    product = definition(sixth[0])
    if tvm_api.operator_name(product) != "multiply":
        return None
    clip = definition(product.args[1])
    if tvm_api.operator_name(clip) != "clip":
        return None
    if [tvm_api.float_argument(bound) for bound in clip.args[1:3]] != [0.0, 6.0]:
        return None
    moved = _scaled(definition(clip.args[0]), "add", definition)
    if moved is None or moved[1] != 3.0 or not moved[0].same_as(product.args[0]):
        return None
    return product.args[0]


def _scaled(call: Any, operator: str, definition: Definition) -> tuple[Any, float] | None:
    """Operand and number of an operator with a constant scalar as its second operand."""
    if tvm_api.operator_name(call) != operator:
        return None
    number = tvm_api.constant_array(definition(call.args[1]))
    return None if number is None or number.size != 1 else (call.args[0], float(number.item()))


def by_sign(call: Any, definition: Definition) -> tuple[Any, Any] | None:
    """x and y of an expression relu(x) + y, where y is 0 for positive x; None if it is none.

    Args:
        call: a Relax call.
        definition: what a variable is bound to.
    """
    if tvm_api.operator_name(call) != "add":
        return None
    positive, negative = (definition(argument) for argument in call.args)
    if tvm_api.operator_name(positive) != "nn.relu":
        return None
    x = positive.args[0]
    known = is_elu(negative, x, definition) or prelu_slopes(negative, x, definition) is not None
    return (x, negative) if known else None


def is_elu(call: Any, x: Any, definition: Definition) -> bool:
    """Whether an expression is min(exp(x) - 1, 0)."""
    least = _scaled(call, "minimum", definition)
    if least is None or least[1] != 0.0:
        return False
    less = _scaled(definition(least[0]), "subtract", definition)
    if less is None or less[1] != 1.0:
        return False
    power = definition(less[0])
    return tvm_api.operator_name(power) == "exp" and bool(power.args[0].same_as(x))


def prelu_slopes(call: Any, x: Any, definition: Definition) -> Any | None:
    """Slopes of an expression min(x, 0) * slopes, None if it is none."""
    if tvm_api.operator_name(call) != "multiply":
        return None
    least = _scaled(definition(call.args[0]), "minimum", definition)
    if least is None or least[1] != 0.0 or not least[0].same_as(x):
        return None
    return call.args[1]
