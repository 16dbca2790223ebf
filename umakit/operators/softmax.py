# SPDX-License-Identifier: Apache-2.0
"""`quantized.softmax` (data [rows, n], table int32[256]): softmax of 8 bits over the last axis.

Exponentials come from a table, the reciprocal from Newton's method. The arithmetic is from
gemmlowp's fixed-point functions (`GetReciprocal`, `one_over_one_plus_x_for_x_in_0_1`) in TensorFlow
Lite's integer softmax; scales are from `softmax_common.cc`. `quantized.softmax_lookup` (data,
exponentials int16[513], reciprocals int16[513]) is the softmax of 16 bits, with the arithmetic of
`softmax.h` (`SoftmaxInt16`) and `common.h` (`LUTLookup`) in TensorFlow Lite Micro's
`kernels/internal`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.derivation.expressions import check_last_axis, has_scale
from umakit.operators.drawing import NotDrawable, Random, Settings, Tensor
from umakit.operators.drawings.families import Fields, MadeOfOne, elements
from umakit.operators.interface import Interface, rows
from umakit.operators.islands import Island
from umakit.operators.kernels import loops as ir
from umakit.operators.multipliers import check_headroom, fixed_points
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.numeric.requantize import header_call, requantize
from umakit.operators.parameters import Parameters
from umakit.operators.registry import Order, Recognition, Shapes, register
from umakit.operators.tables.sixteen_bits import (
    exponential_table,
    fixed_point_of_differences,
    softmax_tables,
)
from umakit.operators.tensors import NoIntegerForm
from umakit.operators.tflite import QUANTIZED, TfliteNode, converts
from umakit.tvm_api import Buffer, Expr, PrimExpr, PrimFunc, Stmt, int32, int64, tirx

SUM_INTEGER_BITS = 12
"""Integer bits of the sum of exponentials (`kAccumulationIntegerBits`)."""

MOST_TERMS = 2**SUM_INTEGER_BITS - 1
"""Elements of a row: the sum of one more that are equal is 2**31, which overflows the reference's
int32 (`sum_of_exps` in `reference/softmax.h`), so that it defines no result."""


RESULT_BITS = {"int8": 8, "uint8": 8, "int16": 16}
"""Fractional bits of a result."""


@dataclass(frozen=True)
class Softmax(Parameters):
    """Softmax over the last axis, with a table of exponentials (`tables.exponentials`).

    Attributes:
        multiplier, shift: factor of differences to the largest element of a row; products have 26
            fractional bits, and the table has their exponentials.
        diff_min: least difference with an exponential other than 0.
    """

    operator: ClassVar[str] = "softmax"

    multiplier: int = 0
    shift: int = 0
    diff_min: int = 0


def _derive(island: Island) -> Expr:
    result, source = island.result, island.operand()
    check_last_axis(result)
    low, _ = result.scale.limits
    scale = 1 / 65536 if result.scale.dtype == "int16" else 1 / 256
    if not has_scale(result.scale, scale) or result.scale.zero_point != low:
        raise NoIntegerForm(f"softmax's result has a scale other than 1/{1 / scale:.0f}")
    if result.shape[-1] > MOST_TERMS:
        raise NoIntegerForm(
            f"softmax is over {result.shape[-1]} elements: TensorFlow Lite's sum of exponentials "
            f"overflows where more than {MOST_TERMS} are equal"
        )
    try:
        table = exponential_table(float(source.scale.scale))
        multiplier, shift, radius = fixed_point_of_differences(float(source.scale.scale))
    except ValueError as error:
        raise NoIntegerForm(str(error)) from None
    parameters = Softmax(
        **result.common(island.arithmetic), multiplier=multiplier, shift=shift, diff_min=-radius
    )
    return parameters.call([source.integers, tvm_api.relax.const(table)], result.span)


def _kernel(parameters: Softmax, shapes: Shapes, dtypes: list[str]) -> PrimFunc:
    """Return the kernel (data, table, output) of a softmax over the last axis."""
    data_shape, data_dtype = shapes[0], dtypes[0]
    *outer, length = data_shape
    data = ir.buffer("data", data_shape, data_dtype)
    table = ir.buffer("table", [256], "int32")
    output = ir.buffer("output", parameters.output_shape, parameters.output_dtype)
    largest = tirx.decl_buffer([1], data_dtype, "largest", scope="local")
    total, zero = ir.accumulators(1), int32(0)
    bits = RESULT_BITS[parameters.output_dtype]

    def row(number: PrimExpr) -> tvm_api.Stmt:
        def place(i: PrimExpr) -> list[PrimExpr]:
            return [*ir.unflatten(number, outer), i]

        def exponential(i: PrimExpr) -> PrimExpr:
            return table[int32(largest[zero]) - int32(data[tuple(place(i))])]

        def rounded(i: PrimExpr) -> PrimExpr:
            """An exponential with the fractional bits of the sum."""
            return header_call("divide_by_power_of_two", exponential(i), SUM_INTEGER_BITS)

        reciprocal, shift = tirx.Var("reciprocal", "int32"), tirx.Var("shift", "int32")

        def store(i: PrimExpr) -> tvm_api.Stmt:
            product = header_call("high_product", reciprocal, exponential(i))
            # A shift above 31, for a sum of exponentials of 512 or more and stored 8 bits,
            # makes 0 of 32 bits; the reference ends the program there.
            inside = header_call("divide_by_power_of_two", product, tirx.min(shift, int32(31)))
            statements, probability = ir.bound(
                "probability", tirx.Select(shift > int32(31), int32(0), inside)
            )
            return ir.sequence(*statements, ir.store_shifted(
                output, place(i), probability, parameters.output_zero_point, parameters
            ))  # fmt: skip

        return ir.sequence(
            tirx.AllocBuffer(largest),
            ir.set_to(largest, zero, data[tuple(place(zero))]),
            ir.loop("i", length, lambda i: ir.set_to(
                largest, zero, tirx.max(largest[zero], data[tuple(place(i))])
            )),
            tirx.AllocBuffer(total),
            ir.set_to(total, zero, zero),
            ir.loop("i", length, lambda i: ir.add_to(total, zero, rounded(i))),
            tirx.Bind(reciprocal, header_call("reciprocal", int32(total[zero]))),
            tirx.Bind(shift, int32(SUM_INTEGER_BITS + 31 - bits) - header_call(
                "leading_zeros", int32(total[zero])
            )),
            ir.loop("i", length, store),
        )  # fmt: skip

    body = ir.loop("row", math.prod(outer), row)
    # The table has a value for each distance from the largest element.
    return ir.kernel([data, table, output], body, inside=True)


def _drawn(common: Fields, data: Tensor, settings: Settings, random: Random) -> MadeOfOne:
    if data.shape[-1] > MOST_TERMS:
        raise NotDrawable("a sum of more exponentials than its integer bits hold")
    scale = float(np.exp2(random.uniform(-9, 0)))
    multiplier, shift, radius = fixed_point_of_differences(scale)
    parameters = Softmax(**common, multiplier=multiplier, shift=shift, diff_min=-radius)
    return parameters, [exponential_table(scale)]


register(
    parameters=Softmax,
    kernel_of_operands=_kernel,
    recognitions=(Recognition(("nn.softmax",), _derive, (Arithmetic.TFLM,)),),
    takes_clip=True,
    drawing=elements(
        _drawn,
        result=lambda data, zero_point: int(np.iinfo(data.dtype).min),
        dtype=("int8", "uint8"),
        rounding=("tflm",),
        clip=("none",),
    ),
    interface=Interface(operands={"data": "", "exponentials": "int32"}, sizes=rows),
)


INT16_RESULT = ("int8", "int16")
"""Only the result of a softmax of 8 bits has 16 that are not symmetric."""


@converts("SOFTMAX", "float32", *QUANTIZED, INT16_RESULT, asymmetric=(INT16_RESULT,))
def convert(node: TfliteNode) -> Expr:
    """SOFTMAX over the last axis, with a factor of 1."""
    beta = node.options("SoftmaxOptions").Beta()
    if beta != 1.0:
        raise ModelError(f"its beta is {beta}, only 1 is supported")
    return node.imported()


LARGEST_DIFFERENCE = 65535
"""Largest difference of two 16-bit integers."""


LONGEST_ROW = 65535
"""Largest number of elements of a row: 16-bit exponentials are added in 31 bits."""


@dataclass(frozen=True)
class SoftmaxLookup(Parameters):
    """Softmax of 16 bits over the last axis, between the values of two tables.

    Attributes:
        multiplier, shift: factor of differences to the largest element of a row; 65535 represents
            10.
    """

    operator: ClassVar[str] = "softmax_lookup"

    multiplier: int
    shift: int


def _derive_for_16_bits(island: Island) -> Expr | None:
    result, arithmetic = island.result, island.arithmetic
    source = island.operand()
    if source.scale.dtype != "int16":
        return None
    check_last_axis(result)
    if result.scale.dtype != "int16" or not has_scale(result.scale, 1 / 32768):
        raise NoIntegerForm("softmax's result has a scale other than 1/32768")
    if result.shape[-1] > LONGEST_ROW:
        raise NoIntegerForm(f"softmax is over {result.shape[-1]} elements")
    # 65535 steps of the table are 10.
    scaled = fixed_points([float(source.scale.scale) / (10.0 / 65535.0)])
    check_headroom(LARGEST_DIFFERENCE, int(scaled.shifts[0]), arithmetic)
    parameters = SoftmaxLookup(
        **result.common(arithmetic),
        multiplier=int(scaled.multipliers[0]),
        shift=int(scaled.shifts[0]),
    )
    tables = [tvm_api.relax.const(table) for table in softmax_tables()]
    return parameters.call([source.integers, *tables], result.span)


def _kernel_for_16_bits(parameters: SoftmaxLookup, shapes: Shapes, dtypes: list[str]) -> PrimFunc:
    """Return the kernel (data, exponentials, reciprocals, output) of a softmax over the last axis.

    Exponentials are computed twice, to save their memory.
    """
    softmax = _Softmax(parameters, shapes, dtypes)
    body = ir.loop("row", math.prod(shapes[0][:-1]), softmax.row)
    return ir.kernel([softmax.data, *softmax.tables, softmax.output], body)


class _Softmax:
    """Buffers and statements of a softmax of 16 bits."""

    def __init__(self, parameters: SoftmaxLookup, shapes: Shapes, dtypes: list[str]) -> None:
        self._parameters, self._shape = parameters, shapes[0]
        self._length = shapes[0][-1]
        names = ("data", "exponentials", "reciprocals")
        self.data, *self.tables = ir.buffers(names, shapes, dtypes)
        self.output = ir.buffer("output", parameters.output_shape, parameters.output_dtype)
        self._largest, self._total, self._zeros = (
            tirx.decl_buffer([1], "int32", name, scope="local")
            for name in ("largest", "total", "leading_zeros")
        )

    def row(self, row: PrimExpr) -> Stmt:
        """Return the statements for all results of a row."""
        zero, length = int32(0), self._length
        largest, total, zeros = self._largest, self._total, self._zeros
        steps = ir.Statements()
        reciprocal = self._reciprocal(steps)
        return ir.sequence(
            *(tirx.AllocBuffer(item) for item in (largest, total, zeros)),
            ir.set_to(largest, zero, self._element(row, zero)),
            ir.loop("i", length, lambda i: ir.set_to(
                largest, zero, tirx.max(largest[zero], self._element(row, i))
            )),
            ir.set_to(total, zero, zero),
            ir.loop("i", length, lambda i: self._add(row, i)),
            ir.set_to(zeros, zero, int32(1)),
            # The sum is positive: leading zeros are counted from bit 30 on.
            ir.loop("bit", 31, lambda bit: ir.set_to(
                zeros, zero, zeros[zero] + int32(total[zero] < (int32(1) << bit))
            )),
            *steps.list,
            ir.loop("i", length, lambda i: self._store(row, i, reciprocal)),
        )  # fmt: skip

    def _element(self, row: PrimExpr, i: PrimExpr) -> PrimExpr:
        return int32(self.data[tuple(ir.unflatten(row * int32(self._length) + i, self._shape))])

    def _exponential(self, steps: ir.Statements, row: PrimExpr, i: PrimExpr) -> PrimExpr:
        """exp of an element's difference to the largest element, with 15 fractional bits."""
        parameters = self._parameters
        difference = steps.bind("difference", self._element(row, i) - self._largest[int32(0)])
        factor = (int32(parameters.multiplier), int32(parameters.shift))
        scaled = steps.bind("scaled", requantize(difference, *factor, parameters.arithmetic))
        return _between(steps, self.tables[0], scaled + int32(2**15 - 1))

    def _add(self, row: PrimExpr, i: PrimExpr) -> Stmt:
        steps = ir.Statements()
        value = self._exponential(steps, row, i)
        return ir.sequence(
            *steps.list, ir.set_to(self._total, int32(0), self._total[int32(0)] + value)
        )

    def _reciprocal(self, steps: ir.Statements) -> PrimExpr:
        """1 / sum, for the sum without leading zeros as a number between 1 and 2."""
        shift = int64(self._zeros[int32(0)] - int32(1))
        aligned = int64(self._total[int32(0)]) << shift
        shortened = ((aligned + int64(1 << 13)) >> int64(14)).astype("int32")
        excess = steps.bind("excess", shortened - int32((1 << 15) + (1 << 16)))
        return _between(steps, self.tables[1], excess)

    def _store(self, row: PrimExpr, i: PrimExpr, reciprocal: PrimExpr) -> Stmt:
        steps = ir.Statements()
        value = self._exponential(steps, row, i)
        right = int32(31) - self._zeros[int32(0)]
        rounding = int64(1) << int64(right - int32(1))
        scaled = (int64(value) * int64(reciprocal) + rounding) >> int64(right)
        result = steps.bind("result", tirx.max(scaled.astype("int32"), int32(0)))
        place = ir.unflatten(row * int32(self._length) + i, self._parameters.output_shape)
        return ir.sequence(
            *steps.list, ir.store_shifted(self.output, place, result, 0, self._parameters)
        )


def _between(steps: ir.Statements, table: Buffer, argument: PrimExpr) -> PrimExpr:
    """`LUTLookup`: the function of an argument, limited to 16 bits.

    Args:
        table: int16[513].
        argument: int32.
    """
    limited = tirx.max(tirx.min(argument, int32(2**15 - 1)), int32(-(2**15)))
    value = steps.bind("argument", limited)
    segment = steps.bind("segment", (value >> int32(7)) + int32(256))
    base = steps.bind("base", int32(table[segment]))
    slope = int32(table[segment + int32(1)]) - base
    rest = value & int32(127)
    return steps.bind("between", base + ((slope * rest + int32(64)) >> int32(7)))


def _drawn_for_16_bits(
    common: Fields, data: Tensor, settings: Settings, random: Random
) -> MadeOfOne:
    if data.shape[-1] > LONGEST_ROW:
        raise NotDrawable("a row that is too long")
    scaled = fixed_points([float(np.exp2(random.uniform(-14, -9))) / (10.0 / 65535.0)])
    if LARGEST_DIFFERENCE << max(int(scaled.shifts[0]), 0) >= 2**31:
        raise NotDrawable("differences need too many bits")
    multiplier, shift = int(scaled.multipliers[0]), int(scaled.shifts[0])
    return SoftmaxLookup(**common, multiplier=multiplier, shift=shift), list(softmax_tables())


register(
    parameters=SoftmaxLookup,
    kernel_of_operands=_kernel_for_16_bits,
    recognitions=(
        Recognition(("nn.softmax",), _derive_for_16_bits, (Arithmetic.TFLM,), Order.SPECIAL),
    ),
    takes_clip=True,
    drawing=elements(
        _drawn_for_16_bits, result=lambda data, zero_point: 0, dtype=("int16",), rounding=("tflm",)
    ),
    interface=Interface(
        operands={"data": "", "exponentials": "int16", "reciprocals": "int16"},
        sizes=rows,
        dtypes="int16",
    ),
)
