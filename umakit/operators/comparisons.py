# SPDX-License-Identifier: Apache-2.0
"""Comparisons and logical operators of TensorFlow Lite.

Integers of 8 bits are compared after a change of scale to fixed point, `ComparisonWithScaling` of
kernels/internal/reference/comparisons.h.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from umakit import tvm_api
from umakit.operators.lookup import Lookup
from umakit.operators.tables.activations import multiplied
from umakit.operators.tflite import WHOLE, Convert, TfliteConverter, TfliteOperator, register_all
from umakit.operators.tflite_integers import TFLM, scale_of, smaller_than_one

relax = tvm_api.relax

LEFT_SHIFT = 8
"""Bits that integers are shifted before the change of scale."""

INT32 = (-(2**31), 2**31 - 1)


def comparison(function: Callable[..., tvm_api.Expr]) -> Convert:
    """Return the conversion of a comparison of two inputs whose shapes broadcast."""

    def convert(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
        numbers = operator.inputs
        if converter.tensor(numbers[0]).dtype != "int8":
            return function(*(converter.value(number) for number in numbers))
        return function(*(_on_fixed_point(converter, number) for number in numbers))

    return convert


def _on_fixed_point(converter: TfliteConverter, number: int) -> tvm_api.Expr:
    """Return the real values of an int8 tensor as int32 with fractional bits."""
    scale = scale_of(converter, number)
    factor = smaller_than_one(float(scale.scale), f"the scale of {converter.tensor(number).name!r}")
    table = [
        multiplied((integer - scale.zero_point) << LEFT_SHIFT, *factor)
        for integer in range(-128, 128)
    ]
    parameters = Lookup(converter.shape(number), "int32", 0, INT32, TFLM.value, "rescale")
    constant = relax.const(np.array(table, np.int32))
    return converter.emit(parameters.call([converter.value(number), constant], None))


for _code, _function in {
    "EQUAL": relax.op.equal,
    "NOT_EQUAL": relax.op.not_equal,
    "GREATER": relax.op.greater,
    "GREATER_EQUAL": relax.op.greater_equal,
    "LESS": relax.op.less,
    "LESS_EQUAL": relax.op.less_equal,
}.items():
    _sources = ["float32", "int8", *WHOLE]
    if _code in ("EQUAL", "NOT_EQUAL"):
        _sources.append("bool")
    register_all(
        (_code,), comparison(_function), *((dtype, "bool") for dtype in _sources), same_dtype=True
    )


def logical(function: Callable[..., tvm_api.Expr]) -> Convert:
    """Return the conversion of a function of all inputs, whose shapes broadcast."""

    def convert(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
        return function(*(converter.value(number) for number in operator.inputs))

    return convert


register_all(("LOGICAL_AND",), logical(relax.op.logical_and), "bool", same_dtype=True)
register_all(("LOGICAL_OR",), logical(relax.op.logical_or), "bool", same_dtype=True)
register_all(("LOGICAL_NOT",), logical(relax.op.logical_not), "bool")
