# SPDX-License-Identifier: Apache-2.0
"""Nodes that cannot be imported, in the terms of ONNX, and branches of an `If`.

Both branches of an If whose condition is computed at run time are computed, so that a node of a
branch must not be able to fail.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.tvm_api import relax

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


NO_RESULT = "expected to have type but instead is null"
NESTED = re.compile(r"op_type:(If|Loop|Scan)\b")


def contradiction(fault: str, file: str, inputs: Sequence[Any | None] = ()) -> ModelError:
    """Return the refusal of a model for which ONNX's strict inference fails.

    Args:
        fault: message of the inference, which names an operator and its node.
        file: path of the model.
        inputs: Relax expressions of the first node that fails, if it could not be converted.
    """
    found = re.findall(r"op_type:(\w+)(?:, node name: ([^)]*))?\): (?:\[\w+\] ?)?([^\n]*)", fault)
    # Nodes behind the first one lack its result; an operator with branches is named before theirs.
    own = [each for each in found if NO_RESULT not in each[2]]
    kind, node, what = own[-1 if NESTED.search(fault) else 0] if own else ("", "", fault)
    shown = [described(expression) for expression in inputs if expression is not None]
    subject = f"operator {kind} of node {node!r}" if kind else "the graph"
    return ModelError(
        f"{subject} contradicts the specification of ONNX{_listed('inputs', shown)}: {what}",
        where=file,
        fix="correct this attribute or shape, or export the model again",
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


DIVISIONS = ("Div", "Mod")
INDEXED = {
    **dict.fromkeys(("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"), 1),
    "Scatter": 1,
    "OneHot": 0,
    "RoiAlign": 2,
}
"""Operators that fail for indices outside of a tensor, with the number of the index input."""


def check_conditional(node: onnx.NodeProto, inputs: Sequence[Any], file: str) -> None:
    """Refuse a node that could fail in the branch that is not taken.

    Args:
        node: node of a branch.
        inputs: Relax expressions of the node's inputs.
        file: path of the model.

    Raises:
        ModelError: the node divides integers or uses indices computed at run time.
    """
    what = ""
    if node.op_type in DIVISIONS and "int" in tvm_api.dtype_of(inputs[1]):
        divisor = tvm_api.constant_array(inputs[1])
        if divisor is None or not np.all(divisor):
            what = "divides integers"
    elif (position := INDEXED.get(node.op_type)) is not None:
        constant = tvm_api.constant_array(inputs[position]) is not None
        what = "" if constant else "has indices that are computed at run time"
    if what:
        raise ModelError(
            f"operator {node.op_type} of node {node.name!r} {what} in a branch of an If whose "
            "condition is computed at run time; both branches are computed here, and it could fail",
            where=file,
            fix="make the condition a constant, or move the operator out of the branch",
        )


def chosen(
    builder: tvm_api.BlockBuilder,
    node: onnx.NodeProto,
    condition: tvm_api.Expr,
    branches: tuple[Sequence[Any], Sequence[Any]],
    file: str,
) -> list[Any]:
    """Return the results of the branch that the condition selects.

    Args:
        builder: block builder.
        node: the If node.
        condition: tensor with one bool.
        branches: results of `then_branch` and of `else_branch`.
        file: path of the model.

    Raises:
        ModelError: the branches yield tensors of different shapes or dtypes, or no tensors.
    """
    flag = builder.emit(relax.op.reshape(condition, ()))
    results = []
    for name, then, otherwise in zip(node.output, *branches, strict=True):
        kinds = [described(value) for value in (then, otherwise)]
        if kinds[0] != kinds[1] or tvm_api.static_shape(then) is None:
            raise ModelError(
                f"operator If of node {node.name!r} has a condition that is computed at run time, "
                f"and its result {name!r} is {kinds[0]} in one branch and {kinds[1]} in the other",
                where=file,
                fix="make the condition a constant, or the results alike",
            )
        results.append(builder.emit(relax.op.where(flag, then, otherwise)))
    return results
