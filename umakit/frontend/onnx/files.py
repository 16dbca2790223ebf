# SPDX-License-Identifier: Apache-2.0
"""ONNX files as input.

TVM's importer knows the operators; here the file is checked first, symbolic dimensions are bound,
automatic padding is resolved, and every operator keeps the name of the node it came from.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.frontend.model import (
    READABLE,
    InputShapes,
    Model,
    QuantizedSemantics,
    TensorSpecification,
    last_line,
    type_specification,
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
from umakit.frontend.onnx.node import opset_of
from umakit.frontend.onnx.padding import make_padding_explicit
from umakit.frontend.onnx.quantization import edge_quantizations
from umakit.frontend.onnx.rewriting import rewrite_nodes
from umakit.frontend.onnx.shapes import graph_inputs, set_input_shapes, static_input_shapes
from umakit.frontend.onnx.structure import (
    check_structure,
    drop_unread_results,
    sort_nodes,
    write_out_constants,
)
from umakit.text.identities import SourceOperator
from umakit.text.names import symbol_part


def import_onnx(path: Path, name: str | None, input_shapes: InputShapes) -> Model:
    """Import an ONNX file with float weights as constants.

    Args:
        path: the `.onnx` file.
        name: name of the model in C; default: the file's stem.
        input_shapes: sizes by input name, for symbolic dimensions.

    Raises:
        ModelError: no such file, no ONNX, an operator that TVM cannot import, a shape that does
            not fit; names the operator, the node and the file.
    """
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
    given_names = [value.name for value in graph_inputs(proto)]
    main = module["main"]
    inputs = tuple(
        replace(
            type_specification(given, parameter.ty, str(path)),
            quantization=quantizations.get(given),
        )
        for given, parameter in zip(given_names, main.params, strict=True)
    )
    fields = tvm_api.tuple_fields(main.ret_ty)
    outputs: tuple[TensorSpecification, ...] = tuple(
        replace(
            type_specification(value.name, field, str(path)),
            quantization=quantizations.get(value.name),
        )
        for value, field in zip(proto.graph.output, fields, strict=True)
    )
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
    """Return a checked model, whose nodes have unique names, and its operators by these names."""
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
    """Run the checker of the package onnx, without checks that refuse valid files.

    It wants shapes of outputs, which are inferred later; and GroupNormalization of opset 18, which
    later versions of ONNX call deprecated, is checked as that of opset 21.
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
    """Name nodes that have no name, or a name that is taken, after their type and number.

    Returns:
        The operators of the file by their names, in its order.
    """
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
    """Rename constants whose names are white space, which TVM's importer refuses."""
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
