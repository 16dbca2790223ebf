# SPDX-License-Identifier: Apache-2.0
"""Selection of the kernels that check their indices, and knowledge about constant indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.lower.index_checks import check_indices, has_loaded_positions
from umakit.lower.index_ranges import Elements
from umakit.lower.phases import without_blocks
from umakit.tir import prim_func_pass

CHECKED = "umakit.checks_indices"
"""Attribute of a CPU prim func that checks indices and is excluded from fusion."""

ConstantElements = list[Elements | None]
"""Known elements by parameter of a prim func, for parameters that are constants in all calls."""


def constant_elements(main: tvm_api.Function) -> dict[str, ConstantElements]:
    """Return the known elements of constant integer parameters, by the name of the prim func."""
    found: dict[str, ConstantElements] = {}
    for binding in tvm_api.bindings_of(main):
        call = binding.value
        if tvm_api.operator_name(call) != "call_tir":
            continue
        name = str(call.args[0].name_hint)
        ranges = [_elements(argument) for argument in call.args[1].fields]
        found[name] = [
            _together(*both) for both in zip(found.get(name, ranges), ranges, strict=True)
        ]
    return found


def _elements(argument: tvm_api.PrimExpr) -> Elements | None:
    array = tvm_api.constant_array(argument)
    if array is None or not array.size or not np.issubdtype(array.dtype, np.integer):
        return None
    return Elements.of(array)


def _together(one: Elements | None, other: Elements | None) -> Elements | None:
    return None if one is None or other is None else one.together(other)


def keep_checked_apart(module: tvm_api.IRModule) -> tvm_api.IRModule:
    """Exclude prim funcs that have to check indices from fusion.

    An index is compared with the extents of its tensor. Fusion with a reshape would replace these
    extents.

    Args:
        module: `main` calls prim funcs of one operator each.
    """
    constants = constant_elements(module["main"])
    marked = tvm_api.IRModule(dict(module.functions.items()), module.attrs)
    for variable, function in tvm_api.prim_functions(module):
        ours = tvm_api.function_attribute(function, "umakit.target") is None
        if ours and _needs_checks(function, constants.get(variable.name_hint, [])):
            attributes = {"op_pattern": tvm_api.OPAQUE_OPERATOR_PATTERN, CHECKED: True}
            marked.update_func(variable, function.with_attrs(attributes))
    return marked


def _needs_checks(function: tvm_api.PrimFunc, constants: ConstantElements) -> bool:
    if not has_loaded_positions(function.body):
        return False
    module = tvm_api.IRModule({"kernel": function.with_attr("global_symbol", "kernel")})
    module = tvm_api.tirx_transform.BindTarget(tvm_api.c_target())(module)
    with tvm_api.c_target():
        plain = tvm_api.Sequential(without_blocks())(module)["kernel"]
    return check_indices(plain, constants, "") is not plain


def index_checks(constants: Sequence[Elements | None], where: str, insert: bool) -> list[Any]:
    """Return the TIR pass that checks a kernel's indices.

    Args:
        constants: known elements of constant parameters.
        where: name of the kernel or node, for messages.
        insert: whether to insert checks of indices computed at run time.
    """

    def check(function: tvm_api.PrimFunc) -> tvm_api.PrimFunc:
        checked = check_indices(function, constants, where)
        return checked if insert else function

    return [prim_func_pass("umakit.CheckIndices", check)]
