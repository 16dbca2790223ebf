# SPDX-License-Identifier: Apache-2.0
"""Tensors larger than anything that C can address."""

from __future__ import annotations

import math

from umakit import tvm_api
from umakit.errors import ModelError

LARGEST_OBJECT = 2**63 - 1
"""Bytes: `PTRDIFF_MAX` of a target with 64 bits."""

LARGEST_CONSTANT = 2**31 - 1
"""Maximum bytes of a tensor computed from constants alone, which the compiler has to hold."""

MOST_COPIES = 16
"""Additional bytes that may be computed from constants, as a multiple of the constants' bytes."""


def check_sizes(module: tvm_api.IRModule, where: str) -> None:
    """Refuse a network with a tensor that C cannot address or that exceeds the compiler's memory.

    Args:
        module: module with a Relax function `main`.
        where: name of the network in error messages.

    Raises:
        ModelError: a tensor exceeds `LARGEST_OBJECT` bytes, a tensor computed from constants alone
            exceeds `LARGEST_CONSTANT`, or all tensors computed from constants together exceed
            `LARGEST_CONSTANT` plus `MOST_COPIES` times the bytes of the constants.
    """
    main = module["main"]
    varying = set(main.params)
    computed = given = 0
    for variable in main.params:
        _check(variable, LARGEST_OBJECT, "more than a C object can have", where)
    for binding in tvm_api.bindings_of(main):
        found = tvm_api.collect(binding.value, tvm_api.Var)
        if any(variable in varying for variable in found):
            varying.add(binding.var)
            _check(binding.var, LARGEST_OBJECT, "more than a C object can have", where)
        else:
            _check(binding.var, LARGEST_CONSTANT, "too many for a constant", where)
            computed += _bytes_of(binding.var)
        given += sum(map(_bytes_of, tvm_api.collect(binding.value, tvm_api.GenericConst)))
    if computed > LARGEST_CONSTANT + MOST_COPIES * given:
        raise ModelError(
            f"what is computed of constants alone has {computed:,} B, of constants of {given:,} B",
            where=where,
            fix="compute it before the export, or choose smaller dimensions",
        )


def _bytes_of(tensor: tvm_api.Expr) -> int:
    """Return the bytes of a tensor; 0 for unknown shapes and dtypes that C lacks."""
    shape, dtype = tvm_api.static_shape(tensor), tvm_api.dtype_of(tensor)
    try:
        return math.prod(shape) * tvm_api.element_bytes(dtype) if shape and dtype else 0
    except TypeError:  # later stages refuse the dtype
        return 0


def _check(variable: tvm_api.Var, most: int, complaint: str, where: str) -> None:
    size = _bytes_of(variable)
    if size > most:
        shape = tvm_api.static_shape(variable)
        raise ModelError(
            f"tensor {str(variable.name)!r} of shape {shape} has {size:,} B, {complaint}",
            where=where,
            fix="choose smaller dimensions",
        )
