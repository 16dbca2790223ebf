# SPDX-License-Identifier: Apache-2.0
"""Shapes of an ONNX graph: those of its inputs, and those that ONNX infers from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx
import onnx.shape_inference

from umakit.errors import ModelError
from umakit.frontend.model import InputShapes, check_element_count, symbolic_notice

Types = dict[str, tuple[str, tuple[int, ...] | None]]
"""dtype and, where it is known, shape of tensors by name."""


def graph_inputs(proto: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs that a caller passes, without initializers."""
    constants = {tensor.name for tensor in proto.graph.initializer}
    return [value for value in proto.graph.input if value.name not in constants]


def static_input_shapes(
    proto: onnx.ModelProto, path: Path, wanted: InputShapes
) -> tuple[dict[str, list[int]], list[str]]:
    """Return every input's shape with symbolic dimensions bound, and the notices for the user."""
    names = [value.name for value in graph_inputs(proto)]
    for unknown in sorted(set(wanted) - set(names)):
        raise ModelError(
            f"there is no input {unknown!r}", where=str(path), fix=f"inputs are {', '.join(names)}"
        )
    shapes: dict[str, list[int]] = {}
    notices: list[str] = []
    for value in graph_inputs(proto):
        shapes[value.name] = _bound_shape(value, path, wanted.get(value.name), notices)
    return shapes, notices


def _bound_shape(
    value: onnx.ValueInfoProto, path: Path, wanted: Sequence[int] | None, notices: list[str]
) -> list[int]:
    dimensions = list(value.type.tensor_type.shape.dim)
    if wanted is not None and len(wanted) != len(dimensions):
        raise ModelError(
            f"input {value.name!r} has {len(dimensions)} dimensions, not {len(wanted)}",
            where=str(path),
            fix=f"give --input-shapes {len(dimensions)} sizes for it",
        )
    shape: list[int] = []
    for axis, dimension in enumerate(dimensions):
        fixed = dimension.dim_value if dimension.HasField("dim_value") else 0
        if wanted is not None:
            if fixed > 0 and fixed != wanted[axis]:
                raise ModelError(
                    f"dimension {axis} of input {value.name!r} is {fixed}, not {wanted[axis]}",
                    where=str(path),
                    fix=f"give --input-shapes {fixed} there, or export it with a symbolic one",
                )
            shape.append(int(wanted[axis]))
        elif fixed > 0:
            shape.append(int(fixed))
        elif dimension.HasField("dim_value"):
            raise ModelError(
                f"dimension {axis} of input {value.name!r} is {fixed}",
                where=str(path),
                fix="give its size with --input-shapes",
            )
        else:
            notices.append(symbolic_notice(value.name, dimension.dim_param or "?"))
            shape.append(1)
    return shape


def set_input_shapes(proto: onnx.ModelProto, shapes: dict[str, list[int]]) -> None:
    """Write static input shapes into the graph and delete the shapes derived from symbolic ones."""
    for value in graph_inputs(proto):
        dimensions = value.type.tensor_type.shape
        del dimensions.dim[:]
        for size in shapes[value.name]:
            dimensions.dim.add().dim_value = size
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")


def inferred_types(proto: onnx.ModelProto) -> tuple[Types, str]:
    """Return dtype and (if known) shape of every tensor, inferred by the package onnx.

    Returns:
        Types by tensor name, and the message of the package onnx about a contradiction of the
        operators' specifications; empty without a contradiction.
    """
    fault = ""
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError) as error:
        fault = str(error) if isinstance(error, onnx.shape_inference.InferenceError) else ""
        try:
            inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
        except (onnx.shape_inference.InferenceError, ValueError):
            return {}, fault
    types: Types = {}
    for value in [*inferred.graph.value_info, *inferred.graph.output]:
        tensor = value.type.tensor_type
        if not tensor.elem_type:
            continue
        dtype = str(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        sizes = [d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim]
        is_static = tensor.HasField("shape") and min(sizes, default=0) >= 0
        types[value.name] = (dtype, tuple(sizes) if is_static else None)
    return types, fault


def check_extents(proto: onnx.ModelProto, types: Types, path: Path) -> None:
    """Refuse results with too many elements before any step allocates them.

    Raises:
        ModelError: names operator, node and shape.
    """
    for node in proto.graph.node:
        for name in node.output:
            _, shape = types.get(name, ("", None))
            label = f"operator {node.op_type} of node {node.name!r}: its result"
            check_element_count(shape or (), label, str(path))
