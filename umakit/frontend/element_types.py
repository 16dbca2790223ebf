# SPDX-License-Identifier: Apache-2.0
"""Check for element types that generated C does not support, before anything is lowered."""

from __future__ import annotations

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.frontend.model import Model

ELEMENT_TYPES = frozenset(
    "float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()
)
"""Element types with a C99 type."""


def check_element_types(model: Model, where: str) -> None:
    """Refuse a network that computes with unsupported element types.

    Args:
        model: a simplified network.
        where: file or model name in error messages.

    Raises:
        ModelError: names the input or node, and the element type.
    """
    for kind, tensors in (("input", model.inputs), ("output", model.outputs)):
        for tensor in tensors:
            if tensor.dtype not in ELEMENT_TYPES:
                raise _refused(
                    f"{kind} {tensor.name!r} is of the element type", tensor.dtype, where
                )
    for binding in tvm_api.bindings_of(model.module["main"]):
        call = binding.value
        node = tvm_api.name_of(call) or str(binding.var.name)
        operands = getattr(call, "args", ())
        for expression in (binding.var, *operands):
            dtype = tvm_api.dtype_of(expression) if hasattr(expression, "ty") else ""
            if dtype and hasattr(expression.ty, "shape") and dtype not in ELEMENT_TYPES:
                raise _refused(f"node {node!r} computes with the element type", dtype, where)


def _refused(what: str, dtype: object, where: str) -> ModelError:
    return ModelError(
        f"{what} {dtype}, which C99 has no type for",
        where=where,
        fix="export the model with float32, or with integers of 8 to 64 bits",
    )
