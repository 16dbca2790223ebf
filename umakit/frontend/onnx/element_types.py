# SPDX-License-Identifier: Apache-2.0
"""Check of the element types of each node's inputs, by the schemas of the package onnx."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.frontend.onnx.checks import QUANTIZING
from umakit.frontend.onnx.refusals import schema_of

NAMES = {"float32": "float", "float64": "double"}
"""Names of element types in schemas, where they are not those of NumPy."""

FIRST_OPSET_OF_16_BITS = 21
"""Of QuantizeLinear and DequantizeLinear; before, ONNX Runtime has its own ones of 16 bits."""


def check_input_types(
    node: onnx.NodeProto, inputs: Sequence[Any | None], opset: int, file: str
) -> None:
    """Refuse a node with inputs of types that its operator does not take, or not together.

    TVM's importer would compute it all the same, and sums of int8 would wrap around.

    Args:
        node: the operator.
        inputs: Relax expressions, None for those that are left out.
        opset: opset of the model.
        file: path of the model.

    Raises:
        ModelError: names the operator, the node, the input, its type and the allowed types.
    """
    schema = schema_of(node, opset)
    is_own = node.op_type in QUANTIZING and opset < FIRST_OPSET_OF_16_BITS
    if schema is None or is_own or not schema.inputs:
        return
    given: dict[str, tuple[str, str]] = {}
    for position, expression in enumerate(inputs):
        formal = schema.inputs[min(position, len(schema.inputs) - 1)]
        dtype = _dtype(expression)
        tensors = [kind for kind in sorted(formal.types) if kind.startswith("tensor(")]
        if not dtype or not tensors:  # converters say what they make of sequences
            continue
        allowed = [kind.removeprefix("tensor(").removesuffix(")") for kind in tensors]
        what = f"operator {node.op_type} of node {node.name!r} has the input {formal.name} of type"
        if NAMES.get(dtype, dtype) not in allowed:
            raise ModelError(
                f"{what} {dtype}, but opset {opset} of ONNX allows {', '.join(allowed)} there",
                where=file,
                fix="convert the input with Cast, or quantize the float model with "
                "quant_format=QuantFormat.QDQ",
            )
        other, first = given.setdefault(formal.type_str, (dtype, formal.name))
        if other != dtype and formal.is_homogeneous:
            raise ModelError(
                f"{what} {dtype}, but the input {first} of type {other}, which must be the same",
                where=file,
                fix="convert one of them with Cast",
            )


def _dtype(expression: Any | None) -> str:
    """Return the element type of a tensor; empty for what is none."""
    if expression is None or not hasattr(getattr(expression, "ty", None), "shape"):
        return ""
    return tvm_api.dtype_of(expression)
