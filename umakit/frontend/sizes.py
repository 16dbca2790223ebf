# SPDX-License-Identifier: Apache-2.0
"""Tensors larger than anything that C can address."""

from __future__ import annotations

import math

from umakit import tvm_api
from umakit.errors import ModelError

LARGEST_OBJECT = 2**63 - 1
"""Bytes: `PTRDIFF_MAX` of a target with 64 bits."""

LARGEST_CONSTANT = 2**31 - 1
"""Bytes of a tensor that is computed of constants alone, which the compiler has to hold."""


def check_sizes(module: tvm_api.IRModule, where: str) -> None:
    """Refuse a network with a tensor that C cannot address, or that no compiler could hold.

    Args:
        module: with a Relax function `main`.
        where: the network, for the message.

    Raises:
        ModelError: a tensor has more than `LARGEST_OBJECT` bytes, or one that is computed of
            constants alone more than `LARGEST_CONSTANT`; names it.
    """
    main = module["main"]
    varying = set(main.params)
    for variable in main.params:
        _check(variable, LARGEST_OBJECT, "more than a C object can have", where)
    for binding in tvm_api.bindings_of(main):
        found = tvm_api.collect(binding.value, tvm_api.Var)
        if any(variable in varying for variable in found):
            varying.add(binding.var)
            _check(binding.var, LARGEST_OBJECT, "more than a C object can have", where)
        else:
            _check(binding.var, LARGEST_CONSTANT, "too many for a constant", where)


def _check(variable: tvm_api.Var, most: int, complaint: str, where: str) -> None:
    shape, dtype = tvm_api.static_shape(variable), tvm_api.dtype_of(variable)
    if shape is None or not dtype:
        return
    try:
        size = math.prod(shape) * tvm_api.element_bytes(dtype)
    except TypeError:  # no dtype of C, which later stages refuse
        return
    if size > most:
        raise ModelError(
            f"tensor {str(variable.name)!r} of shape {shape} has {size:,} B, {complaint}",
            where=where,
            fix="choose smaller dimensions",
        )
