# SPDX-License-Identifier: Apache-2.0
"""Kernels of 16-bit functions that lie between the values of a table.

The arithmetic is that of TensorFlow Lite Micro's `integer_ops/logistic.h`, `integer_ops/tanh.h`,
`softmax.h` (`SoftmaxInt16`) and `common.h` (`LUTLookup`), all in `kernels/internal`.
"""

from __future__ import annotations

import math
from typing import Any

from umakit import tvm_api
from umakit.operators.kernels.loops import (
    buffer,
    buffers,
    int32,
    int64,
    kernel,
    loop,
    sequence,
    set_to,
    store_shifted,
    unflatten,
)
from umakit.operators.numeric.requantize import requantize
from umakit.quantization.further_operators import SigmoidLookup, SoftmaxLookup

tirx = tvm_api.tirx

Shapes = list[tuple[int, ...]]

LAST_SEGMENT = 254
"""Of the table of 256 values; beyond it functions are constant."""


class _Statements:
    """Statements that bind 32-bit intermediate values of a formula."""

    def __init__(self) -> None:
        self.list: list[Any] = []

    def bind(self, name: str, value: Any) -> Any:
        """A variable for a value."""
        variable = tirx.Var(name, "int32")
        self.list.append(tirx.Bind(variable, value))
        return variable


def sigmoid_lookup(known: SigmoidLookup, shapes: Shapes, dtypes: list[str]) -> Any:
    """Kernel (data, table, output) of 1 / (1 + exp(-x)) or tanh(x) of 16 bits.

    Args:
        known: parameters of the operator.
        shapes, dtypes: of data and table.
    """
    shape = shapes[0]
    data, table = buffer("data", shape, dtypes[0]), buffer("table", shapes[1], dtypes[1])
    output = buffer("output", known.output_shape, known.output_dtype)
    tanh = known.function == "tanh"
    bits = 8 if tanh else 9
    rounding = 1 << (known.shift - 1) if known.shift else 0

    def one(i: Any) -> Any:
        steps = _Statements()
        product = int32(data[tuple(unflatten(i, shape))]) * int32(known.multiplier)
        position = steps.bind("position", (product + int32(rounding)) >> int32(known.shift))
        distance = steps.bind(
            "distance", tirx.Select(position < int32(0), int32(0) - position, position)
        )
        segment = steps.bind("segment", distance >> int32(bits))
        index = steps.bind("index", tirx.min(segment, int32(LAST_SEGMENT)))
        base = steps.bind("base", int32(table[index]))
        slope = int32(table[index + int32(1)]) - base
        rest = distance & int32((1 << bits) - 1)
        between = (base << int32(bits)) + rest * slope
        limit = 0xFFFF << 8 if tanh else 0x7FFF << 10
        value = steps.bind(
            "value", tirx.Select(segment > int32(LAST_SEGMENT), int32(limit), between)
        )
        if tanh:
            right = value - int32((1 << 23) - (1 << 7))
            left = int32((1 << 23) + (1 << 7) - 1) - value
        else:
            right, left = value + int32(1 << 9), int32((1 << 25) + (1 << 9) - 1) - value
        sided = tirx.Select(position < int32(0), left, right)
        result = steps.bind("result", sided >> int32(8 if tanh else 10))
        place = unflatten(i, known.output_shape)
        return sequence(*steps.list, store_shifted(output, place, result, 0, known))

    return kernel([data, table, output], loop("i", math.prod(shape), one))


def softmax_lookup(known: SoftmaxLookup, shapes: Shapes, dtypes: list[str]) -> Any:
    """Kernel (data, exponentials, reciprocals, output) of a softmax over the last axis.

    Exponentials are computed twice, so that no memory is needed for them.

    Args:
        known: parameters of the operator.
        shapes, dtypes: of data and tables.
    """
    softmax = _Softmax(known, shapes, dtypes)
    body = loop("row", math.prod(shapes[0][:-1]), softmax.row)
    return kernel([softmax.data, *softmax.tables, softmax.output], body)


class _Softmax:
    """Buffers and statements of a softmax of 16 bits."""

    def __init__(self, known: SoftmaxLookup, shapes: Shapes, dtypes: list[str]) -> None:
        self._known, self._shape = known, shapes[0]
        self._length = shapes[0][-1]
        names = ("data", "exponentials", "reciprocals")
        self.data, *self.tables = buffers(names, shapes, dtypes)
        self.output = buffer("output", known.output_shape, known.output_dtype)
        self._largest, self._total, self._zeros = (
            tirx.decl_buffer([1], "int32", name, scope="local")
            for name in ("largest", "total", "leading_zeros")
        )

    def row(self, row: Any) -> Any:
        """All results of a row."""
        zero, length = int32(0), self._length
        largest, total, zeros = self._largest, self._total, self._zeros
        steps = _Statements()
        reciprocal = self._reciprocal(steps)
        return sequence(
            *(tirx.AllocBuffer(item) for item in (largest, total, zeros)),
            set_to(largest, zero, self._element(row, zero)),
            loop("i", length, lambda i: set_to(
                largest, zero, tirx.max(largest[zero], self._element(row, i))
            )),
            set_to(total, zero, zero),
            loop("i", length, lambda i: self._add(row, i)),
            set_to(zeros, zero, int32(1)),
            # The sum is positive: its bits are counted down from bit 30.
            loop("bit", 31, lambda bit: set_to(
                zeros, zero, zeros[zero] + int32(total[zero] < (int32(1) << bit))
            )),
            *steps.list,
            loop("i", length, lambda i: self._store(row, i, reciprocal)),
        )  # fmt: skip

    def _element(self, row: Any, i: Any) -> Any:
        return int32(self.data[tuple(unflatten(row * int32(self._length) + i, self._shape))])

    def _exponential(self, steps: _Statements, row: Any, i: Any) -> Any:
        """exp of an element's difference to the largest, with 15 fractional bits."""
        known = self._known
        difference = steps.bind("difference", self._element(row, i) - self._largest[int32(0)])
        factor = (int32(known.multiplier), int32(known.shift))
        scaled = steps.bind("scaled", requantize(difference, *factor, known.arithmetic))
        return _between(steps, self.tables[0], scaled + int32(2**15 - 1))

    def _add(self, row: Any, i: Any) -> Any:
        """Add an exponential to the sum."""
        steps = _Statements()
        value = self._exponential(steps, row, i)
        return sequence(*steps.list, set_to(self._total, int32(0), self._total[int32(0)] + value))

    def _reciprocal(self, steps: _Statements) -> Any:
        """1 / sum, once the sum without leading zeros is a number between 1 and 2."""
        shift = int64(self._zeros[int32(0)] - int32(1))
        aligned = int64(self._total[int32(0)]) << shift
        shortened = ((aligned + int64(1 << 13)) >> int64(14)).astype("int32")
        excess = steps.bind("excess", shortened - int32((1 << 15) + (1 << 16)))
        return _between(steps, self.tables[1], excess)

    def _store(self, row: Any, i: Any, reciprocal: Any) -> Any:
        """Store exp / sum."""
        steps = _Statements()
        value = self._exponential(steps, row, i)
        right = int32(31) - self._zeros[int32(0)]
        rounding = int64(1) << int64(right - int32(1))
        scaled = (int64(value) * int64(reciprocal) + rounding) >> int64(right)
        result = steps.bind("result", tirx.max(scaled.astype("int32"), int32(0)))
        place = unflatten(row * int32(self._length) + i, self._known.output_shape)
        return sequence(*steps.list, store_shifted(self.output, place, result, 0, self._known))


def _between(steps: _Statements, table: Any, argument: Any) -> Any:
    """`LUTLookup`: the function of an argument that is limited to 16 bits.

    Args:
        steps: get the intermediate values.
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
