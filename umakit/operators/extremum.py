# SPDX-License-Identifier: Apache-2.0
"""MAXIMUM and MINIMUM of two tensors of TensorFlow Lite."""

from __future__ import annotations

from collections.abc import Callable

from umakit import tvm_api
from umakit.operators.tflite import (
    QUANTIZED,
    WHOLE,
    Convert,
    TfliteConverter,
    TfliteOperator,
    register_all,
)

relax = tvm_api.relax


def extremum(function: Callable[..., tvm_api.Expr]) -> Convert:
    """Return the conversion of MAXIMUM or MINIMUM, of integers of one scale or of real numbers."""

    def convert(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
        return function(*(converter.value(number) for number in operator.inputs))

    return convert


for _code, _function in (("MAXIMUM", relax.op.maximum), ("MINIMUM", relax.op.minimum)):
    register_all(
        (_code,), extremum(_function), "float32", *QUANTIZED, *WHOLE, same_dtype=True,
        same_scale=True,
    )  # fmt: skip
