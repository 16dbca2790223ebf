# SPDX-License-Identifier: Apache-2.0
"""Conversion of operands to the scale of the result."""

from __future__ import annotations

from dataclasses import replace

from umakit import tvm_api
from umakit.operators.islands import Island
from umakit.operators.lookup import Lookup
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.requantize import change_of_scale
from umakit.operators.tables.functions import conversion, is_identity
from umakit.operators.tensors import Quantized


def integers_of_result(island: Island, source: Quantized) -> tvm_api.Expr:
    """Return an operand at the result's scale, limited to the range of the activation.

    The rounding is ONNX Runtime's: a table for 8 bits, once with ties to even for 16 bits.

    Args:
        island: the operator with its quantize.
        source: operand of the operator.
    """
    result = island.result
    if source.scale == result.scale and result.clip == result.scale.limits:
        return source.integers
    there = replace(result, shape=tvm_api.static_shape(source.integers) or ())
    if source.scale.bits > 8:
        parameters = change_of_scale(there, source, Arithmetic.EVEN)
        return island.emit(parameters.call([source.integers], result.span))
    table = conversion(source.scale, result.scale, result.clip)
    if is_identity(table, source.scale):
        return source.integers
    lookup = Lookup(**there.common(Arithmetic.ORT))
    operands = [source.integers, tvm_api.relax.const(table)]
    return island.emit(lookup.call(operands, result.span))
