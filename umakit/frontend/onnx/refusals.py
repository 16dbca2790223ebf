# SPDX-License-Identifier: Apache-2.0
"""Messages about ONNX nodes that cannot be imported, in the terms of ONNX."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import onnx

from umakit import tvm_api
from umakit.errors import ModelError

DECIDES_SHAPES = frozenset(
    "axes axis depth ends k K pads repeats scales shape size sizes split starts steps".split()
)
"""Names in schemas of inputs that decide about shapes, and are constants in most models."""


SIZES = "sizes of a tensor"
"""Term in messages for values known at import that are not tensors."""


def not_supported(
    node: onnx.NodeProto, inputs: Sequence[Any | None], opset: int, file: str
) -> ModelError:
    """Return the refusal of a node that no converter takes with its inputs and attributes.

    Args:
        node: the operator.
        inputs: Relax expressions; None for omitted inputs.
        opset: opset of the model.
        file: path of the model.
    """
    schema = schema_of(node, opset)
    computed = [
        input_name(schema, position)
        for position, expression in enumerate(inputs)
        if input_name(schema, position) in DECIDES_SHAPES and is_computed(expression)
    ]
    shown = [described(expression) for expression in inputs if expression is not None]
    what = f"operator {node.op_type} of node {node.name!r} of opset {opset} is not supported"
    if computed:
        names = ", ".join(computed)
        return ModelError(
            f"{what} where its input {names} is computed at run time",
            where=file,
            fix=f"make {names} a constant: export the model with fixed shapes",
        )
    results = [output_name(schema, place) for place, name in enumerate(node.output) if name]
    several = _listed("results", results) if len(results) > 1 else ""
    return ModelError(
        f"{what}{_listed('inputs', shown)}{several}{_listed('attributes', _attributes(node))}",
        where=file,
        fix="export the model with fixed shapes, so that sizes are constants"
        if SIZES in shown
        else "replace it in the model, or export it for another opset",
    )


def contradiction(fault: str, file: str) -> ModelError:
    """Return the refusal of a model for which ONNX's strict inference fails.

    Args:
        fault: message of the inference, which names an operator and its node.
        file: path of the model.
    """
    found = re.findall(r"op_type:(\w+)(?:, node name: ([^)]*))?\): (?:\[\w+\] ?)?([^\n]*)", fault)
    kind, node, what = found[-1] if found else ("", "", fault)
    subject = f"operator {kind} of node {node!r}" if kind else "the graph"
    return ModelError(
        f"{subject} contradicts the specification of ONNX: {what}",
        where=file,
        fix="correct the attribute or the shape that this is about, or export the model again",
    )


def schema_of(node: onnx.NodeProto, opset: int) -> Any | None:
    """Return the operator's schema in the package onnx; None for unknown operators."""
    if node.domain not in ("", "ai.onnx"):
        return None
    try:
        return onnx.defs.get_schema(node.op_type, opset, "")
    except onnx.defs.SchemaError:
        return None


def input_name(schema: Any | None, position: int) -> str:
    """Return the name of an input in its schema, or its number."""
    if schema is not None and schema.inputs:
        formal = schema.inputs[min(position, len(schema.inputs) - 1)]
        if position < len(schema.inputs):
            return str(formal.name)
    return f"number {position}"


def output_name(schema: Any | None, position: int) -> str:
    """Return the name of a result in its schema, or its number."""
    if schema is None or position >= len(schema.outputs):
        return f"number {position}"
    return str(schema.outputs[position].name)


def is_computed(expression: Any | None) -> bool:
    """Return whether an input is a tensor that is computed at run time."""
    if expression is None or not hasattr(expression, "ty"):
        return False
    return bool(tvm_api.dtype_of(expression)) and tvm_api.constant_array(expression) is None


def described(expression: tvm_api.Expr) -> str:
    """Return dtype and shape of an input, for example `float32[1, 3, 8, 8]`."""
    dtype = tvm_api.dtype_of(expression) if hasattr(expression, "ty") else ""
    if not dtype or not hasattr(expression.ty, "shape"):
        return SIZES
    shape = tvm_api.static_shape(expression)
    return f"{dtype} of unknown shape" if shape is None else f"{dtype}{list(shape)}"


def _listed(kind: str, items: Sequence[str]) -> str:
    return f" with the {kind} {', '.join(items)}" if items else ""


def _attributes(node: onnx.NodeProto) -> list[str]:
    shown = []
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        numbers = isinstance(value, list) and all(isinstance(each, (int, float)) for each in value)
        if isinstance(value, (int, float, str)) or numbers:
            shown.append(f"{attribute.name}={value}")
    return shown
