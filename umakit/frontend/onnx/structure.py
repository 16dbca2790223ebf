# SPDX-License-Identifier: Apache-2.0
"""Errors in the structure of an ONNX graph that ONNX's own checker lets through."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.numpy_helper

from umakit.errors import ModelError
from umakit.frontend.onnx.checks import STANDARD_DOMAINS, all_nodes
from umakit.frontend.onnx.node import opset_of
from umakit.frontend.onnx.refusals import input_name, schema_of

NOT_NUMBERS = {
    onnx.TensorProto.STRING: "string",
    onnx.TensorProto.COMPLEX64: "complex64",
    onnx.TensorProto.COMPLEX128: "complex128",
}
"""Element types that nothing here computes with, and their names."""

MAY_BE_EMPTY = ("Resize",)
"""Operators of which exporters leave out inputs that their opset does not call optional."""


def check_structure(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse missing inputs, unknown element types, and results without a source.

    Args:
        proto: a model whose nodes have names.
        path: path of the model, for messages.

    Raises:
        ModelError: names the node or tensor, and the file.
    """
    opset = opset_of(proto)
    for node in all_nodes(proto.graph):
        _check_inputs(node, opset, str(path))
    graph = proto.graph
    for value in [*graph.input, *graph.output, *graph.value_info]:
        _check_element_type(value, str(path))
    for tensor in graph.initializer:
        if tensor.data_type not in onnx.TensorProto.DataType.values() or not tensor.data_type:
            raise ModelError(
                f"initializer {tensor.name!r} has the unknown element type {tensor.data_type}",
                where=str(path),
                fix="export the model again",
            )
    written = {
        *(value.name for value in graph.input),
        *(tensor.name for tensor in graph.initializer),
        *(tensor.values.name for tensor in graph.sparse_initializer),
        *(name for node in graph.node for name in node.output),
    }
    _check_outputs(graph.output, written, str(path))


def write_out_constants(proto: onnx.ModelProto, path: Path) -> None:
    """Give every Constant its value as a tensor, whichever attribute says it.

    Raises:
        ModelError: a constant of text, or one without a value.
    """
    for node in all_nodes(proto.graph):
        if node.op_type != "Constant" or node.domain not in STANDARD_DOMAINS:
            continue
        given = [attribute for attribute in node.attribute if attribute.name in VALUES]
        array = VALUES[given[0].name](given[0]) if len(given) == 1 else None
        if array is None:
            raise ModelError(
                f"operator Constant of node {node.name!r} holds no tensor of numbers",
                where=str(path),
                fix="export the model without it",
            )
        if given[0].name != "value":
            del node.attribute[:]
            tensor = onnx.numpy_helper.from_array(array, node.output[0])
            node.attribute.append(onnx.helper.make_attribute("value", tensor))


def _dense(sparse: onnx.SparseTensorProto) -> npt.NDArray[Any] | None:
    """The tensor of a sparse one, None where its indices lie outside or do not fit."""
    values = onnx.numpy_helper.to_array(sparse.values)
    indices = onnx.numpy_helper.to_array(sparse.indices)
    sizes = [int(size) for size in sparse.dims]
    if indices.ndim == 2 and indices.shape == (len(values), len(sizes)):
        if (indices < 0).any() or (indices >= np.array(sizes)).any():
            return None
        places = np.ravel_multi_index(tuple(indices.T), tuple(sizes))
    elif indices.shape == values.shape:
        places = indices
    else:
        return None
    if len(places) and not (places.min() >= 0 and places.max() < math.prod(sizes)):
        return None
    dense = np.zeros(math.prod(sizes), values.dtype)
    dense[places] = values
    return dense.reshape(sizes)


VALUES: dict[str, Callable[[onnx.AttributeProto], npt.NDArray[Any] | None]] = {
    "value": lambda a: np.zeros(0) if a.t.data_type != onnx.TensorProto.STRING else None,
    "value_float": lambda a: np.asarray(a.f, np.float32),
    "value_floats": lambda a: np.asarray(a.floats, np.float32),
    "value_int": lambda a: np.asarray(a.i, np.int64),
    "value_ints": lambda a: np.asarray(a.ints, np.int64),
    "sparse_value": lambda a: _dense(a.sparse_tensor),
    "value_string": lambda a: None,
    "value_strings": lambda a: None,
}
"""Conversion to a tensor by attribute of Constant, None for text; `value` is one already."""


def _check_inputs(node: onnx.NodeProto, opset: int, where: str) -> None:
    """Refuse required inputs that are left out."""
    schema = schema_of(node, opset)
    if schema is None or node.op_type in MAY_BE_EMPTY:
        return
    kinds = onnx.defs.OpSchema.FormalParameterOption
    for position in range(max(len(node.input), schema.min_input) if schema.inputs else 0):
        formal = schema.inputs[min(position, len(schema.inputs) - 1)]
        missing = position >= len(node.input) or not node.input[position]
        if missing and formal.option != kinds.Optional:
            raise ModelError(
                f"operator {node.op_type} of node {node.name!r} lacks its input "
                f"{input_name(schema, position)}, which has no default",
                where=where,
                fix="export the model again",
            )


def _check_element_type(value: onnx.ValueInfoProto, where: str) -> None:
    if not value.type.HasField("tensor_type"):
        return
    number = value.type.tensor_type.elem_type
    if number in NOT_NUMBERS:
        raise ModelError(
            f"tensor {value.name!r} is of the element type {NOT_NUMBERS[number]}, which is not "
            "supported",
            where=where,
            fix="export the model without it",
        )
    if not number or number not in onnx.TensorProto.DataType.values():
        raise ModelError(
            f"tensor {value.name!r} has the unknown element type {number}",
            where=where,
            fix="export the model again",
        )


def _check_outputs(outputs: Iterable[onnx.ValueInfoProto], written: set[str], where: str) -> None:
    names: set[str] = set()
    for value in outputs:
        if value.name in names:
            raise ModelError(f"there are two outputs {value.name!r}", where=where)
        names.add(value.name)
        if value.name not in written:
            raise ModelError(
                f"output {value.name!r} is computed by no node",
                where=where,
                fix="export the model again",
            )
