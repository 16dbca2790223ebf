# SPDX-License-Identifier: Apache-2.0
"""MEAN and SUM of TensorFlow Lite."""

from __future__ import annotations

from typing import Any

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.tflite import Convert, TfliteConverter, TfliteOperator, register_all

relax = tvm_api.relax


def reduction(function: Any) -> Convert:
    """MEAN or SUM over constant axes."""

    def convert(converter: TfliteConverter, operator: TfliteOperator) -> Any:
        axes, keep = reduced_axes(converter, operator)
        return converter.island(operator, lambda data: function(data, axes, keep))

    return convert


def reduced_axes(converter: TfliteConverter, operator: TfliteOperator) -> tuple[list[int], bool]:
    """Axes, and whether they stay with one element."""
    keep = bool(converter.options(operator, "ReducerOptions").KeepDims())
    rank = len(converter.shape(operator.inputs[0]))
    given = converter.integers(operator, 1)
    if not given or any(not -rank <= axis < rank for axis in given):
        raise ModelError(f"its axes are {given}")
    return sorted({axis % rank for axis in given}), keep


register_all(("MEAN",), reduction(relax.op.mean), "float32", "int8", "int16")
register_all(("SUM",), reduction(relax.op.sum), "float32", "int8", "int16", "int32", "int64")
