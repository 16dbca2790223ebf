# SPDX-License-Identifier: Apache-2.0
"""Parts of derivations: constant scalars, operands at the result's scale, checks of softmaxes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from umakit import tvm_api
from umakit.operators.islands import Island, Result
from umakit.operators.lookup import Lookup
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.requantize import change_of_scale
from umakit.operators.tables.functions import conversion, is_identity
from umakit.operators.tensors import Definition, NoIntegerForm, Quantized, Scale
from umakit.tvm_api import Expr


def with_scalar(call: Expr, operator: str, definition: Definition) -> tuple[Expr, float] | None:
    """Return the first operand and the constant scalar second operand; None for other calls."""
    if tvm_api.operator_name(call) != operator:
        return None
    number = tvm_api.constant_array(definition(call.args[1]))
    return None if number is None or number.size != 1 else (call.args[0], float(number.item()))


def integers_of_result(island: Island, source: Quantized) -> Expr:
    """Return an operand at the result's scale, limited to the range of the activation.

    The rounding is ONNX Runtime's: a table for 8 bits, once with ties to even for 16 bits.
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


TOLERANCE_OF_SCALES = 1e-3
"""Relative, of softmax's result of 16 bits (`softmax_common.cc`)."""


def has_scale(scale: Scale, wanted: float) -> bool:
    """Whether a scale has the wanted value; 16-bit scales are compared with a tolerance."""
    if scale.dtype == "int16":
        return abs(float(scale.scale) - wanted) <= TOLERANCE_OF_SCALES * wanted
    return bool(scale.scale == np.float32(wanted))


def check_last_axis(result: Result) -> None:
    """Refuse a softmax over another axis than the last axis."""
    if int(result.call.attrs.axis) not in (-1, len(result.shape) - 1):
        raise NoIntegerForm("softmax is not over the last axis")
