# SPDX-License-Identifier: Apache-2.0
"""Errors in the structure of an ONNX graph that ONNX's own checker lets through."""

from __future__ import annotations

import graphlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.numpy_helper

from umakit.errors import ModelError
from umakit.frontend.onnx.checks import STANDARD_DOMAINS, all_nodes
from umakit.frontend.onnx.refusals import input_name, schema_of
from umakit.frontend.onnx.registry import opset_of

NOT_COMPUTED = {
    number: name.lower()
    for name, number in onnx.TensorProto.DataType.items()
    if name.startswith(("STRING", "COMPLEX", "FLOAT8", "FLOAT4", "INT4", "UINT4", "INT2", "UINT2"))
}
"""Element types that nothing here computes with, and their names."""

MAY_BE_EMPTY = ("Resize",)
"""Operators from which exporters omit inputs that their opset requires."""


def check_structure(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse missing inputs, unknown element types, and results without a source."""
    opset, graph = opset_of(proto), proto.graph
    readers: dict[str, onnx.NodeProto] = {}
    for node in all_nodes(graph):
        _check_inputs(node, opset, str(path))
        for name in node.input:
            readers.setdefault(name, node)
    for value in [*graph.input, *graph.output, *graph.value_info]:
        if value.type.HasField("tensor_type"):
            _check_type(value.type.tensor_type.elem_type, f"tensor {value.name!r}", str(path))
    for tensor in graph.initializer:
        reader = readers.get(tensor.name)
        read = f", read by {reader.op_type} of node {reader.name!r}," if reader else ""
        _check_type(tensor.data_type, f"initializer {tensor.name!r}{read}", str(path))
    written = {
        *(value.name for value in graph.input),
        *(tensor.name for tensor in graph.initializer),
        *(tensor.values.name for tensor in graph.sparse_initializer),
        *(name for node in graph.node for name in node.output),
    }
    _check_outputs(graph.output, written, str(path))


def sort_nodes(graph: onnx.GraphProto, path: Path) -> None:
    """Sort nodes topologically, if they are not."""
    writers = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
    read: dict[int, set[int]] = {}
    for place, node in enumerate(graph.node):
        inner = (a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH)
        names = {*node.input, *(name for g in inner for n in all_nodes(g) for name in n.input)}
        read[place] = {writers[name] for name in names if name in writers}
    if all(place > other for place, others in read.items() for other in others):
        return
    try:
        order = list(graphlib.TopologicalSorter(read).static_order())
    except graphlib.CycleError as error:
        circle = ", ".join(repr(graph.node[place].name) for place in error.args[1])
        raise ModelError(
            f"nodes {circle} read each other's results in a circle",
            where=str(path),
            fix="export the model again; recurrent layers are LSTM, GRU, RNN or Scan",
        ) from None
    nodes = [onnx.NodeProto.FromString(graph.node[place].SerializeToString()) for place in order]
    del graph.node[:]
    graph.node.extend(nodes)


def drop_unread_results(graph: onnx.GraphProto, opset: int) -> None:
    """Remove unused trailing optional results from their nodes."""
    read = {name for node in all_nodes(graph) for name in node.input}
    read |= {value.name for value in graph.output}
    for node in graph.node:
        schema = schema_of(node, opset)
        while (
            schema is not None
            and len(node.output) > max(1, schema.min_output)
            and node.output[-1] not in read
        ):
            del node.output[-1]


def write_out_constants(proto: onnx.ModelProto, path: Path) -> None:
    """Rewrite every Constant to the attribute `value`."""
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
    """Return the dense form of a sparse tensor; None for invalid indices."""
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
            )


def _check_type(number: int, what: str, where: str) -> None:
    if number in NOT_COMPUTED:
        raise ModelError(
            f"{what} is of the element type {NOT_COMPUTED[number]}, which is not supported",
            where=where,
            fix="export the model with float32, or quantized to int8 or uint8",
        )
    if not number or number not in onnx.TensorProto.DataType.values():
        raise ModelError(f"{what} has the unknown element type {number}", where=where)


def _check_outputs(outputs: Sequence[onnx.ValueInfoProto], written: set[str], where: str) -> None:
    if not outputs:
        raise ModelError(
            "has no outputs, so that nothing is computed",
            where=where,
            fix="list the results under outputs of the graph",
        )
    names: set[str] = set()
    for value in outputs:
        if value.name in names:
            raise ModelError(
                f"there are two outputs {value.name!r}",
                where=where,
                fix="give each result of the graph a name of its own",
            )
        names.add(value.name)
        if value.name not in written:
            raise ModelError(f"output {value.name!r} is computed by no node", where=where)
