# SPDX-License-Identifier: Apache-2.0
"""CAST of TensorFlow Lite: converts the stored numbers and ignores scales."""

from __future__ import annotations

from itertools import product

from umakit import tvm_api
from umakit.operators.tflite import TfliteConverter, TfliteOperator, register_all

RESULTS = ("int8", "int16", "int32", "float32")
SOURCES = (*RESULTS, "bool")


def cast(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """CAST: C's conversion of each element, but defined for float32 values out of range too."""
    result = converter.tensor(operator.outputs[0]).dtype
    return tvm_api.relax.op.astype(converter.value(operator.inputs[0]), result)


register_all(("CAST",), cast, *product(SOURCES, RESULTS), scaled=False)
