# SPDX-License-Identifier: Apache-2.0
"""ARG_MAX and ARG_MIN of TensorFlow Lite."""

from __future__ import annotations

from typing import Any

from umakit import tvm_api
from umakit.operators.tflite import Convert, TfliteConverter, TfliteOperator, one_axis, register_all

relax = tvm_api.relax


def place_of_extreme(function: Any) -> Convert:
    """ARG_MAX or ARG_MIN along a constant axis, as int32."""

    def convert(converter: TfliteConverter, operator: TfliteOperator) -> Any:
        rank = len(converter.shape(operator.inputs[0]))
        axis = one_axis(converter.integers(operator, 1), rank)
        places = function(converter.value(operator.inputs[0]), axis)
        return relax.op.astype(converter.emit(places), "int32")

    return convert


for _code, _function in (("ARG_MAX", relax.op.argmax), ("ARG_MIN", relax.op.argmin)):
    _dtypes = [(dtype, "int32") for dtype in ("float32", "int8", "uint8")]
    register_all((_code,), place_of_extreme(_function), *_dtypes)
