# SPDX-License-Identifier: Apache-2.0
"""SELECT_V2 of TensorFlow Lite."""

from __future__ import annotations

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.tflite import TfliteConverter, TfliteOperator, register_all

relax = tvm_api.relax


def select(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """Elements of the second input where the first is true, else of the third; they broadcast."""
    condition, *choices = operator.inputs
    dtypes = [converter.tensor(number).dtype for number in operator.inputs]
    if len(choices) != 2 or dtypes[0] != "bool" or dtypes[1] != dtypes[2]:
        raise ModelError(f"its inputs are {', '.join(dtypes)}")
    return relax.op.where(*(converter.value(number) for number in (condition, *choices)))


register_all(("SELECT_V2",), select, "float32", "int8", "int16", data=1, same_scale=True)
