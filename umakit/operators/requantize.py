# SPDX-License-Identifier: Apache-2.0
"""`quantized.requantize` (data): a change of scale and zero point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from umakit.operators.drawing import Random, Settings, Tensor
from umakit.operators.drawings.families import Fields, MadeOfOne, elements
from umakit.operators.drawings.scales import SCALES, factors
from umakit.operators.interface import TFLM, Interface
from umakit.operators.islands import Island, Result
from umakit.operators.kernels.elementwise import elementwise_kernel
from umakit.operators.kernels.loops import store_rescaled
from umakit.operators.multipliers import check_headroom, multiplier_of
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.parameters import Parameters
from umakit.operators.registry import Recognition, Shapes, register
from umakit.operators.tensors import Quantized
from umakit.tvm_api import Buffer, Expr, PrimExpr, PrimFunc, Stmt, int32


@dataclass(frozen=True)
class Requantize(Parameters):
    """The same numbers with another scale and zero point, possibly clipped.

    Attributes:
        input_zero_point: zero point of the data.
        multiplier, shift: multiplier and shift of the ratio of the scales.
    """

    operator: ClassVar[str] = "requantize"

    input_zero_point: int
    multiplier: int
    shift: int


def change_of_scale(result: Result, source: Quantized, arithmetic: Arithmetic) -> Requantize:
    """Return the parameters of a requantization, possibly with an activation."""
    factor = float(source.scale.scale) / float(result.scale.scale)
    multiplier, shift = multiplier_of(factor, source.scale.magnitude, arithmetic)
    check_headroom(source.scale.magnitude, shift, arithmetic)
    return Requantize(
        **result.common(arithmetic),
        input_zero_point=source.scale.zero_point,
        multiplier=multiplier,
        shift=shift,
    )


def _derive(island: Island) -> Expr:
    source = island.integers_of(island.call)
    parameters = change_of_scale(island.result, source, island.arithmetic_of(source))
    return parameters.call([source.integers], island.result.span)


def _kernel(parameters: Requantize, shapes: Shapes, dtypes: list[str]) -> PrimFunc:
    factor = (int32(parameters.multiplier), int32(parameters.shift))

    def one(output: Buffer, place: list[PrimExpr], element: PrimExpr) -> Stmt:
        value = int32(element) - int32(parameters.input_zero_point)
        return store_rescaled(output, place, value, factor, parameters)

    return elementwise_kernel(parameters, shapes, dtypes, ("data",), one)


def _drawn(common: Fields, data: Tensor, settings: Settings, random: Random) -> MadeOfOne:
    multipliers, shifts = factors(settings, 1.0, 1, random)
    parameters = Requantize(
        **common, input_zero_point=data.zero_point, multiplier=int(multipliers[0]),
        shift=int(shifts[0]),
    )  # fmt: skip
    return parameters, []


register(
    parameters=Requantize,
    kernel_of_operands=_kernel,
    recognitions=(Recognition(("dequantize",), _derive),),
    takes_clip=True,
    drawing=elements(_drawn, scale=SCALES, dtype=("int8", "uint8", "int16")),
    interface=Interface(rounding=TFLM),
)
