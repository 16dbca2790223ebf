# SPDX-License-Identifier: Apache-2.0
"""Kernels for calls of integer operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from umakit import tvm_api
from umakit.errors import LoweringError
from umakit.operators.registry import Kernel, Shapes

KernelOfOperands = Callable[[Any, Shapes, list[str]], tvm_api.PrimFunc]
"""(parameters, shapes of the operands, their dtypes) -> prim func; an operator's own parameters."""


def shape_of(expression: tvm_api.Expr) -> tuple[int, ...]:
    """Return the shape of an operand.

    Raises:
        LoweringError: the shape is symbolic.
    """
    shape = tvm_api.static_shape(expression)
    if shape is None:
        raise LoweringError("an integer operator's operand has no static shape")
    return shape


def kernel_of_operands(function: KernelOfOperands) -> Kernel:
    """Return a function (parameters, call) -> call of a kernel with the call's own operands.

    Args:
        function: function that makes the prim func.
    """

    def kernel(parameters: Any, call: tvm_api.Call) -> tuple[tvm_api.PrimFunc, list[tvm_api.Expr]]:
        shapes = [shape_of(operand) for operand in call.args]
        dtypes = [tvm_api.dtype_of(operand) for operand in call.args]
        return function(parameters, shapes, dtypes), list(call.args)

    return kernel
