# SPDX-License-Identifier: Apache-2.0
"""ELU: x if it is positive, else exp(x) - 1, as a table for 8 bits.

Source is TensorFlow Lite Micro's `elu.cc`.
"""

from __future__ import annotations

import numpy as np

from umakit import tvm_api
from umakit.operators.derivation.expressions import with_scalar
from umakit.operators.islands import Island
from umakit.operators.lookup import tflm_activation
from umakit.operators.numeric.fixed_point import Arithmetic, round_half_away
from umakit.operators.registry import Order, Recognition, register
from umakit.operators.tables.activations import table_of
from umakit.operators.tensors import Array, Definition, Scale
from umakit.operators.tflite import TfliteNode, converts
from umakit.tvm_api import Expr, relax


def _derive(island: Island) -> Expr | None:
    """Return the table of ELU, written by importers as relu(x) + min(exp(x) - 1, 0)."""
    if tvm_api.operator_name(island.call) != "add":
        return None
    positive, negative = (island.definition(argument) for argument in island.call.args)
    if tvm_api.operator_name(positive) != "nn.relu":
        return None
    x = positive.args[0]
    if not _is_negative_part(negative, x, island.definition):
        return None
    return tflm_activation("elu", island, island.dequantized(x), _table)


def _is_negative_part(call: Expr, x: Expr, definition: Definition) -> bool:
    least = with_scalar(call, "minimum", definition)
    if least is None or least[1] != 0.0:
        return False
    less = with_scalar(definition(least[0]), "subtract", definition)
    if less is None or less[1] != 1.0:
        return False
    power = definition(less[0])
    return tvm_api.operator_name(power) == "exp" and bool(power.args[0].same_as(x))


def _table(source: Scale, result: Scale) -> Array:
    """x if positive, else exp(x) - 1, computed in float32 like `elu.cc`.

    Args:
        source: scale of x, int8.
        result: scale of the result, int8.

    Returns:
        int8[256], for x = -128, ..., 127.
    """
    inverse = np.float32(1) / result.scale

    def function(integer: int) -> int:
        value = source.scale * np.float32(integer - source.zero_point)
        if value < 0:
            value = np.float32(np.exp(np.float64(value))) - np.float32(1)
        return round_half_away(float(value * inverse)) + result.zero_point

    return table_of(function)


register(
    name="elu",
    recognitions=(Recognition(("add",), _derive, (Arithmetic.TFLM,), Order.SPECIAL),),
)


@converts("ELU", "float32", "int8")
def convert(node: TfliteNode) -> Expr:
    """ELU as max(x, 0) + min(exp(x) - 1, 0)."""

    def function(data: Expr) -> Expr:
        emit, zero, one = node.emit, *(relax.const(n, "float32") for n in (0.0, 1.0))
        negative = relax.op.minimum(emit(relax.op.subtract(emit(relax.op.exp(data)), one)), zero)
        return relax.op.add(emit(relax.op.nn.relu(data)), emit(negative))

    return node.island(function)
