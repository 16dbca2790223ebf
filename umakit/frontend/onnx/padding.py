# SPDX-License-Identifier: Apache-2.0
"""Automatic padding of ONNX nodes, written out as numbers."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.shape_inference

from umakit.errors import ModelError
from umakit.frontend.model import last_line
from umakit.frontend.onnx.node import attribute_of

AUTOMATIC_PADDING_OPERATORS = ("Conv", "MaxPool", "AveragePool")


def make_padding_explicit(proto: onnx.ModelProto, path: Path) -> None:
    """Replace `auto_pad` by `pads`: TVM would import it as an operator of its own."""
    nodes = [
        node
        for node in proto.graph.node
        if node.op_type in AUTOMATIC_PADDING_OPERATORS
        and attribute_of(node, "auto_pad", b"NOTSET") not in (b"NOTSET", b"")
    ]
    if not nodes:
        return
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        raise ModelError(
            f"shapes do not fit: {last_line(error)}",
            where=str(path),
            fix="export the model with fixed shapes",
        ) from None
    value_infos = {v.name: v for v in [*inferred.graph.value_info, *inferred.graph.input]}
    constants = {tensor.name: list(tensor.dims) for tensor in proto.graph.initializer}
    for node in nodes:
        resolve_padding(node, value_infos, constants)


def resolve_padding(
    node: onnx.NodeProto,
    value_infos: dict[str, onnx.ValueInfoProto],
    constants: dict[str, list[int]],
) -> None:
    """The formulas of the ONNX operator specification of Conv, for one node."""
    mode = attribute_of(node, "auto_pad", b"NOTSET")
    kernel = list(attribute_of(node, "kernel_shape", ()))
    if not kernel and node.op_type == "Conv":
        kernel = (constants.get(node.input[1]) or _dimensions(value_infos.get(node.input[1])))[2:]
    sizes = _dimensions(value_infos.get(node.input[0]))[2:]
    if not kernel or len(sizes) != len(kernel) or not all([*sizes, *kernel]):
        return
    strides = list(attribute_of(node, "strides", [1] * len(kernel)))
    dilations = list(attribute_of(node, "dilations", [1] * len(kernel)))
    before, after = [], []
    for size, extent, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        total = 0
        if mode != b"VALID":
            output = -(-size // stride)
            total = max(0, (output - 1) * stride + (extent - 1) * dilation + 1 - size)
        small, large = total // 2, total - total // 2
        before.append(large if mode == b"SAME_LOWER" else small)
        after.append(small if mode == b"SAME_LOWER" else large)
    kept = [attribute for attribute in node.attribute if attribute.name not in ("auto_pad", "pads")]
    del node.attribute[:]
    node.attribute.extend([*kept, onnx.helper.make_attribute("pads", before + after)])


def _dimensions(value: onnx.ValueInfoProto | None) -> list[int]:
    """Sizes of a tensor, 0 for those that are not known."""
    return [int(d.dim_value) for d in value.type.tensor_type.shape.dim] if value else []
