# SPDX-License-Identifier: Apache-2.0
"""Integer operators whose results are ONNX Runtime's, beside those of `operators`.

float32_sum         (left, right), of shapes that broadcast
float32_product     (left, right), of shapes that broadcast
global_avg_pool     (data [N, C, ...])
mean_pool2d         (data, multipliers int32[n], shifts int8[n]), one of each for a window of i + 1
dilated_max_pool2d  (data)
probabilities       (data, table of exponentials int32[256], int32[512] for data of 16 bits)
interpolation       (data of 16 bits, table of the result's dtype)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from umakit.quantization.operators import Pair, Parameters, Pool2d, register


@dataclass(frozen=True)
class Float32Pair(Parameters):
    """Two tensors combined as float32 would, in fixed point.

    Attributes:
        offsets: what is added to left and right before anything else.
        factors: of left and right; of the product and nothing for `Float32Product`.
        constant: added.
        fraction_bits: of factors and constant.
        output_offset: added to the result, which has the zero point in it.
        scalar: 0; 1 or 2 if left or right is one number for each run of the other one.
        plain: whether the sum without intermediate roundings yields the same for all integers,
            or is wanted; then half a step is in the constant.
    """

    offsets: Pair
    factors: Pair
    constant: int
    fraction_bits: int
    output_offset: int
    scalar: int
    plain: int


@dataclass(frozen=True)
class Float32Sum(Float32Pair):
    """ONNX Runtime's QLinearAdd on x86-64 with AVX2: fma(a, A / C, fma(b, B / C, constant)).

    Differences, too, with a negative second factor.
    """

    operator: ClassVar[str] = "float32_sum"


@dataclass(frozen=True)
class Float32Product(Float32Pair):
    """ONNX Runtime's QLinearMul: a * b * ratio + zero point, each step rounded."""

    operator: ClassVar[str] = "float32_product"


@dataclass(frozen=True)
class GlobalAveragePool(Parameters):
    """The mean of each channel.

    Attributes:
        input_zero_point: the integer that stands for 0 in the data.
        multiplier, shift: of the sums.
    """

    operator: ClassVar[str] = "global_avg_pool"

    input_zero_point: int
    multiplier: int
    shift: int


@dataclass(frozen=True)
class MeanPool2d(Pool2d):
    """The mean of each window, with another scale than the data's.

    Attributes:
        input_zero_point: the integer that stands for 0 in the data.
        counts_padding: whether the sum is divided by the size of the whole window, and not by the
            number of its elements inside the image.
    """

    operator: ClassVar[str] = "mean_pool2d"

    input_zero_point: int
    counts_padding: int


@dataclass(frozen=True)
class DilatedMaxPool2d(Pool2d):
    """The largest of each window whose elements are apart.

    Attributes:
        dilation: rows, columns.
    """

    operator: ClassVar[str] = "dilated_max_pool2d"

    dilation: Pair


@dataclass(frozen=True)
class Probabilities(Parameters):
    """Softmax over an axis: exponential * numerator / (sum of exponentials * 2**exponent).

    The quotient is rounded to nearest, ties to even.

    Attributes:
        axis: from 0.
        numerator, exponent: numerator / 2**exponent is the reciprocal of the result's scale.
    """

    operator: ClassVar[str] = "probabilities"

    axis: int
    numerator: int
    exponent: int


@dataclass(frozen=True)
class Interpolation(Parameters):
    """A function of each element of 16 bits: straight lines between tabulated values.

    Attributes:
        step_bits: two tabulated values are for integers that are 2**step_bits apart.
    """

    operator: ClassVar[str] = "interpolation"

    step_bits: int


ONNX_OPERATORS: tuple[type[Parameters], ...] = (
    Float32Sum, Float32Product, GlobalAveragePool, MeanPool2d, DilatedMaxPool2d,
    Probabilities, Interpolation,
)  # fmt: skip

register(ONNX_OPERATORS)
