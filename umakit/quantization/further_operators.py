# SPDX-License-Identifier: Apache-2.0
"""More integer operators, in the style of `operators`.

conv2d_transpose  (data, weights int8[O, KH, KW, I], bias int32[O], multipliers, shifts)
batch_matmul      (left [..., M, K], right [..., K, N]), whose leading axes broadcast
lookup            (data of 8 bits, table[256] of the result's dtype)
sigmoid_lookup    (data of 16 bits, table uint16[256])
softmax_lookup    (data of 16 bits, exponentials int16[513], reciprocals int16[513])
leaky_relu        (data)
prelu             (data, slopes of 8 bits), of shapes that broadcast
mean, sum         (data)
resize_bilinear   (data [N, H, W, C])
argmax, argmin    (data); the first of equal elements
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from umakit.quantization.operators import Pair, Parameters, WindowParameters, register


@dataclass(frozen=True)
class Conv2dTranspose(WindowParameters):
    """A transposed convolution: each element of the data is spread over a window of the result.

    Attributes:
        input_zero_point: the integer that stands for 0 in the data.
        dilation: rows, columns.
        groups: of channels.
    """

    operator: ClassVar[str] = "conv2d_transpose"

    input_zero_point: int
    dilation: Pair = field(default=(1, 1), kw_only=True)
    groups: int = field(default=1, kw_only=True)


@dataclass(frozen=True)
class Mean(Parameters):
    """The mean over some axes, with another scale.

    Attributes:
        axes: over which, ascending.
        input_zero_point: the integer that stands for 0 in the data.
        multiplier, shift: of the sum; the number of its terms is in them.
    """

    operator: ClassVar[str] = "mean"

    axes: tuple[int, ...]
    input_zero_point: int
    multiplier: int
    shift: int


@dataclass(frozen=True)
class Sum(Mean):
    """The sum over some axes, with another scale."""

    operator: ClassVar[str] = "sum"


@dataclass(frozen=True)
class BatchMatmul(Parameters):
    """Products of matrices that are both data.

    Attributes:
        zero_points: of the operands.
        multiplier, shift: of the sums, which have 64 bits for operands of 16; then the multiplier
            has 15 bits where products are rounded as TensorFlow Lite Micro does.
        adjoint: 1 for an operand whose last two axes are exchanged, else 0.
    """

    operator: ClassVar[str] = "batch_matmul"

    zero_points: Pair
    multiplier: int
    shift: int
    adjoint: Pair


@dataclass(frozen=True)
class SigmoidLookup(Parameters):
    """1 / (1 + exp(-x)) or tanh(x) of 16 bits, between the values of a table of the former.

    Attributes:
        function: `logistic` or `tanh`.
        multiplier, shift: `(x * multiplier + rounding) >> shift` counts the table's steps, with
            9 fractional bits for `logistic` and 8 for `tanh`.
    """

    operator: ClassVar[str] = "sigmoid_lookup"

    function: str
    multiplier: int
    shift: int


@dataclass(frozen=True)
class SoftmaxLookup(Parameters):
    """Softmax of 16 bits over the last axis, between the values of two tables.

    Attributes:
        multiplier, shift: of differences to the largest element of a row; 65535 steps are 10.
    """

    operator: ClassVar[str] = "softmax_lookup"

    multiplier: int
    shift: int


@dataclass(frozen=True)
class Prelu(Parameters):
    """The same with slopes that are a tensor.

    Attributes:
        zero_points: of data and slopes.
        multipliers, shifts: of positive elements, and of products of negative ones with slopes.
    """

    operator: ClassVar[str] = "prelu"

    zero_points: Pair
    multipliers: Pair
    shifts: Pair


@dataclass(frozen=True)
class ResizeBilinear(Parameters):
    """Another height and width; results lie between four neighbours, in steps of 1/1024.

    Attributes:
        align_corners, half_pixel_centers: 0 or 1, as TensorFlow has them.
    """

    operator: ClassVar[str] = "resize_bilinear"

    align_corners: int
    half_pixel_centers: int


@dataclass(frozen=True)
class ArgMax(Parameters):
    """The place of the largest element along an axis, the first of several.

    Attributes:
        axis: along which.
    """

    operator: ClassVar[str] = "argmax"

    axis: int


@dataclass(frozen=True)
class ArgMin(ArgMax):
    """The place of the least element."""

    operator: ClassVar[str] = "argmin"


FURTHER_OPERATORS: tuple[type[Parameters], ...] = (
    Conv2dTranspose, Mean, Sum, BatchMatmul, SigmoidLookup, SoftmaxLookup,
    Prelu, ResizeBilinear, ArgMax, ArgMin,
)  # fmt: skip

register(FURTHER_OPERATORS)
