# SPDX-License-Identifier: Apache-2.0
"""Any function of one integer tensor, with ONNX Runtime's float32 arithmetic.

The operators between a dequantize and a quantize of one tensor become a table (`lookup`), linear
interpolation in a table (`interpolation`, for 16 bits), or a change of scale.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from umakit import tvm_api
from umakit.operators.interpolation import Interpolation
from umakit.operators.islands import Island, Result
from umakit.operators.lookup import Lookup
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.registry import QUANTIZE, Order, Recognition, register
from umakit.operators.requantize import change_of_scale
from umakit.operators.tables.functions import FunctionOfOne, all_integers, is_identity, quantized
from umakit.operators.tables.straight_lines import interpolation_table
from umakit.operators.tensors import Array, NoIntegerForm
from umakit.tvm_api import relax

HALF_AN_LSB = 0.51
"""Largest distance of an exact result from its integer, including float32's rounding."""


def _derive(island: Island) -> tvm_api.Expr | None:
    """Return the quantize of a constant or of a function of one tensor; None for other islands.

    Constants that an exporter left as quantize(weights) are folded.
    """
    result = island.result
    argument, scale = result.call.args[0], result.scale
    constant = tvm_api.constant_array(island.definition(argument))
    if constant is not None:
        return relax.const(quantized(constant, scale))
    try:
        function = FunctionOfOne(argument, island.definition)
    except NoIntegerForm:
        return None
    table = quantized(function.values, scale)
    if is_identity(table, function.source.scale):
        return function.source.integers
    if function.source.scale.bits > 8:
        return _of_16_bits(function, table, result)
    operands = [function.source.integers, relax.const(table)]
    return Lookup(**result.common(Arithmetic.ORT)).call(operands, result.span)


def _of_16_bits(function: FunctionOfOne, table: Array, result: Result) -> tvm_api.Call:
    source, target = function.source.scale, result.scale
    clip = int(table.min()), int(table.max())
    there = replace(result, clip=clip)
    distances = all_integers(source.dtype) - source.zero_point
    straight = distances * (float(source.scale) / float(target.scale)) + target.zero_point
    if np.abs(np.clip(straight, *clip) - table.astype(np.int64)).max() <= HALF_AN_LSB:
        change = change_of_scale(there, function.source, Arithmetic.EVEN)
        return change.call([function.source.integers], result.span)
    lines = interpolation_table(table)
    parameters = Interpolation(
        **there.common(Arithmetic.EVEN),
        step_bits=lines.step_bits,
        correction_bits=lines.correction_bits,
    )
    return parameters.call([function.source.integers, relax.const(lines.table)], result.span)


register(
    name="function_of_one",
    recognitions=(Recognition((QUANTIZE,), _derive, (Arithmetic.ORT,), Order.SPECIAL),),
)
