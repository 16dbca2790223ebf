# SPDX-License-Identifier: Apache-2.0
"""Elementwise functions that TensorFlow Lite Micro supports for float32 only."""

from __future__ import annotations

from collections.abc import Callable

from umakit import tvm_api
from umakit.operators.tflite import Convert, TfliteConverter, TfliteOperator, float32, register_all

relax = tvm_api.relax


def function(of: Callable[..., tvm_api.Expr]) -> Convert:
    """Return the conversion of an operator to one Relax operator."""

    def convert(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
        return of(converter.value(operator.inputs[0]))

    return convert


def round_to_even(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """ROUND to the nearest integer, ties to even; `round.h` with its `floor`."""
    data = converter.value(operator.inputs[0])
    below = converter.emit(relax.op.floor(data))
    rest = converter.emit(relax.op.subtract(data, below))
    half = converter.emit(relax.op.multiply(below, float32(0.5)))
    even = converter.emit(relax.op.equal(converter.emit(relax.op.floor(half)), half))
    tie = converter.emit(relax.op.equal(rest, float32(0.5)))
    down = converter.emit(
        relax.op.logical_or(
            converter.emit(relax.op.less(rest, float32(0.5))),
            converter.emit(relax.op.logical_and(tie, even)),
        )
    )
    return relax.op.where(down, below, converter.emit(relax.op.add(below, float32(1.0))))


def limited(low: float, high: float) -> Convert:
    """Return the conversion of an operator that limits its input to a range."""

    def convert(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
        bounds = (tvm_api.float_value(bound) for bound in (low, high))
        return relax.op.clip(converter.value(operator.inputs[0]), *bounds)

    return convert


FUNCTIONS = {
    "CEIL": relax.op.ceil,
    "COS": relax.op.cos,
    "EXP": relax.op.exp,
    "FLOOR": relax.op.floor,
    "LOG": relax.op.log,
    "NEG": relax.op.negative,
    "SIN": relax.op.sin,
    "SQRT": relax.op.sqrt,
    "SQUARE": relax.op.square,
}

for _code, _function in FUNCTIONS.items():
    register_all((_code,), function(_function), "float32")
register_all(("ROUND",), round_to_even, "float32")
register_all(("RELU_0_TO_1",), limited(0.0, 1.0), "float32")
register_all(("RELU_N1_TO_1",), limited(-1.0, 1.0), "float32")
