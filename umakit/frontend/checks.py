# SPDX-License-Identifier: Apache-2.0
"""Checks that all importers share: sizes of inputs and tensors, element types, indices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.frontend.model import InputShapes, Model
from umakit.tvm_api import Call, relax

LARGEST_OBJECT = 2**63 - 1
"""Bytes: `PTRDIFF_MAX` of a target with 64 bits."""

LARGEST_CONSTANT = 2**31 - 1
"""Maximum bytes of a tensor computed from constants alone, which the compiler has to hold."""

MOST_COPIES = 16
"""Additional bytes that may be computed from constants, as a multiple of the constants' bytes."""


def check_sizes(module: tvm_api.IRModule, where: str) -> None:
    """Refuse a tensor that C cannot address, and constants that exceed the compiler's memory."""
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


def check_wanted_sizes(wanted: InputShapes, ranks: Mapping[str, int | None], where: str) -> None:
    """Refuse sizes for an unknown input, and as many sizes as an input has no dimensions.

    `ranks` has the number of dimensions by input, None where the number is not checked.
    """
    for unknown in sorted(wanted.keys() - ranks.keys()):
        raise ModelError(
            f"there is no input {unknown!r}", where=where, fix=f"inputs are {', '.join(ranks)}"
        )
    for name, rank in ranks.items():
        if rank is not None and name in wanted and len(wanted[name]) != rank:
            raise ModelError(
                f"input {name!r} has {rank} dimensions, not {len(wanted[name])}",
                where=where,
                fix=f"give --input-shapes {rank} sizes for it",
            )


ELEMENT_TYPES = frozenset(
    "float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()
)
"""Element types with a C99 type."""


def check_element_types(model: Model, where: str) -> None:
    """Refuse a simplified network that computes with unsupported element types."""
    edges = [("input", tensor) for tensor in model.inputs]
    for kind, tensor in (*edges, *(("output", tensor) for tensor in model.outputs)):
        if tensor.dtype not in ELEMENT_TYPES:
            raise _refused(f"{kind} {tensor.name!r} is of the element type", tensor.dtype, where)
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


Array = npt.NDArray[Any]
COUNTS_FROM_THE_END = ("index_put", "index_tensor", "scatter_elements")
"""Operators of Relax whose negative indices count from the end."""


def check_constant_indices(module: tvm_api.IRModule, where: str) -> None:
    """Refuse constant indices that are out of range, more indices than there are elements along
    another axis or in a batch, and reflections of more than there is.

    Call this before constants are folded: TVM would read outside of the tensor.
    """
    for binding in tvm_api.bindings_of(module["main"]):
        call = binding.value
        if not isinstance(call, Call):
            continue
        operator = tvm_api.operator_name(call)
        node = tvm_api.name_of(call) or str(binding.var.name)
        if operator == "nn.pad" and str(call.attrs.pad_mode) == "reflect":
            _check_reflection(call, node, where)
        if operator in ("gather_elements", "scatter_elements", "gather_nd"):
            _check_shape_of_indices(operator, call, node, where)
        for indices, axis, size in _constant_indices(operator, call):
            least = -size if operator in COUNTS_FROM_THE_END else 0
            outside = indices[(indices < least) | (indices >= size)]
            if outside.size:
                raise ModelError(
                    f"operator {operator} of node {node!r} has the index "
                    f"{outside.reshape(-1)[0]}, which is out of range for axis {axis} of size "
                    f"{size}",
                    where=where,
                    fix="mend the constant indices in the model",
                )


def _check_shape_of_indices(operator: str, call: Call, node: str, where: str) -> None:
    shape, indices = (tvm_api.static_shape(each) for each in call.args[:2])
    if shape is None or indices is None:
        return
    if operator == "gather_nd":
        batch = int(call.attrs.batch_dims)
        fits = indices[:batch] == shape[:batch]
    else:
        axis = int(call.attrs.axis) % len(shape)
        fits = len(shape) == len(indices) and all(
            one <= size
            for place, (one, size) in enumerate(zip(indices, shape, strict=True))
            if place != axis
        )
    if not fits:
        raise ModelError(
            f"operator {operator} of node {node!r} has indices of shape {list(indices)}, which "
            f"data of shape {list(shape)} lack",
            where=where,
            fix="give the indices at most the sizes of the data along all other axes and batches",
        )


def _check_reflection(call: Call, node: str, where: str) -> None:
    widths = np.reshape([int(width) for width in call.attrs.pad_width], (-1, 2))
    shape = tvm_api.static_shape(call.args[0]) or ()
    for axis, (size, most) in enumerate(zip(shape, widths.max(axis=1), strict=False)):
        if most >= size:
            raise ModelError(
                f"operator nn.pad of node {node!r} reflects {most} elements at axis {axis} of size "
                f"{size}",
                where=where,
                fix=f"pad by at most {size - 1}",
            )


def _constant_indices(operator: str, call: Call) -> Iterator[tuple[Array, int, int]]:
    """Yield (indices, axis, size of the axis) for each constant index tensor of a call."""
    if operator in ("index_put", "index_tensor"):
        yield from _by_dimension(call)
        return
    if operator == "grad.take_backward":
        call = relax.op.take(*call.args[1:3], call.attrs.axis)
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


def _by_dimension(call: Call) -> Iterator[tuple[Array, int, int]]:
    """Yield (indices, axis, size of the axis) for a tuple with one index tensor per dimension."""
    shape = tvm_api.static_shape(call.args[0]) or ()
    several = call.args[1]
    fields = several.fields if isinstance(several, relax.Tuple) else [several]
    for axis, (field, size) in enumerate(zip(fields, shape, strict=False)):
        indices = tvm_api.constant_array(field)
        if indices is not None and np.issubdtype(indices.dtype, np.integer):
            yield indices, axis, size
