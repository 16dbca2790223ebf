# SPDX-License-Identifier: Apache-2.0
"""`quantized.quantize` (data float32, scale float32[1]): quantization of float results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.drawing import NotDrawable, Random, Settings, Tensor
from umakit.operators.drawings.families import common_fields, shape_of, zero_point_of
from umakit.operators.drawings.layers import Inputs, Made, layer
from umakit.operators.interface import Interface
from umakit.operators.islands import Island
from umakit.operators.kernels.elementwise import elementwise_kernel
from umakit.operators.kernels.loops import sequence
from umakit.operators.multipliers import check_headroom
from umakit.operators.numeric.fixed_point import quantize_multiplier
from umakit.operators.parameters import Parameters
from umakit.operators.registry import FLOATS, Recognition, Shapes, register
from umakit.operators.requantize import Requantize
from umakit.operators.tflite import QUANTIZED, TfliteNode, converts, imported
from umakit.operators.tflite_integers import TFLM, as_refusals, result_fields, scale_of
from umakit.tvm_api import Buffer, Expr, PrimExpr, PrimFunc, Stmt, int32, tirx


@dataclass(frozen=True)
class Quantize(Parameters):
    """Real numbers as integers: divided by the scale, rounded with ties away from zero.

    Relax's own quantize rounds ties to even.
    """

    operator: ClassVar[str] = "quantize"


def _derive(island: Island) -> Expr:
    result = island.result
    divisor = tvm_api.relax.const(np.array([result.scale.scale], np.float32))
    parameters = Quantize(**result.common(island.arithmetic))
    return parameters.call([result.call.args[0], divisor], result.span)


def _kernel(parameters: Quantize, shapes: Shapes, dtypes: list[str]) -> PrimFunc:
    """Return the kernel (data, scale, output) from float32 to integers, ties away from zero."""

    def one(output: Buffer, place: list[PrimExpr], element: PrimExpr, scale: Buffer) -> Stmt:
        quotient, whole = tirx.Var("quotient", "float32"), tirx.Var("whole", "float32")
        rest, half = quotient - whole, tvm_api.float_value(0.5)
        up, down, zero = (tvm_api.float_value(float(step)) for step in (1, -1, 0))
        step = tirx.Select(rest >= half, up, tirx.Select(rest <= -half, down, zero))
        # Clipped before the conversion, which is undefined in C for large numbers.
        low, high = (tvm_api.float_value(b - parameters.output_zero_point) for b in parameters.clip)
        rounded = tirx.max(tirx.min(whole + step, high), low)
        integer = int32(rounded) + int32(parameters.output_zero_point)
        return sequence(
            tirx.Bind(quotient, element / scale[int32(0)]),
            tirx.Bind(whole, tirx.trunc(quotient)),
            tirx.BufferStore(output, integer.astype(parameters.output_dtype), place),
        )

    return elementwise_kernel(parameters, shapes, dtypes, ("data", "scale"), one, tables=1)


def _floats(settings: Settings, data: Tensor | None) -> Inputs:
    found = data or Tensor(shape_of(settings), "float32")
    if found.dtype != "float32":
        raise NotDrawable("another dtype")
    return (found,)


def _drawn(settings: Settings, inputs: Inputs, random: Random) -> Made:
    (data,) = inputs
    least = {"usual": 1 / 40, "small": 1 / 1000, "large": 1 / 4}[str(settings["scale"])]
    scale = np.array([least * random.uniform(0.5, 1.5)], np.float32)
    zero_point = zero_point_of(settings, "output_zero_point")
    return Quantize(**common_fields(settings, data.shape, zero_point)), [scale]


register(
    parameters=Quantize,
    kernel_of_operands=_kernel,
    recognitions=(Recognition((FLOATS,), _derive),),
    takes_clip=True,
    drawing=layer(
        _drawn,
        _floats,
        input_zero_point=(),
        rounding=("tflm",),
        scale=("usual", "small", "large"),
    ),
    interface=Interface(operands={"data": "float32", "scale": "float32"}, checks=("result",)),
)


PAIRS = (
    ("float32", "int8"), ("float32", "int16"), ("int8", "int8"), ("int8", "uint8"),
    ("int8", "int16"), ("uint8", "int8"), ("int16", "int8"), ("int16", "int16"),
    ("float32", "uint8"), ("uint8", "uint8"), ("int8", "int32"), ("int16", "int32"),
)  # fmt: skip


@converts("QUANTIZE", *PAIRS, asymmetric=(("int16", "int32"),))
def convert(node: TfliteNode) -> Expr:
    """QUANTIZE; a change of scale for integers; islands decide the rounding of real numbers."""
    if node.result.dtype == "int32":
        return _with_32_bits(node)
    return node.island(lambda data: data)


def _with_32_bits(node: TfliteNode) -> Expr:
    """A change of scale to int32 without zero point."""
    source, result = map(scale_of, (node.tensor(0), node.result))
    if result.zero_point:
        raise ModelError("its result of 32 bits has a zero point")
    with as_refusals():
        multiplier, shift = quantize_multiplier(float(source.scale) / float(result.scale))
        check_headroom(source.magnitude, shift, TFLM)
    parameters = Requantize(
        **result_fields(node),
        input_zero_point=source.zero_point,
        multiplier=multiplier,
        shift=shift,
    )
    return parameters.call([node.value(0)], None)


TO_FLOAT = tuple((dtype, "float32") for dtype in QUANTIZED)

converts("DEQUANTIZE", *TO_FLOAT, asymmetric=TO_FLOAT)(imported)
