# SPDX-License-Identifier: Apache-2.0
"""HARD_SWISH: x * min(max(x + 3, 0), 6) / 6 as a table for 8 bits.

Sources are TensorFlow Lite Micro's `hard_swish.h` and `hard_swish_common.cc`.
"""

from __future__ import annotations

import math

from umakit import tvm_api
from umakit.operators.derivation.expressions import with_scalar
from umakit.operators.islands import Island
from umakit.operators.lookup import tflm_activation
from umakit.operators.numeric.fixed_point import (
    Arithmetic,
    quantize_multiplier,
    shift_right_rounding,
)
from umakit.operators.registry import Order, Recognition, register
from umakit.operators.tables.activations import table_of
from umakit.operators.tensors import Array, Definition, Scale
from umakit.operators.tflite import TfliteNode, converts
from umakit.tvm_api import Expr, relax


def _derive(island: Island) -> Expr | None:
    argument = _argument(island.call, island.definition)
    if argument is None:
        return None
    return tflm_activation("hard_swish", island, island.dequantized(argument), _table)


def _argument(call: Expr, definition: Definition) -> Expr | None:
    """Return x of an expression (x * clip(x + 3, 0, 6)) * (1 / 6); None for other expressions."""
    sixth = with_scalar(call, "multiply", definition)
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
    moved = with_scalar(definition(clip.args[0]), "add", definition)
    if moved is None or moved[1] != 3.0 or not moved[0].same_as(product.args[0]):
        return None
    return moved[0]


def _table(source: Scale, result: Scale) -> Array:
    """x * min(max(x + 3, 0), 6) / 6 in 16-bit fixed point.

    Args:
        source: scale of x, int8.
        result: scale of the result, int8.

    Returns:
        int8[256], for x = -128, ..., 127.

    Raises:
        ValueError: the reference does not support the scales.
    """
    # In float64, as the released runtime computes, though hard_swish_common.cc reads like float32.
    fine = float(source.scale) / 128
    output_by, output_shift = _short_multiplier(fine / float(result.scale))
    ramp_by, ramp_shift = _short_multiplier(fine / (3.0 / 32768.0))
    if not (-15 <= output_shift <= 0 and -15 <= ramp_shift <= 31):
        raise ValueError("the scales of operand and result are too far apart for 16 bits")

    def function(integer: int) -> int:
        value = (integer - source.zero_point) * 128
        ramp = value
        if ramp_shift > 0:
            ramp = _int16(ramp * 2 ** (ramp_shift - 1))
        ramp = _short_high_product(ramp, ramp_by)
        if ramp_shift > 0:
            ramp = _int16(ramp * 2)
        if ramp_shift < 0:
            ramp = shift_right_rounding(ramp, -ramp_shift)
        ramp = (ramp + 2**15) >> 1
        product = ramp * _short_high_product(value, output_by)
        truncated = int(math.copysign(abs(product) >> 15, product))
        return shift_right_rounding(truncated, -output_shift) + result.zero_point

    return table_of(function)


def _short_multiplier(factor: float) -> tuple[int, int]:
    """Return a 15-bit multiplier (`DownScaleInt32ToInt16Multiplier`) and its shift."""
    multiplier, shift = quantize_multiplier(factor)
    return min((multiplier + 2**15) >> 16, 2**15 - 1), shift


def _short_high_product(left: int, right: int) -> int:
    """`SaturatingRoundingDoublingHighMul` of two int16, of which one is not the minimum."""
    return (left * right + 2**14) >> 15


def _int16(value: int) -> int:
    return min(max(value, -(2**15)), 2**15 - 1)


register(
    name="hard_swish",
    recognitions=(Recognition(("multiply",), _derive, (Arithmetic.TFLM,), Order.SPECIAL),),
)


@converts("HARD_SWISH", "float32", "int8")
def convert(node: TfliteNode) -> Expr:
    """HARD_SWISH as x * min(max(x + 3, 0), 6) / 6."""

    def function(data: Expr) -> Expr:
        moved = relax.op.add(data, relax.const(3.0, "float32"))
        ramp = relax.op.clip(moved, tvm_api.float_value(0.0), tvm_api.float_value(6.0))
        product = relax.op.multiply(data, ramp)
        return relax.op.multiply(product, relax.const(1 / 6, "float32"))

    return node.island(function)
