# SPDX-License-Identifier: Apache-2.0
"""REDUCE_MAX and REDUCE_MIN, and REDUCE_ALL of TensorFlow Lite."""

from __future__ import annotations

from collections.abc import Callable

from umakit import tvm_api
from umakit.operators.mean import reduced_axes
from umakit.operators.tflite import Convert, TfliteConverter, TfliteOperator, register_all

relax = tvm_api.relax


def extreme(function: Callable[..., tvm_api.Expr]) -> Convert:
    """The largest or least element over constant axes."""

    def convert(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
        axes, keep = reduced_axes(converter, operator)
        return function(converter.value(operator.inputs[0]), axes, keep)

    return convert


def reduce_all(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """Whether all elements over constant axes are true."""
    axes, keep = reduced_axes(converter, operator)
    numbers = converter.emit(relax.op.astype(converter.value(operator.inputs[0]), "int8"))
    return relax.op.astype(converter.emit(relax.op.min(numbers, axes, keep)), "bool")


register_all(("REDUCE_MAX",), extreme(relax.op.max), "float32", "int8", same_scale=True)
register_all(("REDUCE_MIN",), extreme(relax.op.min), "float32", "int8", same_scale=True)
register_all(("REDUCE_ALL",), reduce_all, "bool")
