# SPDX-License-Identifier: Apache-2.0
"""Integer operators whose results are ONNX Runtime's, beside those of `operators`.

float32_sum      (left, right), of shapes that broadcast
float32_product  (left, right), of shapes that broadcast
global_avg_pool  (data [N, C, ...])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from umakit.quantization.operators import Pair, Parameters, register


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
        plain: whether the sum without intermediate roundings yields the same for all integers;
            then half a step is in the constant.
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
    """ONNX Runtime's QLinearAdd on x86-64 with AVX2: fma(a, A / C, fma(b, B / C, constant))."""

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


ONNX_OPERATORS: tuple[type[Parameters], ...] = (Float32Sum, Float32Product, GlobalAveragePool)

register(ONNX_OPERATORS)
