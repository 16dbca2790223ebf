# SPDX-License-Identifier: Apache-2.0
"""Kernels of integer operators for CPUs with instructions that sum products."""

from __future__ import annotations

from typing import Any

from umakit import tvm_api
from umakit.machine.cpu import Cpu
from umakit.operators import add, conv2d, dense
from umakit.operators.kernels.calls import kernel_of_operands, shape_of
from umakit.operators.kernels.convolution import as_operands, constants_of
from umakit.operators.kernels.dot_forms import DotForm, form_of
from umakit.operators.kernels.dot_products import DATA, addition, suits, suits_convolution
from umakit.operators.kernels.dot_products import conv2d as conv2d_of_products
from umakit.operators.kernels.dot_products import dense as dense_of_products
from umakit.operators.kernels.loops import BIAS_HAS_ZERO_POINT, WEIGHTS_LAYOUT
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.registry import Kernel, Rule, legalizations_with

usual_addition = kernel_of_operands(add.addition_kernel)


def rules_for(cpu: Cpu | None) -> dict[str, Rule]:
    """Return the legalizations of integer operators for a CPU; none for one without dot products.

    Args:
        cpu: the CPU; None for any.
    """
    form = form_of(cpu.dot_products) if cpu is not None else None
    if form is None:
        return {}
    kernels = {"conv2d": _convolution(form), "dense": _dense(form)}
    if form.adds:
        kernels["add"] = _addition(form)
    return legalizations_with(kernels)


def _convolution(form: DotForm) -> Kernel:
    def kernel(
        parameters: conv2d.Conv2d, call: tvm_api.Call
    ) -> tuple[tvm_api.PrimFunc, list[tvm_api.Expr]]:
        constants, shape = constants_of(call), shape_of(call.args[0])
        dtype = tvm_api.dtype_of(call.args[0])
        if not suits_convolution(form, parameters, shape, dtype, constants):
            return conv2d.usual_kernel(parameters, call)
        made = conv2d_of_products(form, parameters, shape, dtype, constants)
        return _with_constants(call, parameters, *made)

    return kernel


def _dense(form: DotForm) -> Kernel:
    def kernel(
        parameters: dense.Dense, call: tvm_api.Call
    ) -> tuple[tvm_api.PrimFunc, list[tvm_api.Expr]]:
        constants, shape = constants_of(call), shape_of(call.args[0])
        dtype = tvm_api.dtype_of(call.args[0])
        if not suits(parameters, dtype, constants):
            return dense.usual_kernel(parameters, call)
        made = dense_of_products(form, parameters, shape, dtype, constants)
        return _with_constants(call, parameters, *made)

    return kernel


def _addition(form: DotForm) -> Kernel:
    def kernel(
        parameters: add.Add, call: tvm_api.Call
    ) -> tuple[tvm_api.PrimFunc, list[tvm_api.Expr]]:
        shapes = {shape_of(operand) for operand in call.args}
        dtypes = {tvm_api.dtype_of(operand) for operand in call.args} | {parameters.output_dtype}
        if len(shapes) > 1 or len(dtypes) > 1 or dtypes - set(DATA):
            return usual_addition(parameters, call)
        if parameters.arithmetic is not Arithmetic.TFLM:
            return usual_addition(parameters, call)
        function = addition(form, parameters, shapes.pop(), dtypes.pop())
        return function, list(call.args)

    return kernel


def _with_constants(
    call: tvm_api.Call, parameters: Any, function: tvm_api.PrimFunc, arrays: list[Any], layout: str
) -> tuple[tvm_api.PrimFunc, list[tvm_api.Expr]]:
    function = function.with_attr(WEIGHTS_LAYOUT, layout)
    if parameters.input_zero_point != 0:
        function = function.with_attr(BIAS_HAS_ZERO_POINT, "yes")
    return function, [call.args[0], *as_operands(arrays)]
