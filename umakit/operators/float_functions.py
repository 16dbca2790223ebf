# SPDX-License-Identifier: Apache-2.0
"""Elementwise functions of TensorFlow Lite without parameters of their own.

Integers of 8 bits are compared after a change of scale to fixed point, `ComparisonWithScaling` of
kernels/internal/reference/comparisons.h."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from umakit import tvm_api
from umakit.operators.lookup import Lookup
from umakit.operators.multipliers import check_headroom
from umakit.operators.numeric.fixed_point import quantize_multiplier
from umakit.operators.numeric.inverse_square_root import inverse_square_root
from umakit.operators.requantize import Requantize
from umakit.operators.tables.activations import multiplied
from umakit.operators.tflite import (
    QUANTIZED,
    WHOLE,
    Convert,
    TfliteNode,
    converts,
    float32,
    imported,
)
from umakit.operators.tflite_integers import (
    TFLM,
    as_refusals,
    lookup,
    result_fields,
    scale_of,
    smaller_than_one,
)
from umakit.tvm_api import Expr, relax


def function(of: Callable[..., Expr]) -> Convert:
    """Return the conversion of an operator to one Relax operator."""

    def convert(node: TfliteNode) -> Expr:
        return of(node.value(0))

    return convert


@converts("ROUND", "float32")
def round_to_even(node: TfliteNode) -> Expr:
    """ROUND to the nearest integer, ties to even; `round.h` with its `floor`."""
    data = node.value(0)
    below = node.emit(relax.op.floor(data))
    rest = node.emit(relax.op.subtract(data, below))
    half = node.emit(relax.op.multiply(below, float32(0.5)))
    even = node.emit(relax.op.equal(node.emit(relax.op.floor(half)), half))
    tie = node.emit(relax.op.equal(rest, float32(0.5)))
    down = node.emit(
        relax.op.logical_or(
            node.emit(relax.op.less(rest, float32(0.5))),
            node.emit(relax.op.logical_and(tie, even)),
        )
    )
    return relax.op.where(down, below, node.emit(relax.op.add(below, float32(1.0))))


def limited(low: float, high: float) -> Convert:
    """Return the conversion of an operator that clips its input to a range."""

    def convert(node: TfliteNode) -> Expr:
        bounds = (tvm_api.float_value(bound) for bound in (low, high))
        return relax.op.clip(node.value(0), *bounds)

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
    converts(_code, "float32")(function(_function))
converts("RELU_0_TO_1", "float32")(limited(0.0, 1.0))
converts("RELU_N1_TO_1", "float32")(limited(-1.0, 1.0))


RESULTS = ("int8", "int16", "int32", "float32")
SOURCES = (*RESULTS, "bool")


@converts("CAST", *product(SOURCES, RESULTS), scaled=False)
def cast(node: TfliteNode) -> Expr:
    """CAST: C's conversion of each element, also defined for float32 values out of range."""
    result = node.result.dtype
    return relax.op.astype(node.value(0), result)


@converts("FLOOR_DIV", "float32", same_dtype=True)
def floor_div(node: TfliteNode) -> Expr:
    """FLOOR_DIV: the floor of the float32 quotient."""
    operands = node.values()
    return relax.op.floor(node.emit(relax.op.divide(*operands)))


@converts("FLOOR_MOD", "float32", same_dtype=True)
def floor_mod(node: TfliteNode) -> Expr:
    """FLOOR_MOD: C's `fmod`, plus the divisor if the signs differ (`floor_mod.h`)."""
    emit = node.emit
    left, right = node.values()
    rest = emit(relax.op.mod(left, right))
    zero = float32(0.0)
    negative = [emit(relax.op.less(value, zero)) for value in (rest, right)]
    moved = emit(
        relax.op.logical_and(
            emit(relax.op.not_equal(rest, zero)), emit(relax.op.logical_xor(*negative))
        )
    )
    return relax.op.where(moved, emit(relax.op.add(rest, right)), rest)


def extremum(function: Callable[..., Expr]) -> Convert:
    """Return the conversion of MAXIMUM or MINIMUM, of integers of one scale or of real numbers."""

    def convert(node: TfliteNode) -> Expr:
        return function(*node.values())

    return convert


for _code, _function in (("MAXIMUM", relax.op.maximum), ("MINIMUM", relax.op.minimum)):
    converts(_code, "float32", *QUANTIZED, *WHOLE, same_dtype=True, same_scale=True)(
        extremum(_function)
    )


@converts("ABS", "float32", "int8", "int16")
def absolute(node: TfliteNode) -> Expr:
    """ABS: a table for int8, a change of scale for int16."""
    value = node.value(0)
    dtype = node.tensor(0).dtype
    if dtype == "float32":
        return relax.op.abs(value)
    source, result = map(scale_of, (node.tensor(0), node.result))
    # In float64, as the released runtime computes, though elementwise.cc reads like float32.
    factor = quantize_multiplier(float(source.scale) / float(result.scale))
    with as_refusals():
        if dtype == "int8":
            magnitudes = (abs(integer - source.zero_point) for integer in range(-128, 128))
            table = [multiplied(value, *factor) + result.zero_point for value in magnitudes]
            return lookup(node, np.array(table), "abs")
        check_headroom(source.magnitude, factor[1], TFLM)
    wide = node.emit(relax.op.astype(value, "int32"))
    parameters = Requantize(
        **result_fields(node), input_zero_point=0, multiplier=factor[0],
        shift=factor[1],
    )  # fmt: skip
    return parameters.call([node.emit(relax.op.abs(wide))], None)


KEPT_BITS = 20
"""Fractional bits of the inverse root before it is rescaled (`kShift`)."""

LARGEST = 127


@converts("RSQRT", "float32", "int8")
def rsqrt(node: TfliteNode) -> Expr:
    """1 / sqrt(x); a table for int8.

    The zero point has the largest result, and so have smaller integers, for which TensorFlow Lite
    Micro ends the run with an error.
    """
    if node.tensor(0).dtype == "float32":
        return relax.op.rsqrt(node.value(0))
    source, result = map(scale_of, (node.tensor(0), node.result))
    # Square root and product are float32 in the reference, the quotient is float64.
    divisor = np.sqrt(np.float32(source.scale)) * np.float32(result.scale)
    factor = quantize_multiplier(1.0 / float(divisor))

    def function(integer: int) -> int:
        value = integer - source.zero_point
        if value <= 0:
            return LARGEST
        multiplier, shift = inverse_square_root(value)
        root = multiplied(1, multiplier, shift + KEPT_BITS)
        return multiplied(root, factor[0], factor[1] - KEPT_BITS) + result.zero_point

    with as_refusals():
        table = np.array([function(integer) for integer in range(-128, 128)])
    return lookup(node, table, "rsqrt")


LEFT_SHIFT = 8
"""Bits that integers are shifted before the change of scale."""

INT32 = (-(2**31), 2**31 - 1)


def comparison(function: Callable[..., Expr]) -> Convert:
    """Return the conversion of a comparison of two inputs whose shapes broadcast."""

    def convert(node: TfliteNode) -> Expr:
        if node.tensor(0).dtype != "int8":
            return function(*node.values())
        return function(*(_on_fixed_point(node, position) for position in range(len(node.inputs))))

    return convert


def _on_fixed_point(node: TfliteNode, position: int) -> Expr:
    """Return the real values of an int8 tensor as int32 with fractional bits."""
    tensor = node.tensor(position)
    scale = scale_of(tensor)
    factor = smaller_than_one(float(scale.scale), f"the scale of {tensor.name!r}")
    table = [
        multiplied((integer - scale.zero_point) << LEFT_SHIFT, *factor)
        for integer in range(-128, 128)
    ]
    parameters = Lookup(tensor.shape, "int32", 0, INT32, TFLM.value, "rescale")
    constant = relax.const(np.array(table, np.int32))
    return node.emit(parameters.call([node.value(position), constant], None))


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
    converts(_code, *((dtype, "bool") for dtype in _sources), same_dtype=True)(
        comparison(_function)
    )


def logical(function: Callable[..., Expr]) -> Convert:
    """Return the conversion of a function of all inputs, whose shapes broadcast."""

    def convert(node: TfliteNode) -> Expr:
        return function(*node.values())

    return convert


converts("LOGICAL_AND", "bool", same_dtype=True)(logical(relax.op.logical_and))
converts("LOGICAL_OR", "bool", same_dtype=True)(logical(relax.op.logical_or))
converts("LOGICAL_NOT", "bool")(logical(relax.op.logical_not))


converts("RELU", "float32", *QUANTIZED)(imported)
converts("RELU6", "float32", *QUANTIZED, same_scale=True)(imported)
