# SPDX-License-Identifier: Apache-2.0
"""LOGICAL_AND, LOGICAL_OR and LOGICAL_NOT of TensorFlow Lite."""

from __future__ import annotations

from collections.abc import Callable

from umakit import tvm_api
from umakit.operators.tflite import Convert, TfliteConverter, TfliteOperator, register_all

relax = tvm_api.relax


def logical(function: Callable[..., tvm_api.Expr]) -> Convert:
    """A function of all inputs, whose shapes broadcast."""

    def convert(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
        return function(*(converter.value(number) for number in operator.inputs))

    return convert


register_all(("LOGICAL_AND",), logical(relax.op.logical_and), "bool", same_dtype=True)
register_all(("LOGICAL_OR",), logical(relax.op.logical_or), "bool", same_dtype=True)
register_all(("LOGICAL_NOT",), logical(relax.op.logical_not), "bool")
