# SPDX-License-Identifier: Apache-2.0
"""Kernels of integer operators for CPUs with instructions that sum products."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from umakit import tvm_api
from umakit.machine.cpu import Cpu
from umakit.operators.kernels.calls import shape_of
from umakit.operators.kernels.convolution import as_operands, constants_of
from umakit.operators.kernels.dot_forms import DotForm, form_of
from umakit.operators.kernels.dot_products import DATA, addition, suits, suits_convolution
from umakit.operators.kernels.dot_products import conv2d as conv2d_of_products
from umakit.operators.kernels.dot_products import dense as dense_of_products
from umakit.operators.kernels.loops import BIAS_HAS_ZERO_POINT, WEIGHTS_LAYOUT
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.registry import Kernel, Rule, legalizations_with, operators


def _usual(name: str) -> Kernel:
    """Return an operator's kernel for CPUs without instructions that sum products."""
    (kernel,) = (each.kernel for each in operators() if each.name == name)
    assert kernel is not None
    return kernel


def rules_for(cpu: Cpu | None, generic_rows: Collection[int] = ()) -> dict[str, Rule]:
    """Return the legalizations of integer operators for a CPU; none for one without dot products.

    Args:
        cpu: the CPU; None for any.
        generic_rows: rows of the offload report whose kernels are those for any CPU all the same.
    """
    form = form_of(cpu.dot_products) if cpu is not None else None
    if form is None:
        return {}
    kernels = {
        "conv2d": _unless(generic_rows, _convolution(form), _usual("conv2d")),
        "dense": _unless(generic_rows, _dense(form), _usual("dense")),
    }
    if form.adds:
        kernels["add"] = _unless(generic_rows, _addition(form), _usual("add"))
    return legalizations_with(kernels)


def _unless(generic_rows: Collection[int], kernel: Kernel, usual: Kernel) -> Kernel:
    """Return a kernel that is the usual one for some rows of the offload report."""
    rows = frozenset(generic_rows)

    def chosen(parameters: Any, call: tvm_api.Call) -> Any:
        is_generic = not rows.isdisjoint(tvm_api.rows_of(call))
        return (usual if is_generic else kernel)(parameters, call)

    return chosen


def _convolution(form: DotForm) -> Kernel:
    def kernel(parameters: Any, call: tvm_api.Call) -> tuple[tvm_api.PrimFunc, list[tvm_api.Expr]]:
        constants, shape = constants_of(call), shape_of(call.args[0])
        dtype = tvm_api.dtype_of(call.args[0])
        if not suits_convolution(form, parameters, shape, dtype, constants):
            return _usual("conv2d")(parameters, call)
        made = conv2d_of_products(form, parameters, shape, dtype, constants)
        return _with_constants(call, parameters, *made)

    return kernel


def _dense(form: DotForm) -> Kernel:
    def kernel(parameters: Any, call: tvm_api.Call) -> tuple[tvm_api.PrimFunc, list[tvm_api.Expr]]:
        constants, shape = constants_of(call), shape_of(call.args[0])
        dtype = tvm_api.dtype_of(call.args[0])
        if not suits(parameters, dtype, constants):
            return _usual("dense")(parameters, call)
        made = dense_of_products(form, parameters, shape, dtype, constants)
        return _with_constants(call, parameters, *made)

    return kernel


def _addition(form: DotForm) -> Kernel:
    def kernel(parameters: Any, call: tvm_api.Call) -> tuple[tvm_api.PrimFunc, list[tvm_api.Expr]]:
        shapes = {shape_of(operand) for operand in call.args}
        dtypes = {tvm_api.dtype_of(operand) for operand in call.args} | {parameters.output_dtype}
        if len(shapes) > 1 or len(dtypes) > 1 or dtypes - set(DATA):
            return _usual("add")(parameters, call)
        if parameters.arithmetic is not Arithmetic.TFLM:
            return _usual("add")(parameters, call)
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
