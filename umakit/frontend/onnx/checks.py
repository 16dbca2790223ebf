# SPDX-License-Identifier: Apache-2.0
"""Checks of ONNX files for content that TVM's importer cannot handle."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
from google.protobuf import json_format, text_format
from google.protobuf.message import DecodeError, Message

from umakit.errors import ModelError
from umakit.frontend.onnx.rewriting import MICROSOFT, constant_tensors, is_rewritten

UNREADABLE = (
    DecodeError, json_format.ParseError, text_format.ParseError, onnx.parser.ParseError
)  # fmt: skip
"""Exceptions of `onnx.load` for files that are no model in the format of their suffix."""

QOPERATORS = frozenset(
    "QLinearSoftmax QLinearAveragePool QLinearReduceMean "
    "QLinearWhere QAttention MatMulIntegerToFloat DynamicQuantizeMatMul".split()
)
"""Operators of ONNX Runtime's quantized format without a rewrite."""

QUANTIZING = ("QuantizeLinear", "DequantizeLinear")

STANDARD_DOMAINS = ("", "ai.onnx")


def check_names(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse names of nodes and values that are not UTF-8, which Python gets as bytes."""
    graph = proto.graph
    waiting: list[Any] = [
        *graph.node, *graph.input, *graph.output, *graph.initializer, *graph.value_info
    ]  # fmt: skip
    while waiting:
        message = waiting.pop()
        for field, value in message.ListFields():
            repeated = isinstance(value, (list, Sequence)) and not isinstance(value, (str, bytes))
            if field.type == field.TYPE_MESSAGE:
                waiting += list(value) if repeated else [value]
            elif field.type == field.TYPE_STRING and field.name != "doc_string":
                for text in value if repeated else [value]:
                    if isinstance(text, bytes):
                        raise ModelError(
                            f"{field.name} {text[:100]!r} of a {type(message).__name__} is not "
                            "UTF-8",
                            where=str(path),
                            fix="export it again with names in UTF-8",
                        )


def check_opsets(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse opset versions that the package onnx does not know."""
    newest = onnx.defs.onnx_opset_version()
    for opset in proto.opset_import:
        if opset.domain in STANDARD_DOMAINS and not 1 <= opset.version <= newest:
            raise ModelError(
                f"is written for opset {opset.version} of ONNX; known are 1 to {newest}",
                where=str(path),
                fix=f"export the model for opset {newest} or an older one",
            )


def check_external_data(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse external data outside the model's folder and external data without a file."""
    for tensor in _tensors(proto.graph):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        what = f"weights {tensor.name!r} are in the file {location!r}"
        parts = PurePosixPath(location).parts
        absolute = PurePosixPath(location).is_absolute() or PureWindowsPath(location).drive
        inside = (path.parent / location).resolve().is_relative_to(path.parent.resolve())
        if not location or absolute or ".." in parts or "\\" in location or not inside:
            raise ModelError(
                f"{what}, which is outside the model's folder",
                where=str(path),
                fix="save it with its external data beside it: onnx.save_model(..., location=NAME)",
            )
        file = path.parent / location
        if not file.is_file():
            raise ModelError(
                f"{what}, which does not exist", where=str(path), fix="copy it next to the model"
            )
        _check_extent(entries, file, what, path)


def external_files(path: Path) -> list[Path]:
    """Return the external data files of an ONNX file; empty for any other file.

    The list includes files for tensors that umakit ignores, such as training tensors.
    """
    try:
        proto = onnx.load(str(path), load_external_data=False)
    except (OSError, ValueError, *UNREADABLE):
        return []
    locations = {
        os.fsdecode(entry.value)
        for tensor in _tensors_anywhere(proto)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    files = [path.parent / name for name in sorted(locations) if name and "\0" not in name]
    return [file for file in files if not file.is_dir()]


def _tensors_anywhere(message: Any) -> Iterator[onnx.TensorProto]:
    waiting = [message]
    while waiting:
        message = waiting.pop()
        if isinstance(message, onnx.TensorProto):
            yield message
            continue
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                waiting += [value] if isinstance(value, Message) else list(value)


def _check_extent(entries: dict[str, str], file: Path, what: str, path: Path) -> None:
    try:
        offset, length = (int(entries.get(key) or 0) for key in ("offset", "length"))
    except ValueError:
        raise ModelError(f"{what} at a place that is not a number", where=str(path)) from None
    if offset < 0 or length < 0 or offset + length > file.stat().st_size:
        raise ModelError(f"{what}, which is too short", where=str(path))


def check_values(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse inputs and outputs that are not tensors."""
    for what, values in (("input", proto.graph.input), ("output", proto.graph.output)):
        for value in values:
            kind = value.type.WhichOneof("value") or "tensor_type"
            if kind != "tensor_type":
                raise ModelError(
                    f"{what} {value.name!r} is of the kind {kind.removesuffix('_type')}, "
                    "which no C interface of umakit has",
                    where=str(path),
                    fix="export the model with tensors as inputs and outputs",
                )


def check_operators(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse operators of other domains and QOperator nodes, except rewritten ones."""
    for node in all_nodes(proto.graph):
        where, label = str(path), f"operator {node.op_type} of node {node.name!r}"
        if is_rewritten(node):
            continue
        if node.op_type in QOPERATORS:
            raise ModelError(
                f"{label} is of the QOperator format",
                where=where,
                fix="quantize the float model with quant_format=QuantFormat.QDQ",
            )
        microsoft = node.domain == MICROSOFT and node.op_type in QUANTIZING
        if node.domain not in STANDARD_DOMAINS and not microsoft:
            raise ModelError(
                f"{label} is of the custom domain {node.domain!r}",
                where=where,
                fix="export the model with standard ONNX operators only",
            )
        if microsoft:
            # ONNX Runtime writes them in its own domain for integers that older opsets lack.
            node.domain = ""


def check_scales(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse scales and zero points that are not constants."""
    constants = constant_tensors(proto.graph)
    for node in all_nodes(proto.graph):
        if node.op_type in QUANTIZING:
            _check_scale(node, constants, str(path))


def _check_scale(
    node: onnx.NodeProto, constants: dict[str, onnx.TensorProto | None], where: str
) -> None:
    label = f"operator {node.op_type} of node {node.name!r}"
    for name, what in zip(node.input[1:3], ("scale", "zero point"), strict=False):
        if name and name not in constants:
            raise ModelError(
                f"{label} has a {what} {name!r} that is not a constant",
                where=where,
                fix="quantize statically: quantize_static, not quantize_dynamic",
            )
    scale = constants[node.input[1]]
    if scale is None:
        return
    try:
        values = onnx.numpy_helper.to_array(scale)
    except (KeyError, TypeError, ValueError):
        raise ModelError(f"{label} has a scale that holds no numbers", where=where) from None
    wrong = values[~(np.isfinite(values) & (values > 0))]
    if wrong.size:
        raise ModelError(
            f"{label} has the scale {wrong[0]}, which is not a positive number",
            where=where,
            fix="quantize it again, or give a channel whose weights are all 0 the scale 1",
        )


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph and of all nested graphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from all_nodes(attribute.g)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in all_nodes(graph):
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == onnx.AttributeProto.GRAPH:
                yield from attribute.g.initializer
