# SPDX-License-Identifier: Apache-2.0
"""From calls of integer operators to kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from umakit import tvm_api
from umakit.errors import LoweringError
from umakit.operators.registry import Kernel, Shapes


def shape_of(expression: Any) -> tuple[int, ...]:
    """The shape of an operand.

    Raises:
        LoweringError: it is symbolic.
    """
    shape = tvm_api.static_shape(expression)
    if shape is None:
        raise LoweringError("an integer operator's operand has no static shape")
    return shape


def kernel_of_operands(function: Callable[[Any, Shapes, list[str]], Any]) -> Kernel:
    """A kernel that gets the operands of the call as they are.

    Args:
        function: (parameters, shapes of the operands, their dtypes) -> prim func.
    """

    def kernel(parameters: Any, call: Any) -> tuple[Any, list[Any]]:
        shapes = [shape_of(operand) for operand in call.args]
        dtypes = [tvm_api.dtype_of(operand) for operand in call.args]
        return function(parameters, shapes, dtypes), list(call.args)

    return kernel
