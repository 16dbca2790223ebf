# SPDX-License-Identifier: Apache-2.0
"""Integer operators: Relax operators of our own, `relax.quantized.*`, and their parameters.

Each takes and yields integers and says as attributes all there is to know about it, so that CPU
kernels, a backend's patterns (`is_op("relax.quantized.conv2d")`), its predicates and its operator
strategies read the same thing. Data is NHWC unless `layout` says NCHW; weights are then
[O, I/groups, KH, KW]. Weights are int16 where a zero point was taken off that needs more bits.

    conv2d         (data, weights int8[O, KH, KW, I/groups], bias int32[O], multipliers, shifts)
    dense          (data [rows, I], weights int8[O, I], bias int32[O], multipliers, shifts)
    add, subtract  (left, right), of shapes that broadcast
    multiply       (left, right), of shapes that broadcast
    avg_pool2d     (data)
    max_pool2d     (data)
    softmax        (data [rows, n], table int32[256])
    requantize     (data)
    quantize       (data float32, scale float32[1])

Multipliers (int32) and shifts (int8) have one element or one for each output channel; see
`fixed_point`. For data of int16 the bias may be int64; then sums have 64 bits and multipliers 15.
More operators are in `further_operators`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from umakit.operators.parameters import (
    PREFIX,
    Pair,
    Parameters,
    Pool2d,
    WindowParameters,
)
from umakit.operators.parameters import register_relax_operators as register
from umakit.operators.requantize import Requantize

__all__ = ["PREFIX", "Pair", "Parameters", "Pool2d", "Requantize", "WindowParameters", "register"]


@dataclass(frozen=True)
class Conv2d(WindowParameters):
    """A convolution; depthwise if there are as many groups as input channels.

    Attributes:
        dilation: rows, columns.
        groups: of channels.
        input_zero_point: the integer that stands for 0 in the data.
    """

    operator: ClassVar[str] = "conv2d"

    dilation: Pair
    groups: int
    input_zero_point: int


@dataclass(frozen=True)
class Dense(Parameters):
    """A fully connected layer.

    Attributes:
        input_zero_point: the integer that stands for 0 in the data.
    """

    operator: ClassVar[str] = "dense"

    input_zero_point: int


@dataclass(frozen=True)
class AveragePool2d(Pool2d):
    """The mean of each window, ties rounded away from zero."""

    operator: ClassVar[str] = "avg_pool2d"


@dataclass(frozen=True)
class MaxPool2d(Pool2d):
    """The largest of each window."""

    operator: ClassVar[str] = "max_pool2d"


@dataclass(frozen=True)
class Add(Parameters):
    """The sum of two tensors: both are brought to a common scale, added, and rescaled.

    Attributes:
        zero_points: of the operands.
        left_shift: by which operands are shifted first, for precision.
        multipliers, shifts: of left operand, right operand and result.
    """

    operator: ClassVar[str] = "add"

    zero_points: Pair
    left_shift: int
    multipliers: tuple[int, int, int]
    shifts: tuple[int, int, int]


@dataclass(frozen=True)
class Subtract(Add):
    """The difference of two tensors, computed as `Add`."""

    operator: ClassVar[str] = "subtract"


@dataclass(frozen=True)
class Multiply(Parameters):
    """The product of two tensors.

    Attributes:
        zero_points: of the operands.
        multiplier, shift: of the result.
    """

    operator: ClassVar[str] = "multiply"

    zero_points: Pair
    multiplier: int
    shift: int


@dataclass(frozen=True)
class Softmax(Parameters):
    """Softmax over the last axis, with a table of exponentials (`softmax_table`)."""

    operator: ClassVar[str] = "softmax"


@dataclass(frozen=True)
class Quantize(Parameters):
    """Real numbers as integers: divided by the scale, rounded with ties away from zero.

    Relax's own quantize rounds ties to even.
    """

    operator: ClassVar[str] = "quantize"


OPERATORS: tuple[type[Parameters], ...] = (
    Conv2d, Dense, AveragePool2d, MaxPool2d, Add, Subtract, Multiply, Softmax, Quantize,
)  # fmt: skip


register(OPERATORS)
