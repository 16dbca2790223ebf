# SPDX-License-Identifier: Apache-2.0
"""Constant indices of Relax operators: those outside of their tensors are refused on import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.errors import ModelError

Array = npt.NDArray[Any]
COUNTS_FROM_THE_END = ("index_put", "index_tensor", "scatter_elements")
"""Operators of Relax whose negative indices count from the end."""


def check_constant_indices(module: tvm_api.IRModule, where: str) -> None:
    """Refuse constant indices that are out of range.

    Call this before constants are folded: TVM would read outside of the tensor.

    Args:
        module: a Relax module.
        where: model name in error messages.

    Raises:
        ModelError: names operator, node, index and size.
    """
    for binding in tvm_api.bindings_of(module["main"]):
        call = binding.value
        if not isinstance(call, tvm_api.Call):
            continue
        operator = tvm_api.operator_name(call)
        for indices, axis, size in _constant_indices(operator, call):
            least = -size if operator in COUNTS_FROM_THE_END else 0
            outside = indices[(indices < least) | (indices >= size)]
            if outside.size:
                node = tvm_api.name_of(call) or str(binding.var.name)
                raise ModelError(
                    f"operator {operator} of node {node!r} has the index "
                    f"{outside.reshape(-1)[0]}, which is out of range for axis {axis} of size "
                    f"{size}",
                    where=where,
                    fix="mend the constant indices in the model",
                )


def _constant_indices(operator: str, call: tvm_api.Call) -> Iterator[tuple[Array, int, int]]:
    """Yield (indices, axis, size of the axis) for each constant index tensor of a call."""
    if operator in ("index_put", "index_tensor"):
        yield from _by_dimension(call)
        return
    if operator == "grad.take_backward":
        call = tvm_api.relax.op.take(*call.args[1:3], call.attrs.axis)
        operator = "take"
    names = ("take", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd")
    if operator not in names or len(call.args) < 2:
        return
    indices, shape = tvm_api.constant_array(call.args[1]), tvm_api.static_shape(call.args[0])
    if indices is None or not shape or not np.issubdtype(indices.dtype, np.integer):
        return
    if operator in ("gather_nd", "scatter_nd"):
        first = int(getattr(call.attrs, "batch_dims", 0))
        for number, size in zip(range(indices.shape[-1]), shape[first:], strict=False):
            yield indices[..., number], first + number, size
    elif operator != "take" or str(call.attrs.mode) == "fast":
        axis = int(call.attrs.axis or 0) % len(shape)
        yield indices, axis, shape[axis]


def _by_dimension(call: tvm_api.Call) -> Iterator[tuple[Array, int, int]]:
    """Yield (indices, axis, size of the axis) for a tuple with one index tensor per dimension."""
    shape = tvm_api.static_shape(call.args[0]) or ()
    several = call.args[1]
    fields = several.fields if isinstance(several, tvm_api.relax.Tuple) else [several]
    for axis, (field, size) in enumerate(zip(fields, shape, strict=False)):
        indices = tvm_api.constant_array(field)
        if indices is not None and np.issubdtype(indices.dtype, np.integer):
            yield indices, axis, size
