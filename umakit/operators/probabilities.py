# SPDX-License-Identifier: Apache-2.0
"""`quantized.probabilities` (data, table of exponentials): softmax over any axis, for ONNX Runtime.

The table is int32[256], int32[512] for data of 16 bits. Results are exact quotients of tabulated
exponentials, rounded once; they differ from ONNX Runtime's by at most one LSB, next to ties.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from umakit import tvm_api
from umakit.operators.drawing import NotDrawable, Random, Settings
from umakit.operators.drawings.families import common_fields
from umakit.operators.drawings.layers import Inputs, Made, layer
from umakit.operators.interface import Interface, along_axes
from umakit.operators.islands import Island
from umakit.operators.kernels import loops as ir
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.parameters import Parameters
from umakit.operators.registry import Recognition, Shapes, register
from umakit.operators.tensors import Array, NoIntegerForm, Scale
from umakit.tvm_api import Buffer, Expr, PrimExpr, PrimFunc, Stmt, int32, int64, tirx

EXPONENTIAL_BITS = 30
"""Fraction bits of exponentials; the largest one is 1."""


MOST_NUMERATOR_BITS = 24
LONGEST = 1 << 16
"""Elements of rows that are drawn are fewer."""


@dataclass(frozen=True)
class Probabilities(Parameters):
    """Softmax over an axis: exponential * numerator / (sum of exponentials * 2**exponent).

    The quotient is rounded to nearest, ties to even.

    Attributes:
        axis: the axis, from 0.
        numerator, exponent: numerator / 2**exponent is the reciprocal of the result's scale.
    """

    operator: ClassVar[str] = "probabilities"

    axis: int
    numerator: int
    exponent: int


def _derive(island: Island) -> Expr:
    """Return the call.

    `QLinearSoftmax` truncates the reciprocal of the result's scale to an integer; ONNX Runtime's
    float32 softmax for other types does not.
    """
    result, source = island.result, island.operand()
    axis = int(result.call.attrs.axis) % len(result.shape)
    length = result.shape[axis]
    fused = source.scale.dtype == result.scale.dtype and source.scale.bits == 8
    reciprocal = 1.0 / float(result.scale.scale)
    room = 62 - EXPONENTIAL_BITS - length.bit_length()
    exponent = min(MOST_NUMERATOR_BITS - math.frexp(reciprocal)[1], room)
    if fused:
        exponent, reciprocal = 0, float(np.floor(np.float32(1) / result.scale.scale))
    numerator = round(reciprocal * 2.0**exponent)
    if exponent < 0 or not 0 < numerator < 2**MOST_NUMERATOR_BITS + 1:
        raise NoIntegerForm("softmax's result has a scale that 8 or 16 bits do not suit")
    parameters = Probabilities(
        **result.common(Arithmetic.ORT), axis=axis, numerator=numerator, exponent=exponent
    )
    table = tvm_api.relax.const(_exponentials(source.scale))
    return parameters.call([source.integers, table], result.span)


def _exponentials(scale: Scale) -> Array:
    """exp(-d * scale) for d = 0, ..., 255 in fixed point, int32[256].

    For 16 bits int32[512]: exp(-256 * d * scale), then exp(-d * scale); an exponential is a product
    of two.
    """
    distances = np.arange(256.0)
    if scale.bits > 8:
        distances = np.concatenate([256 * distances, distances])
    values = np.exp(-distances * float(scale.scale)) * 2.0**EXPONENTIAL_BITS
    return np.rint(values).astype(np.int32)


def _kernel(parameters: Probabilities, shapes: Shapes, dtypes: list[str]) -> PrimFunc:
    """Return the kernel (data, table, output) of a softmax over an axis.

    Each element takes a 64-bit division. Sums and products stay below 2**62.
    """
    shape = shapes[0]
    before, length, after = (
        shape[: parameters.axis],
        shape[parameters.axis],
        shape[parameters.axis + 1 :],
    )
    data, table = ir.buffer("data", shape, dtypes[0]), ir.buffer("table", shapes[1], "int32")
    output = ir.buffer("output", parameters.output_shape, parameters.output_dtype)
    largest = tirx.decl_buffer([1], "int32", "largest", scope="local")
    total = tirx.decl_buffer([1], "int64", "total", scope="local")
    zero = int32(0)

    def row(outer: PrimExpr, inner: PrimExpr) -> Stmt:
        def at(i: PrimExpr) -> list[PrimExpr]:
            return [*ir.unflatten(outer, before), i, *ir.unflatten(inner, after)]

        def element(i: PrimExpr) -> PrimExpr:
            return int32(data[tuple(at(i))])

        def add(i: PrimExpr) -> Stmt:
            statements, value = _exponential(table, shapes[1][0], largest[zero] - element(i))
            return ir.sequence(*statements, ir.set_to(total, zero, total[zero] + value))

        def quotient(i: PrimExpr) -> Stmt:
            statements, value = _exponential(table, shapes[1][0], largest[zero] - element(i))
            more, rounded = _quotient(
                value * int64(parameters.numerator), total[zero], parameters.exponent
            )
            store = ir.store_shifted(
                output, at(i), rounded, parameters.output_zero_point, parameters
            )
            return ir.sequence(*statements, *more, store)

        return ir.sequence(
            tirx.AllocBuffer(largest),
            tirx.AllocBuffer(total),
            ir.set_to(largest, zero, element(zero)),
            ir.loop(
                "i", length, lambda i: ir.set_to(largest, zero, tirx.max(largest[zero], element(i)))
            ),
            ir.set_to(total, zero, int64(0)),
            ir.loop("i", length, add),
            ir.loop("i", length, quotient),
        )

    extents = [("outer", math.prod(before)), ("inner", math.prod(after))]
    # The table has a value for each distance from the largest element.
    return ir.kernel([data, table, output], ir.loops(extents, row), inside=True)


def _exponential(table: Buffer, size: int, distance: PrimExpr) -> tuple[list[Stmt], PrimExpr]:
    """Statements, and exp(-distance) as int64, from a table of a size."""
    if size == 256:
        return ir.bound("exponential", int64(table[distance]))
    coarse = int64(table[distance >> int32(8)])
    fine = int64(table[(distance & int32(255)) + int32(256)])
    return ir.bound("exponential", (coarse * fine) >> int64(EXPONENTIAL_BITS))


def _quotient(numerator: PrimExpr, total: PrimExpr, exponent: int) -> tuple[list[Stmt], PrimExpr]:
    """numerator / (total * 2**exponent) to the nearest integer, ties to even; int32."""
    first, above = ir.bound("numerator", numerator)
    second, below = ir.bound("denominator", total << int64(exponent))
    third, whole = ir.bound("quotient", tirx.truncdiv(above, below))
    doubled = (above - whole * below) * int64(2) + (whole & int64(1))
    rounded = (whole + int64(doubled > below)).astype("int32")
    return [*first, *second, *third], rounded


def _drawn(settings: Settings, inputs: Inputs, random: Random) -> Made:
    (data,) = inputs
    axis = len(data.shape) - 1 - int(settings["axis"])
    if axis < 0 or data.shape[axis] >= LONGEST:
        raise NotDrawable("too few axes, or a row that is too long")
    low = int(np.iinfo(data.dtype).min)
    bits = 8 * np.dtype(data.dtype).itemsize - (data.dtype == "int16")
    fields = common_fields(settings, data.shape, 0 if data.dtype == "int16" else low)
    table = _exponentials(
        Scale(np.float32(np.exp2(random.uniform(-9, -2))), data.zero_point, data.dtype)
    )
    return Probabilities(**fields, axis=axis, numerator=1 << bits, exponent=0), [table]


register(
    parameters=Probabilities,
    kernel_of_operands=_kernel,
    recognitions=(Recognition(("nn.softmax",), _derive, (Arithmetic.ORT,)),),
    drawing=layer(_drawn, axis=(0, 1, 2, 3), clip=("none",), rounding=("ort",)),
    interface=Interface(
        operands={"data": "", "exponentials": "int32"}, sizes=along_axes, names={"axis": ()}
    ),
)
