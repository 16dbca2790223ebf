# SPDX-License-Identifier: Apache-2.0
"""`quantized.float32_product` (left, right), of shapes that broadcast: products of ONNX."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from umakit.operators.derivation.float32_pairs import (
    Float32Pair,
    derive_pair,
    exact_product,
    pair_kernel,
)
from umakit.operators.drawings import pairs
from umakit.operators.interface import PAIR, Interface
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.registry import IntegerOperator, Recognition, kernel_of_operands, register


@dataclass(frozen=True)
class Float32Product(Float32Pair):
    """ONNX Runtime's QLinearMul: a * b * ratio + zero point, each step rounded."""

    operator: ClassVar[str] = "float32_product"
    multiplies: ClassVar[bool] = True


register(
    IntegerOperator(
        parameters=Float32Product,
        kernel=kernel_of_operands(pair_kernel),
        recognitions=(
            Recognition(
                ("multiply",),
                partial(derive_pair, Float32Product, exact_product),
                (Arithmetic.ORT,),
            ),
        ),
        takes_clip=True,
        drawing=pairs.with_float32(Float32Product, exact_product),
        interface=Interface(
            operands=PAIR,
            broadcasts=False,
            names={"factors": ("factor", "")},
            wide=("factor", "constant"),
        ),
    )
)
