# SPDX-License-Identifier: Apache-2.0
"""ONNX files as input.

TVM's importer converts the operators. This module first checks the file, binds symbolic dimensions
and resolves automatic padding. Every operator keeps the name of its ONNX node.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx
import onnx.numpy_helper
import onnx.shape_inference

from umakit.errors import ModelError
from umakit.frontend.model import (
    READABLE,
    InputShapes,
    Model,
    Quantization,
    QuantizedSemantics,
    last_line,
)
from umakit.frontend.onnx.attributes import settle_attributes
from umakit.frontend.onnx.checks import (
    UNREADABLE,
    all_nodes,
    check_external_data,
    check_names,
    check_operators,
    check_opsets,
    check_scales,
    check_values,
)
from umakit.frontend.onnx.importer import NamingImporter
from umakit.frontend.onnx.registry import attribute_of, opset_of
from umakit.frontend.onnx.rewriting import rewrite_nodes
from umakit.frontend.onnx.shapes import graph_inputs, set_input_shapes, static_input_shapes
from umakit.frontend.onnx.structure import (
    check_structure,
    drop_unread_results,
    sort_nodes,
    write_out_constants,
)
from umakit.frontend.relax_modules import specifications
from umakit.text.identities import SourceOperator
from umakit.text.names import symbol_part


def import_onnx(path: Path, name: str | None, input_shapes: InputShapes) -> Model:
    """Import an ONNX file. Weights become constants; the default name is the file's stem."""
    proto, sources = _load(path)
    write_out_constants(proto, path)
    drop_unread_results(proto.graph, opset_of(proto))
    rewrite_nodes(proto.graph, path, {})
    check_scales(proto, path)
    shapes, notices = static_input_shapes(proto, path, input_shapes)
    set_input_shapes(proto, shapes)
    name_blank_constants(proto)
    settle_attributes(proto, path)
    make_padding_explicit(proto, path)
    module = NamingImporter(path, sources).run(proto, shapes)
    quantizations = edge_quantizations(proto)
    given, yielded = (
        [(value.name, quantizations.get(value.name)) for value in values]
        for values in (graph_inputs(proto), proto.graph.output)
    )
    inputs, outputs = specifications(module, given, yielded, str(path))
    return Model(
        symbol_part(name or path.stem),
        module,
        inputs,
        outputs,
        tuple(notices),
        semantics=QuantizedSemantics.RUNTIME,
        sources=sources,
    )


def _load(path: Path) -> tuple[onnx.ModelProto, dict[str, SourceOperator]]:
    if not path.exists():
        raise ModelError("no such file", where=str(path), fix=READABLE)
    if not path.is_file():
        raise ModelError("is a folder, not a model file", where=str(path), fix="name a file in it")
    try:
        proto = onnx.load(str(path), load_external_data=False)
        if not proto.opset_import or not proto.graph.node:
            raise ModelError(
                "is not an ONNX model or holds no operators",
                where=str(path),
                fix="name a file .onnx, .tflite, .pt2 or a Relax module in JSON",
            )
        check_opsets(proto, path)
        check_names(proto, path)
        check_external_data(proto, path)
        onnx.load_external_data_for_model(proto, str(path.parent))
        check_values(proto, path)
        check_operators(proto, path)
        sources = name_nodes(proto)
        check_structure(proto, path)
        sort_nodes(proto.graph, path)
        _check_by_onnx(proto)
    except UNREADABLE:
        raise ModelError("is not an ONNX file, or it is truncated", where=str(path)) from None
    except OSError as error:
        raise ModelError(
            f"cannot be read: {error.strerror}", where=str(path), fix=READABLE
        ) from None
    except ValueError as error:
        raise ModelError(
            f"is not a valid ONNX model: {last_line(error)}", where=str(path)
        ) from None
    except onnx.checker.ValidationError as error:
        raise ModelError(
            f"is not a valid ONNX model: {' '.join(str(error).split())}",
            where=str(path),
            fix="correct what it names, or export the model again",
        ) from None
    return proto, sources


def _check_by_onnx(proto: onnx.ModelProto) -> None:
    """Run the checker of the package onnx, without the checks that refuse valid files.

    The checker demands output shapes, which are inferred later. It calls GroupNormalization of
    opset 18 deprecated, so the node is checked as GroupNormalization of opset 21.
    """
    for value in proto.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    checked = proto
    groups = any(node.op_type == "GroupNormalization" for node in all_nodes(proto.graph))
    if groups and any(18 <= o.version < 21 and not o.domain for o in proto.opset_import):
        checked = onnx.ModelProto()
        checked.CopyFrom(proto)
        checked.ir_version = max(10, proto.ir_version)
        for opset in checked.opset_import:
            opset.version = max(21, opset.version) if not opset.domain else opset.version
    onnx.checker.check_model(checked)


def name_nodes(proto: onnx.ModelProto) -> dict[str, SourceOperator]:
    """Give every node a unique name, and return the file's operators by name, in file order."""
    nodes = list(all_nodes(proto.graph))
    given = {node.name for node in nodes}
    sources: dict[str, SourceOperator] = {}
    for number, node in enumerate(nodes):
        own = node.name
        if not own or own in sources:
            node.name = f"{own or node.op_type}_{number}"
            while node.name in given or node.name in sources:
                node.name += "_"
        sources[node.name] = SourceOperator(node.name, own, number, kind=node.op_type)
    return sources


def name_blank_constants(proto: onnx.ModelProto) -> None:
    """Rename constants with blank names, which TVM's importer refuses."""
    graph = proto.graph
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    renamed: dict[str, str] = {}
    for constant in graph.initializer:
        if constant.name and not constant.name.strip():
            name = f"constant_{len(renamed)}"
            while name in taken:
                name += "_"
            taken.add(name)
            renamed[constant.name] = constant.name = name
    if not renamed:
        return
    for node in graph.node:
        for number, name in enumerate(node.input):
            node.input[number] = renamed.get(name, name)
    for value in (*graph.output, *graph.input, *graph.value_info):
        value.name = renamed.get(value.name, value.name)


AUTOMATIC_PADDING_OPERATORS = ("Conv", "MaxPool", "AveragePool")


def make_padding_explicit(proto: onnx.ModelProto, path: Path) -> None:
    """Replace `auto_pad` by `pads`. TVM would import `auto_pad` as an extra operator."""
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
    """Set `pads` of one node by the formulas of the ONNX operator specification of Conv."""
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
    return [int(d.dim_value) for d in value.type.tensor_type.shape.dim] if value else []


def edge_quantizations(proto: onnx.ModelProto) -> dict[str, Quantization]:
    """Return scale and zero point by name of graph input or output.

    The DequantizeLinear that reads an input, or the QuantizeLinear that writes an output, gives the
    values. Per-channel and ambiguous quantizations are left out.
    """
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    edges = {value.name for value in (*proto.graph.input, *proto.graph.output)}
    found: dict[str, set[Quantization]] = {}
    for node in proto.graph.node:
        if node.op_type == "DequantizeLinear":
            tensor = node.input[0]
        elif node.op_type == "QuantizeLinear":
            tensor = node.output[0]
        else:
            continue
        quantization = _quantization(node.input[1:], constants)
        if tensor in edges and quantization is not None:
            found.setdefault(tensor, set()).add(quantization)
    return {name: values.pop() for name, values in found.items() if len(values) == 1}


def _quantization(
    names: Sequence[str], constants: dict[str, onnx.TensorProto]
) -> Quantization | None:
    if any(name and name not in constants for name in names):
        return None
    arrays = [onnx.numpy_helper.to_array(constants[name]) for name in names if name]
    if not arrays or any(array.size != 1 for array in arrays):
        return None
    zero_point = int(arrays[1].item()) if len(arrays) > 1 else 0
    return Quantization(float(arrays[0].item()), zero_point)
