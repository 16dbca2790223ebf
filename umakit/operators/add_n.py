# SPDX-License-Identifier: Apache-2.0
"""ADD_N of TensorFlow Lite."""

from __future__ import annotations

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.derivation.shifted_sums import rescaled_sum
from umakit.operators.tflite import TfliteConverter, TfliteOperator, register_all
from umakit.operators.tflite_integers import scale_of

relax = tvm_api.relax


def add_n(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """ADD_N of tensors of one shape and scale."""
    numbers = operator.inputs
    if any(converter.shape(number) != converter.shape(numbers[0]) for number in numbers):
        raise ModelError("its inputs have different shapes")
    if converter.tensor(numbers[0]).dtype == "float32":
        total = converter.value(numbers[0])
        for number in numbers[1:]:
            total = converter.emit(relax.op.add(total, converter.value(number)))
        return total
    scales = [scale_of(converter, number) for number in numbers]
    if any(scale != scales[0] for scale in scales):
        raise ModelError("its inputs have different scales")
    total = relax.const(np.int32(-scales[0].zero_point * (len(numbers) + 1)))
    for number in numbers:
        wide = converter.emit(relax.op.astype(converter.value(number), "int32"))
        total = converter.emit(relax.op.add(wide, total))
    return rescaled_sum(converter, operator, total, scales[0], len(numbers))


register_all(("ADD_N",), add_n, "float32", "int8", same_dtype=True)
