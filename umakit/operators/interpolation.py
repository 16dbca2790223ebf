# SPDX-License-Identifier: Apache-2.0
"""`quantized.interpolation` (16-bit data, table of the result's dtype): lines and corrections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from umakit.operators.drawing import NotDrawable, Random, Settings, Tensor
from umakit.operators.drawings.families import Fields, MadeOfOne, elements
from umakit.operators.interface import Interface
from umakit.operators.kernels.elementwise import elementwise_kernel
from umakit.operators.parameters import Parameters
from umakit.operators.registry import Shapes, register
from umakit.operators.tables.straight_lines import LEAST_CORRECTIONS
from umakit.tvm_api import Buffer, PrimExpr, PrimFunc, Stmt, int32, tirx


@dataclass(frozen=True)
class Interpolation(Parameters):
    """A function of each 16-bit element by linear interpolation between tabulated values.

    A correction is added to the interpolated value of each integer, so that the function is exact.
    The table has 2**(16 - step_bits) + 1 values. Behind the values are the corrections of all
    integers from the least on, packed from the lowest bits of each element on.

    Attributes:
        step_bits: adjacent tabulated values belong to integers that are 2**step_bits apart.
        correction_bits: bits of each correction: 0 for none, 1, 2, 4 or 8; corrections of 4 and 8
            bits have a sign.
    """

    operator: ClassVar[str] = "interpolation"

    step_bits: int
    correction_bits: int


def _kernel(parameters: Interpolation, shapes: Shapes, dtypes: list[str]) -> PrimFunc:
    least = 2**15 if dtypes[0] == "int16" else 0
    step, bits = 1 << parameters.step_bits, parameters.correction_bits
    values, width = _values(parameters.step_bits), 8 * np.dtype(parameters.output_dtype).itemsize
    packed = width // max(bits, 1)

    def one(output: Buffer, at: list[PrimExpr], element: PrimExpr, table: Buffer) -> Stmt:
        place = int32(element) + int32(least)
        index, rest = place >> int32(parameters.step_bits), place & int32(step - 1)
        begin, end = (int32(table[n]) for n in (index, index + int32(1)))
        both = begin * (int32(step) - rest) + end * rest
        value = both >> int32(parameters.step_bits)
        if bits:
            # Corrections in an element: a power of two.
            word = int32(table[int32(values) + (place >> int32(packed.bit_length() - 1))])
            shift = (place & int32(packed - 1)) * int32(bits)
            sign = -LEAST_CORRECTIONS[bits]
            field = (word >> shift) & int32((1 << bits) - 1)
            value += (field ^ int32(sign)) - int32(sign) if sign else field
        return tirx.BufferStore(output, value.astype(parameters.output_dtype), at)

    return elementwise_kernel(parameters, shapes, dtypes, ("data", "table"), one, tables=1)


def _values(step_bits: int) -> int:
    return (1 << (16 - step_bits)) + 1


def _drawn(common: Fields, data: Tensor, settings: Settings, random: Random) -> MadeOfOne:
    step_bits, bits = int(settings["step_bits"]), int(settings["correction_bits"])
    limits, least = np.iinfo(data.dtype), LEAST_CORRECTIONS[bits]
    low, high = common["clip"][0] - least, common["clip"][1] - (1 << bits) + 1 - least
    if low > high:
        raise NotDrawable("corrections that exceed the bounds of the result")
    values = random.integers(low, high + 1, _values(step_bits))
    words = random.integers(limits.min, limits.max + 1, 2**16 * bits // (8 * limits.dtype.itemsize))
    parameters = Interpolation(**common, step_bits=step_bits, correction_bits=bits)
    return parameters, [np.concatenate([values, words]).astype(data.dtype)]


register(
    parameters=Interpolation,
    kernel_of_operands=_kernel,
    drawing=elements(
        _drawn,
        dtype=("int16",),
        rounding=("even",),
        step_bits=(7, 6, 9, 12),
        correction_bits=(0, 1, 2, 4, 8),
    ),
    interface=Interface(operands={"data": "", "table": ""}, dtypes="int16", clips=False),
)
