# SPDX-License-Identifier: Apache-2.0
"""`quantized.float32_sum` (left, right), of shapes that broadcast: sums and differences of ONNX."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from umakit.operators.derivation.float32_pairs import (
    Float32Pair,
    derive_pair,
    exact_sum,
    pair_kernel,
)
from umakit.operators.drawings import pairs
from umakit.operators.interface import PAIR, Interface
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.registry import IntegerOperator, Recognition, kernel_of_operands, register


@dataclass(frozen=True)
class Float32Sum(Float32Pair):
    """ONNX Runtime's QLinearAdd on x86-64 with AVX2: fma(a, A / C, fma(b, B / C, constant)).

    A difference has a negative second factor.
    """

    operator: ClassVar[str] = "float32_sum"


register(
    IntegerOperator(
        parameters=Float32Sum,
        kernel=kernel_of_operands(pair_kernel),
        recognitions=(
            Recognition(("add",), partial(derive_pair, Float32Sum, exact_sum), (Arithmetic.ORT,)),
            Recognition(
                ("subtract",), partial(derive_pair, Float32Sum, None, sign=-1), (Arithmetic.ORT,)
            ),
        ),
        takes_clip=True,
        drawing=pairs.with_float32(Float32Sum, exact_sum),
        interface=Interface(
            operands=PAIR, broadcasts=False, wide=("left_factor", "right_factor", "constant")
        ),
    )
)
