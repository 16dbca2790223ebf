# SPDX-License-Identifier: Apache-2.0
"""`quantized.dilated_max_pool2d` (data): max pools of ONNX with dilated windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from umakit import tvm_api
from umakit.operators.derivation.windows import Window, pool_fields, pool_of_images
from umakit.operators.drawings import spread
from umakit.operators.interface import Interface, image
from umakit.operators.islands import Island, Result
from umakit.operators.kernels.pooling import largest, pool_of_operands
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.parameters import Pair, Pool2d
from umakit.operators.registry import (
    IntegerOperator,
    Order,
    Recognition,
    kernel_of_operands,
    register,
)


@dataclass(frozen=True)
class DilatedMaxPool2d(Pool2d):
    """The largest element of each dilated window.

    Attributes:
        dilation: rows, columns.
    """

    operator: ClassVar[str] = "dilated_max_pool2d"

    dilation: Pair


def _derive(island: Island) -> tvm_api.Expr | None:
    window = Window.of(island.call.attrs)
    if window.dilation == (1, 1):
        return None

    def parameters(result: Result, data: tvm_api.Expr) -> Pool2d:
        fields = pool_fields(window, result, data)
        return DilatedMaxPool2d(**result.common(Arithmetic.ORT), **fields, dilation=window.dilation)

    return pool_of_images(island, parameters)


register(
    IntegerOperator(
        parameters=DilatedMaxPool2d,
        kernel=kernel_of_operands(pool_of_operands(largest)),
        recognitions=(
            Recognition(
                ("nn.max_pool1d", "nn.max_pool2d"), _derive, (Arithmetic.ORT,), Order.SPECIAL
            ),
        ),
        drawing=spread.dilated_pool(DilatedMaxPool2d),
        interface=Interface(sizes=image),
    )
)
