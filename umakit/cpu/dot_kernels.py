# SPDX-License-Identifier: Apache-2.0
"""Kernels of integer operators for CPUs with dot-product instructions."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

from umakit import tvm_api
from umakit.cpu.description import Cpu
from umakit.cpu.kernel_choices import KEY, Choice, KernelKey, choose
from umakit.operators.kernels.convolution import Constants, as_operands, constants_of, is_depthwise
from umakit.operators.kernels.dot_convolutions import conv2d, suits_convolution
from umakit.operators.kernels.dot_forms import DotForm, form_of
from umakit.operators.kernels.dot_products import (
    DATA,
    MOST_SUMS,
    addition,
    dense,
    suits,
    sums_at_once,
)
from umakit.operators.kernels.loops import BIAS_HAS_ZERO_POINT, WEIGHTS_LAYOUT
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.registry import Kernel, Rule, legalizations_with, operators, shape_of

Made = tuple[tvm_api.PrimFunc, list[tvm_api.Expr]]
"""Result of a `Kernel`: prim func and arguments."""

OwnKernel = Callable[[DotForm, Any, tvm_api.Call], Made | None]
"""(form, parameters, call) -> as a `Kernel`, or None for calls that need the usual one."""


def rules_for(cpu: Cpu | None, generic_rows: Collection[int] = ()) -> dict[str, Rule]:
    """Return the legalizations of integer operators for a CPU, without those of some rows of the
    offload report; empty for a CPU without dot products."""
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
    """Return a kernel that falls back to the usual kernel for generic rows and for unsuitable
    calls."""

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
    if is_depthwise(parameters, shape):
        made = conv2d(form, parameters, shape, dtype, constants)
        return _with_constants(call, parameters, *made)
    key = _key_of_convolution(parameters, shape, dtype, constants)
    outputs = len(constants.bias) // parameters.groups
    choice = choose(key, dot_candidates(form, math.prod(parameters.output_shape[:3]), outputs))
    made = conv2d(form, parameters, shape, dtype, constants, choice.positions, choice.channels)
    return _with_constants(call, parameters, *made, key)


def _dense(form: DotForm, parameters: Any, call: tvm_api.Call) -> Made | None:
    constants, shape = constants_of(call), shape_of(call.args[0])
    dtype = tvm_api.dtype_of(call.args[0])
    if not suits(parameters, dtype, constants):
        return None
    weights = constants.weights.shape
    key = KernelKey("matmul", dtype, shape, weights, tuple(parameters.output_shape))
    choice = choose(key, dot_candidates(form, shape[0], len(constants.bias)))
    made = dense(form, parameters, shape, dtype, constants, choice.positions, choice.channels)
    return _with_constants(call, parameters, *made, key)


def _addition(form: DotForm, parameters: Any, call: tvm_api.Call) -> Made | None:
    shapes = {shape_of(operand) for operand in call.args}
    dtypes = {tvm_api.dtype_of(operand) for operand in call.args} | {parameters.output_dtype}
    if len(shapes) > 1 or len(dtypes) > 1 or dtypes - set(DATA):
        return None
    if parameters.arithmetic is not Arithmetic.TFLM:
        return None
    return addition(form, parameters, shapes.pop(), dtypes.pop()), list(call.args)


def _key_of_convolution(
    parameters: Any, shape: tuple[int, ...], dtype: str, constants: Constants
) -> KernelKey:
    top, left, bottom, right = parameters.padding
    vertical, horizontal = parameters.strides
    down, across = parameters.dilation
    return KernelKey(
        "conv2d", dtype, shape, constants.weights.shape, tuple(parameters.output_shape),
        (top + bottom, left + right), (vertical, horizontal), (down, across), parameters.groups,
    )  # fmt: skip


def dot_candidates(form: DotForm, positions: int, outputs: int) -> list[Choice]:
    """Return the possible choices of a dot-product kernel, the rule's own first.

    No choice needs more scratch than the rule's own.
    """
    most = min(form.positions, positions)
    sums = [sums_at_once(form, outputs, MOST_SUMS // part) for part in (1, 2, 4, 8)]
    choices = [Choice(most, size) for size in sums]
    choices += [Choice(n, sums[0]) for n in range(most - 1, 0, -1)]
    return list(dict.fromkeys(choices))


def _with_constants(
    call: tvm_api.Call,
    parameters: Any,
    function: tvm_api.PrimFunc,
    arrays: list[Any],
    layout: str,
    key: KernelKey | None = None,
) -> Made:
    function = function.with_attr(WEIGHTS_LAYOUT, layout)
    if key is not None:
        function = function.with_attr(KEY, key.text)
    if parameters.input_zero_point != 0:
        function = function.with_attr(BIAS_HAS_ZERO_POINT, "yes")
    return function, [call.args[0], *as_operands(arrays)]
