# SPDX-License-Identifier: Apache-2.0
"""`quantized.sigmoid_lookup` (data of 16 bits, table uint16[256]): logistic function and tanh.

The arithmetic is from TensorFlow Lite Micro's `integer_ops/logistic.h` and `integer_ops/tanh.h`, in
`kernels/internal`. Data of 8 bits have a table of 256 results (`logistic_common.cc`, `tanh.cc`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from umakit import tvm_api
from umakit.operators.drawing import Array, Random, Settings, Tensor
from umakit.operators.drawings.families import Fields, MadeOfOne, elements
from umakit.operators.interface import Interface
from umakit.operators.islands import Island
from umakit.operators.kernels import loops as ir
from umakit.operators.kernels.elementwise import elementwise_kernel
from umakit.operators.lookup import tflm_activation
from umakit.operators.numeric.fixed_point import shift_right_rounding
from umakit.operators.parameters import Parameters
from umakit.operators.registry import Recognition, Shapes, register
from umakit.operators.tables.activations import (
    check_result,
    fixed_point_sigmoid,
    fixed_point_tanh,
    saturating_table,
)
from umakit.operators.tables.sixteen_bits import power_of_two, sigmoid_argument, sigmoid_table
from umakit.operators.tensors import NoIntegerForm, Quantized, Scale
from umakit.operators.tflite import QUANTIZED, TfliteNode, converts
from umakit.tvm_api import Buffer, Expr, PrimExpr, PrimFunc, Stmt, int32, relax, tirx

LAST_SEGMENT = 254
"""Index of the last segment of the table of 256 values; beyond it the functions are constant."""


@dataclass(frozen=True)
class SigmoidLookup(Parameters):
    """1 / (1 + exp(-x)) or tanh(x) of 16 bits, interpolated in a table of 1 / (1 + exp(-x)).

    Attributes:
        function: `logistic` or `tanh`.
        multiplier, shift: `(x * multiplier + rounding) >> shift` is the position in the table, with
            9 fractional bits for `logistic` and 8 for `tanh`.
    """

    operator: ClassVar[str] = "sigmoid_lookup"

    function: str
    multiplier: int
    shift: int


def lookup_call(name: str, island: Island, source: Quantized) -> tvm_api.Expr:
    """Return a call for `logistic` or `tanh`.

    Raises:
        ValueError: the kernel does not support the scale of the operand.
    """
    result = island.result
    if power_of_two(float(result.scale.scale)) != -15:
        raise NoIntegerForm(f"its result has another scale than {2.0**-15}")
    multiplier, shift = sigmoid_argument(float(source.scale.scale), tanh=name == "tanh")
    parameters = SigmoidLookup(
        **result.common(island.arithmetic), function=name, multiplier=multiplier, shift=shift
    )
    table = tvm_api.relax.const(sigmoid_table(), "uint16")
    return parameters.call([source.integers, table], result.span)


def _kernel(parameters: SigmoidLookup, shapes: Shapes, dtypes: list[str]) -> PrimFunc:
    argument, tanh = (parameters.multiplier, parameters.shift), parameters.function == "tanh"

    def one(output: Buffer, place: list[PrimExpr], element: PrimExpr, table: Buffer) -> Stmt:
        steps = ir.Statements()
        result = between(steps, table, int32(element), argument, tanh=tanh)
        return ir.sequence(*steps.list, ir.store_shifted(output, place, result, 0, parameters))

    return elementwise_kernel(parameters, shapes, dtypes, ("data", "table"), one, tables=1)


def between(
    steps: ir.Statements,
    table: tvm_api.Buffer,
    value: PrimExpr,
    argument: tuple[int, int],
    *,
    tanh: bool,
) -> PrimExpr:
    """Return 1 / (1 + exp(-x)) or tanh(x) with 15 fractional bits, interpolated in the table.

    Args:
        value: int32 expression of 16 bits.
        argument: multiplier and shift, see `SigmoidLookup`.
        tanh: whether to compute tanh(x).
    """
    multiplier, shift = argument
    bits = 8 if tanh else 9
    rounding = 1 << (shift - 1) if shift else 0
    product = value * int32(multiplier)
    position = steps.bind("position", (product + int32(rounding)) >> int32(shift))
    distance = steps.bind(
        "distance", tirx.Select(position < int32(0), int32(0) - position, position)
    )
    segment = steps.bind("segment", distance >> int32(bits))
    index = steps.bind("index", tirx.min(segment, int32(LAST_SEGMENT)))
    base = steps.bind("base", int32(table[index]))
    slope = int32(table[index + int32(1)]) - base
    rest = distance & int32((1 << bits) - 1)
    inside = (base << int32(bits)) + rest * slope
    limit = 0xFFFF << 8 if tanh else 0x7FFF << 10
    found = steps.bind("value", tirx.Select(segment > int32(LAST_SEGMENT), int32(limit), inside))
    if tanh:
        right = found - int32((1 << 23) - (1 << 7))
        left = int32((1 << 23) + (1 << 7) - 1) - found
    else:
        right, left = found + int32(1 << 9), int32((1 << 25) + (1 << 9) - 1) - found
    sided = tirx.Select(position < int32(0), left, right)
    return steps.bind("result", sided >> int32(8 if tanh else 10))


def _drawn(common: Fields, data: Tensor, settings: Settings, random: Random) -> MadeOfOne:
    function, exponent = str(settings["function"]), float(random.uniform(-14, -9))
    scale = 2.0 ** (-12 if settings["scale"] == "power" else exponent)
    multiplier, shift = sigmoid_argument(scale, tanh=function == "tanh")
    parameters = SigmoidLookup(**common, function=function, multiplier=multiplier, shift=shift)
    return parameters, [sigmoid_table()]


register(
    parameters=SigmoidLookup,
    kernel_of_operands=_kernel,
    takes_clip=True,
    drawing=elements(
        _drawn,
        result=lambda data, zero_point: 0,
        dtype=("int16",),
        rounding=("tflm",),
        function=("logistic", "tanh"),
        scale=("power", "any"),
    ),
    interface=Interface(
        operands={"data": "", "table": "uint16"},
        values={"function": ("logistic", "tanh")},
        dtypes="int16",
    ),
)


def _of_all_widths(
    name: str, relax_name: str, in_fixed_point: Callable[[int], int], bits: int, zero_point: int
) -> Recognition:
    """Return the recognition of one of the functions: a table for 8 bits, `SigmoidLookup` for 16.

    Args:
        in_fixed_point: function from an argument to a result with 31 fractional bits.
        bits: fractional bits of results of 8 bits.
        zero_point: zero point of int8 results.
    """

    def table(source: Scale, result: Scale) -> Array:
        check_result(result, 2.0**-bits, zero_point)
        return saturating_table(
            source, lambda x: shift_right_rounding(in_fixed_point(x), 31 - bits) + zero_point
        )

    def derive(island: Island) -> Expr:
        of_16_bits = partial(lookup_call, name)
        return tflm_activation(name, island, island.operand(), table, of_16_bits)

    return Recognition((relax_name,), derive)


LOGISTIC = _of_all_widths("logistic", "sigmoid", fixed_point_sigmoid, 8, -128)
TANH = _of_all_widths("tanh", "tanh", fixed_point_tanh, 7, 0)

register("logistic", recognitions=(LOGISTIC,))
register("tanh", recognitions=(TANH,))


@converts("LOGISTIC", "float32", *QUANTIZED)
def logistic(node: TfliteNode) -> Expr:
    """LOGISTIC."""
    return node.island(relax.op.sigmoid)


@converts("TANH", "float32", *QUANTIZED)
def tanh(node: TfliteNode) -> Expr:
    """TANH."""
    return node.island(relax.op.tanh)
