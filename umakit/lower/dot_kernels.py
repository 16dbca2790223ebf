# SPDX-License-Identifier: Apache-2.0
"""Kernels of integer operators for CPUs with instructions that sum products."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from umakit import tvm_api
from umakit.machine.cpu import Cpu
from umakit.operators.kernels.calls import shape_of
from umakit.operators.kernels.convolution import as_operands, constants_of
from umakit.operators.kernels.dot_forms import DotForm, form_of
from umakit.operators.kernels.dot_products import (
    DATA,
    addition,
    conv2d,
    dense,
    suits,
    suits_convolution,
)
from umakit.operators.kernels.loops import BIAS_HAS_ZERO_POINT, WEIGHTS_LAYOUT
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.registry import Kernel, Rule, legalizations_with, operators

Made = tuple[tvm_api.PrimFunc, list[tvm_api.Expr]]
"""What a `Kernel` returns."""

OwnKernel = Callable[[DotForm, Any, tvm_api.Call], Made | None]
"""(form, parameters, call) -> as a `Kernel`, or None for calls that need the usual one."""


def rules_for(cpu: Cpu | None, generic_rows: Collection[int] = ()) -> dict[str, Rule]:
    """Return the legalizations of integer operators for a CPU; none for one without dot products.

    Args:
        cpu: the CPU; None for any.
        generic_rows: rows of the offload report whose kernels are those for any CPU all the same.
    """
    form = form_of(cpu.dot_products) if cpu is not None else None
    if form is None:
        return {}
    own: dict[str, OwnKernel] = {"conv2d": _convolution, "dense": _dense}
    if form.adds:
        own["add"] = _addition
    usual = {each.name: each.kernel for each in operators() if each.kernel is not None}
    rows = frozenset(generic_rows)
    return legalizations_with(
        {name: _or_usual(form, kernel, usual[name], rows) for name, kernel in own.items()}
    )


def _or_usual(form: DotForm, own: OwnKernel, usual: Kernel, generic_rows: frozenset[int]) -> Kernel:
    """Return a kernel that is the usual one for some rows, and for calls that do not suit."""

    def kernel(parameters: Any, call: tvm_api.Call) -> Made:
        is_generic = not generic_rows.isdisjoint(tvm_api.rows_of(call))
        made = None if is_generic else own(form, parameters, call)
        return usual(parameters, call) if made is None else made

    return kernel


def _convolution(form: DotForm, parameters: Any, call: tvm_api.Call) -> Made | None:
    constants, shape = constants_of(call), shape_of(call.args[0])
    dtype = tvm_api.dtype_of(call.args[0])
    if not suits_convolution(form, parameters, shape, dtype, constants):
        return None
    return _with_constants(call, parameters, *conv2d(form, parameters, shape, dtype, constants))


def _dense(form: DotForm, parameters: Any, call: tvm_api.Call) -> Made | None:
    constants, dtype = constants_of(call), tvm_api.dtype_of(call.args[0])
    if not suits(parameters, dtype, constants):
        return None
    made = dense(form, parameters, shape_of(call.args[0]), dtype, constants)
    return _with_constants(call, parameters, *made)


def _addition(form: DotForm, parameters: Any, call: tvm_api.Call) -> Made | None:
    shapes = {shape_of(operand) for operand in call.args}
    dtypes = {tvm_api.dtype_of(operand) for operand in call.args} | {parameters.output_dtype}
    if len(shapes) > 1 or len(dtypes) > 1 or dtypes - set(DATA):
        return None
    if parameters.arithmetic is not Arithmetic.TFLM:
        return None
    return addition(form, parameters, shapes.pop(), dtypes.pop()), list(call.args)


def _with_constants(
    call: tvm_api.Call, parameters: Any, function: tvm_api.PrimFunc, arrays: list[Any], layout: str
) -> Made:
    function = function.with_attr(WEIGHTS_LAYOUT, layout)
    if parameters.input_zero_point != 0:
        function = function.with_attr(BIAS_HAS_ZERO_POINT, "yes")
    return function, [call.args[0], *as_operands(arrays)]
