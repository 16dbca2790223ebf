# SPDX-License-Identifier: Apache-2.0
"""`quantized.prelu` (data, slopes of 8 bits), of shapes that broadcast.

Source is TensorFlow Lite Micro's `prelu_common.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from umakit import tvm_api
from umakit.operators.derivation.expressions import with_scalar
from umakit.operators.drawings import pairs
from umakit.operators.interface import TFLM, Interface
from umakit.operators.islands import Island, Result
from umakit.operators.kernels.elementwise import elementwise_kernel, factor_by_sign
from umakit.operators.kernels.loops import sequence, store_rescaled
from umakit.operators.multipliers import check_headroom, fixed_points
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.parameters import Pair, Parameters
from umakit.operators.registry import Order, Recognition, Shapes, register
from umakit.operators.tensors import Definition, NoIntegerForm, Quantized
from umakit.operators.tflite import TfliteNode, converts
from umakit.tvm_api import Buffer, Call, Expr, PrimExpr, PrimFunc, Stmt, int32, relax, tirx


@dataclass(frozen=True)
class Prelu(Parameters):
    """x for positive x, else slope * x, with a tensor of slopes.

    Attributes:
        zero_points: zero points of data and slopes.
        multipliers, shifts: multipliers and shifts of positive elements, and of products of
            negative elements and slopes.
    """

    operator: ClassVar[str] = "prelu"

    zero_points: Pair
    multipliers: Pair
    shifts: Pair


def _derive(island: Island) -> Expr | None:
    """Return the call; importers write a PReLU as relu(x) + min(x, 0) * slopes."""
    positive, negative = (island.definition(argument) for argument in island.call.args)
    if tvm_api.operator_name(positive) != "nn.relu":
        return None
    slopes = _slopes(negative, positive.args[0], island.definition)
    if slopes is None:
        return None
    source = island.dequantized(positive.args[0])
    return _call(island.result, source, island.dequantized(slopes), island.arithmetic)


def _slopes(call: Expr, x: Expr, definition: Definition) -> Expr | None:
    """Return the slopes of an expression min(x, 0) * slopes; None for other expressions."""
    if tvm_api.operator_name(call) != "multiply":
        return None
    least = with_scalar(definition(call.args[0]), "minimum", definition)
    if least is None or least[1] != 0.0 or not least[0].same_as(x):
        return None
    slopes: Expr = call.args[1]
    return slopes


def _call(result: Result, source: Quantized, slopes: Quantized, arithmetic: Arithmetic) -> Call:
    """A `quantized.prelu` call."""
    if slopes.scale.dtype != ("int8" if source.scale.dtype == "int16" else source.scale.dtype):
        raise NoIntegerForm(f"its slopes are {slopes.scale.dtype}")
    ratio = float(source.scale.scale) / float(result.scale.scale)
    product = float(source.scale.scale) * float(slopes.scale.scale) / float(result.scale.scale)
    scaled = fixed_points([ratio, product])
    largest = source.scale.magnitude
    for magnitude, shift in zip(
        (largest, largest * slopes.scale.magnitude), scaled.shifts, strict=True
    ):
        check_headroom(magnitude, int(shift), arithmetic)
    parameters = Prelu(
        **result.common(arithmetic),
        zero_points=(source.scale.zero_point, slopes.scale.zero_point),
        multipliers=(int(scaled.multipliers[0]), int(scaled.multipliers[1])),
        shifts=(int(scaled.shifts[0]), int(scaled.shifts[1])),
    )
    return parameters.call([source.integers, slopes.integers], result.span)


def _kernel(parameters: Prelu, shapes: Shapes, dtypes: list[str]) -> PrimFunc:
    def one(output: Buffer, place: list[PrimExpr], data: PrimExpr, slopes: PrimExpr) -> Stmt:
        value, slope = tirx.Var("value", "int32"), tirx.Var("slope", "int32")
        product = tirx.Select(value < int32(0), value * slope, value)
        factor = factor_by_sign(value, parameters.multipliers, parameters.shifts)
        return sequence(
            tirx.Bind(value, int32(data) - int32(parameters.zero_points[0])),
            tirx.Bind(slope, int32(slopes) - int32(parameters.zero_points[1])),
            store_rescaled(output, place, product, factor, parameters),
        )

    return elementwise_kernel(parameters, shapes, dtypes, ("data", "slopes"), one)


register(
    parameters=Prelu,
    kernel_of_operands=_kernel,
    recognitions=(Recognition(("add",), _derive, (Arithmetic.TFLM,), Order.SPECIAL),),
    takes_clip=True,
    drawing=pairs.slopes(Prelu),
    interface=Interface(
        operands={"data": "", "slopes": ""},
        names={
            "zero_points": ("input_zero_point", "slope_zero_point"),
            "multipliers": ("multiplier", "negative_multiplier"),
            "shifts": ("shift", "negative_shift"),
        },
        rounding=TFLM,
        broadcasts=True,
    ),
)


@converts("PRELU", "float32", "int8", "int16", weights=True)
def convert(node: TfliteNode) -> Expr:
    """PRELU as max(x, 0) + min(x, 0) * slopes."""
    data, slopes = map(node.dequantized, range(len(node.inputs)))
    emit, zero = node.emit, relax.const(0.0, "float32")
    negative = relax.op.multiply(emit(relax.op.minimum(data, zero)), slopes)
    value = relax.op.add(emit(relax.op.nn.relu(data)), emit(negative))
    return node.quantized(value)
