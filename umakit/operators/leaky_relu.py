# SPDX-License-Identifier: Apache-2.0
"""`quantized.leaky_relu` (data of 16 bits), and the table of a leaky ReLU of 8 bits.

Sources are TensorFlow Lite Micro's `leaky_relu_common.cc` and `leaky_relu.h`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from umakit.errors import ModelError
from umakit.operators.drawing import NotDrawable, Random, Settings, Tensor
from umakit.operators.drawings.families import Fields, MadeOfOne, elements
from umakit.operators.drawings.scales import SCALES, factors
from umakit.operators.interface import TFLM, Interface
from umakit.operators.islands import Island
from umakit.operators.kernels.elementwise import elementwise_kernel, factor_by_sign
from umakit.operators.kernels.loops import sequence, store_shifted
from umakit.operators.lookup import tflm_activation
from umakit.operators.multipliers import check_headroom, fixed_points
from umakit.operators.numeric.fixed_point import quantize_multiplier
from umakit.operators.numeric.requantize import requantize
from umakit.operators.parameters import Pair, Parameters
from umakit.operators.registry import Recognition, Shapes, register
from umakit.operators.tables.activations import multiplied, table_of
from umakit.operators.tensors import Array, Quantized, Scale
from umakit.operators.tflite import QUANTIZED, TfliteNode, converts
from umakit.tvm_api import Buffer, Call, Expr, PrimExpr, PrimFunc, Stmt, int32, relax, tirx


@dataclass(frozen=True)
class LeakyRelu(Parameters):
    """x for positive x, else slope * x.

    Attributes:
        input_zero_point: zero point of the data.
        multipliers, shifts: multipliers and shifts of positive and of negative elements.
        negated: 1 if the slope is negative, else 0.
    """

    operator: ClassVar[str] = "leaky_relu"

    input_zero_point: int
    multipliers: Pair
    shifts: Pair
    negated: int


def _derive(island: Island) -> Expr:
    source = island.operand()
    slope = float(island.call.attrs.alpha)
    return tflm_activation(
        "leaky_relu", island, source, lambda data, result: _table(data, result, slope), _of_16_bits
    )


def _table(source: Scale, result: Scale, slope: float) -> Array:
    """int8[256] for x = -128, ..., 127.

    Raises:
        ValueError: a factor has no fixed-point multiplier.
    """
    ratio, factor = _factors(source, result, slope)
    positive, negative = quantize_multiplier(ratio), quantize_multiplier(abs(factor))

    def function(integer: int) -> int:
        value = integer - source.zero_point
        if value >= 0:
            scaled = multiplied(value, *positive)
        else:
            scaled = int(math.copysign(1, factor)) * multiplied(value, *negative)
        return result.zero_point + scaled

    return table_of(function)


def _factors(source: Scale, result: Scale, slope: float) -> tuple[float, float]:
    # In float64, as the released runtime computes, though leaky_relu_common.cc reads like float32.
    ratio = float(source.scale) / float(result.scale)
    return ratio, float(source.scale) * float(np.float32(slope)) / float(result.scale)


def _of_16_bits(island: Island, source: Quantized) -> Call:
    result, arithmetic = island.result, island.arithmetic
    slope = float(np.float32(result.call.attrs.alpha))
    ratio, factor = _factors(source.scale, result.scale, slope)
    scaled = fixed_points([ratio, abs(factor)])
    for shift in scaled.shifts:
        check_headroom(source.scale.magnitude, int(shift), arithmetic)
    parameters = LeakyRelu(
        **result.common(arithmetic),
        input_zero_point=source.scale.zero_point,
        multipliers=(int(scaled.multipliers[0]), int(scaled.multipliers[1])),
        shifts=(int(scaled.shifts[0]), int(scaled.shifts[1])),
        negated=int(factor < 0),
    )
    return parameters.call([source.integers], result.span)


def _kernel(parameters: LeakyRelu, shapes: Shapes, dtypes: list[str]) -> PrimFunc:
    def one(output: Buffer, place: list[PrimExpr], element: PrimExpr) -> Stmt:
        value, result = tirx.Var("value", "int32"), tirx.Var("result", "int32")
        factor = factor_by_sign(value, parameters.multipliers, parameters.shifts)
        signed: PrimExpr = result
        if parameters.negated:
            signed = tirx.Select(value < int32(0), int32(0) - result, result)
        return sequence(
            tirx.Bind(value, int32(element) - int32(parameters.input_zero_point)),
            tirx.Bind(result, requantize(value, *factor, parameters.arithmetic)),
            store_shifted(output, place, signed, parameters.output_zero_point, parameters),
        )

    return elementwise_kernel(parameters, shapes, dtypes, ("data",), one)


def _drawn(common: Fields, data: Tensor, settings: Settings, random: Random) -> MadeOfOne:
    multipliers, shifts = factors(settings, 1, 2, random)
    for shift in shifts:
        if data.dtype == "int16" and shift > 0:
            raise NotDrawable("a left shift of 16 bits")
    parameters = LeakyRelu(
        **common,
        input_zero_point=data.zero_point,
        multipliers=(int(multipliers[0]), int(multipliers[1])),
        shifts=(int(shifts[0]), int(shifts[1])),
        negated=int(random.integers(2)),
    )
    return parameters, []


register(
    parameters=LeakyRelu,
    kernel_of_operands=_kernel,
    recognitions=(Recognition(("nn.leakyrelu",), _derive),),
    takes_clip=True,
    drawing=elements(_drawn, dtype=("int16", "int8", "uint8"), rounding=("tflm",), scale=SCALES),
    interface=Interface(
        names={
            "multipliers": ("multiplier", "negative_multiplier"),
            "shifts": ("shift", "negative_shift"),
        },
        rounding=TFLM,
    ),
)


@converts("LEAKY_RELU", "float32", *QUANTIZED)
def convert(node: TfliteNode) -> Expr:
    """LEAKY_RELU."""
    slope = float(node.options("LeakyReluOptions").Alpha())
    if not math.isfinite(slope):
        raise ModelError(f"its alpha is {slope}")
    return node.island(lambda data: relax.op.nn.leakyrelu(data, slope))
