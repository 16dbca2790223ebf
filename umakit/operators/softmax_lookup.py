# SPDX-License-Identifier: Apache-2.0
"""`quantized.softmax_lookup` (data, exponentials int16[513], reciprocals int16[513]): of 16 bits.

The arithmetic is from TensorFlow Lite Micro's `softmax.h` (`SoftmaxInt16`) and `common.h`
(`LUTLookup`), both in `kernels/internal`, and from `softmax_common.cc`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from umakit import tvm_api
from umakit.operators.derivation.expressions import check_last_axis, has_scale
from umakit.operators.drawing import NotDrawable, Random, Settings, Tensor
from umakit.operators.drawings.families import Fields, MadeOfOne, elements
from umakit.operators.interface import Interface, rows
from umakit.operators.islands import Island
from umakit.operators.kernels import loops as ir
from umakit.operators.multipliers import check_headroom, fixed_points
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.numeric.requantize import requantize
from umakit.operators.parameters import Parameters
from umakit.operators.registry import Order, Recognition, Shapes, register
from umakit.operators.tables.sixteen_bits import softmax_tables
from umakit.operators.tensors import NoIntegerForm
from umakit.tvm_api import PrimExpr, Stmt, int32, int64, tirx

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


def _derive(island: Island) -> tvm_api.Expr | None:
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


def _kernel(parameters: SoftmaxLookup, shapes: Shapes, dtypes: list[str]) -> tvm_api.PrimFunc:
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


def _between(steps: ir.Statements, table: tvm_api.Buffer, argument: PrimExpr) -> PrimExpr:
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


def _drawn(common: Fields, data: Tensor, settings: Settings, random: Random) -> MadeOfOne:
    if data.shape[-1] > LONGEST_ROW:
        raise NotDrawable("a row that is too long")
    scaled = fixed_points([float(np.exp2(random.uniform(-14, -9))) / (10.0 / 65535.0)])
    if LARGEST_DIFFERENCE << max(int(scaled.shifts[0]), 0) >= 2**31:
        raise NotDrawable("differences need too many bits")
    multiplier, shift = int(scaled.multipliers[0]), int(scaled.shifts[0])
    return SoftmaxLookup(**common, multiplier=multiplier, shift=shift), list(softmax_tables())


register(
    parameters=SoftmaxLookup,
    kernel_of_operands=_kernel,
    recognitions=(Recognition(("nn.softmax",), _derive, (Arithmetic.TFLM,), Order.SPECIAL),),
    takes_clip=True,
    drawing=elements(
        _drawn, result=lambda data, zero_point: 0, dtype=("int16",), rounding=("tflm",)
    ),
    interface=Interface(
        operands={"data": "", "exponentials": "int16", "reciprocals": "int16"},
        sizes=rows,
        dtypes="int16",
    ),
)
