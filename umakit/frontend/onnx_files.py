# SPDX-License-Identifier: Apache-2.0
"""ONNX files as input.

TVM's importer knows the operators; here the file is checked first, symbolic dimensions are bound,
automatic padding is resolved, and every operator keeps the name of the node it came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
from google.protobuf.message import DecodeError

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.frontend.model import (
    InputShapes,
    Meaning,
    Model,
    TensorSpecification,
    last_line,
    symbolic_notice,
    type_specification,
)
from umakit.frontend.onnx_checks import check_external_data, check_operators
from umakit.frontend.onnx_quantization import constant_pad, edge_quantizations
from umakit.frontend.relax_modules import rename_operators
from umakit.frontend.simplify import quiet
from umakit.names import symbol_part

onnx_frontend = tvm_api.onnx_frontend()
Importer: Any = onnx_frontend.ONNXGraphImporter

AUTOMATIC_PADDING_OPERATORS = ("Conv", "MaxPool", "AveragePool")


def import_onnx(path: Path, name: str | None, input_shapes: InputShapes) -> Model:
    """Import an ONNX file with float weights as constants.

    Args:
        path: the `.onnx` file.
        name: of the model in C; default: the file's stem.
        input_shapes: sizes by input name, for symbolic dimensions.

    Raises:
        ModelError: no such file, no ONNX, an operator that TVM cannot import, a shape that does
            not fit; names the operator, the node and the file.
    """
    proto = _load(path)
    shapes, notices = _static_input_shapes(proto, path, input_shapes)
    _set_input_shapes(proto, shapes)
    name_nodes(proto)
    _make_padding_explicit(proto, path)
    module = _NamingImporter(path).run(proto, shapes)
    quantizations = edge_quantizations(proto)
    graph_inputs = [value.name for value in _graph_inputs(proto)]
    main = module["main"]
    inputs = tuple(
        replace(
            type_specification(given, parameter.ty, path.name),
            quantization=quantizations.get(given),
        )
        for given, parameter in zip(graph_inputs, main.params, strict=True)
    )
    fields = tvm_api.tuple_fields(main.ret_ty)
    outputs: tuple[TensorSpecification, ...] = tuple(
        replace(
            type_specification(value.name, field, path.name),
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
        meaning=Meaning.RUNTIME,
    )


def _load(path: Path) -> onnx.ModelProto:
    if not path.exists():
        raise ModelError("no such file", where=str(path))
    if not path.is_file():
        raise ModelError("is a folder, not a model file", where=str(path))
    try:
        proto = onnx.load(str(path), load_external_data=False)
        if not proto.opset_import or not proto.graph.node:
            raise ModelError("is not an ONNX model or holds no operators", where=str(path))
        check_external_data(proto, path)
        onnx.load_external_data_for_model(proto, str(path.parent))
        check_operators(proto, path)
        onnx.checker.check_model(proto)
    except DecodeError:
        raise ModelError(
            "is not an ONNX file, or it is truncated", where=str(path), fix="export it again"
        ) from None
    except (onnx.checker.ValidationError, ValueError, OSError) as error:
        first_line = str(error).strip().splitlines()[0]
        raise ModelError(f"is not a valid ONNX model: {first_line}", where=str(path)) from None
    return proto


def _graph_inputs(proto: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs that a caller gives: those that are no initializers."""
    constants = {tensor.name for tensor in proto.graph.initializer}
    return [value for value in proto.graph.input if value.name not in constants]


def _static_input_shapes(
    proto: onnx.ModelProto, path: Path, wanted: InputShapes
) -> tuple[dict[str, list[int]], list[str]]:
    """Every input's shape with symbolic dimensions bound, and what to tell the user."""
    names = [value.name for value in _graph_inputs(proto)]
    for unknown in sorted(set(wanted) - set(names)):
        raise ModelError(
            f"there is no input {unknown!r}", where=str(path), fix=f"inputs are {', '.join(names)}"
        )
    shapes: dict[str, list[int]] = {}
    notices: list[str] = []
    for value in _graph_inputs(proto):
        tensor = value.type.tensor_type
        if not tensor.HasField("shape"):
            if value.name not in wanted:
                raise ModelError(
                    f"input {value.name!r} has no known rank",
                    where=str(path),
                    fix="give its shape with --input-shapes",
                )
            shapes[value.name] = [int(size) for size in wanted[value.name]]
            continue
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
        )
    shape: list[int] = []
    for axis, dimension in enumerate(dimensions):
        fixed = dimension.dim_value if dimension.HasField("dim_value") else 0
        if wanted is not None:
            if fixed > 0 and fixed != wanted[axis]:
                raise ModelError(
                    f"dimension {axis} of input {value.name!r} is {fixed}, not {wanted[axis]}",
                    where=str(path),
                )
            shape.append(int(wanted[axis]))
        elif fixed > 0:
            shape.append(int(fixed))
        else:
            notices.append(symbolic_notice(value.name, dimension.dim_param or "?"))
            shape.append(1)
    return shape


def _set_input_shapes(proto: onnx.ModelProto, shapes: dict[str, list[int]]) -> None:
    """Write the static shapes into the graph and let go of the symbolic ones derived from it."""
    for value in _graph_inputs(proto):
        dimensions = value.type.tensor_type.shape
        del dimensions.dim[:]
        for size in shapes[value.name]:
            dimensions.dim.add().dim_value = size
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")


def name_nodes(proto: onnx.ModelProto) -> None:
    """Nodes without a name, or with one that is taken, are called after type and number."""
    taken: set[str] = set()
    for number, node in enumerate(proto.graph.node):
        if not node.name or node.name in taken:
            node.name = f"{node.name or node.op_type}_{number}"
        taken.add(node.name)


def _make_padding_explicit(proto: onnx.ModelProto, path: Path) -> None:
    """Replace `auto_pad` by `pads`: TVM would import it as an operator of its own."""
    nodes = [
        node
        for node in proto.graph.node
        if node.op_type in AUTOMATIC_PADDING_OPERATORS
        and _attribute(node, "auto_pad", b"NOTSET") not in (b"NOTSET", b"")
    ]
    if not nodes:
        return
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        raise ModelError(f"shapes do not fit: {last_line(error)}", where=str(path)) from None
    known = {v.name: v for v in [*inferred.graph.value_info, *inferred.graph.input]}
    constants = {tensor.name: list(tensor.dims) for tensor in proto.graph.initializer}
    for node in nodes:
        _resolve_padding(node, known, constants)


def _inferred_types(proto: onnx.ModelProto) -> dict[str, tuple[str, tuple[int, ...] | None]]:
    """dtype and, where it is known, shape of every tensor, as ONNX itself infers them."""
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError):
        return {}
    types: dict[str, tuple[str, tuple[int, ...] | None]] = {}
    for value in [*inferred.graph.value_info, *inferred.graph.output]:
        tensor = value.type.tensor_type
        if not tensor.elem_type:
            continue
        dtype = str(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        sizes = [d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim]
        known = tensor.HasField("shape") and min(sizes, default=0) >= 0
        types[value.name] = (dtype, tuple(sizes) if known else None)
    return types


def _resolve_padding(
    node: onnx.NodeProto,
    known: dict[str, onnx.ValueInfoProto],
    constants: dict[str, list[int]],
) -> None:
    """The formulas of the ONNX operator specification of Conv, for one node."""
    mode = _attribute(node, "auto_pad", b"NOTSET")
    kernel = list(_attribute(node, "kernel_shape", ()))
    if not kernel and node.op_type == "Conv":
        kernel = (constants.get(node.input[1]) or _dimensions(known.get(node.input[1])))[2:]
    sizes = _dimensions(known.get(node.input[0]))[2:]
    if not kernel or len(sizes) != len(kernel) or not all([*sizes, *kernel]):
        return
    strides = list(_attribute(node, "strides", [1] * len(kernel)))
    dilations = list(_attribute(node, "dilations", [1] * len(kernel)))
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


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    for attribute in node.attribute:
        if attribute.name == name:
            return onnx.helper.get_attribute_value(attribute)
    return default


class _NamingImporter(Importer):  # type: ignore[misc]
    """TVM's importer, one node at a time, so that names and errors keep their place."""

    def __init__(self, path: Path) -> None:
        super().__init__({}, "float32", keep_params_in_input=False, sanitize=False)
        self._path = path
        self._node_of_result: dict[str, str] = {}
        self._dequantized: set[str] = set()
        self._expected: dict[str, tuple[str, tuple[int, ...] | None]] = {}

    def run(self, proto: onnx.ModelProto, shapes: dict[str, list[int]]) -> Any:
        """The Relax module of a checked model; calls carry their node's name."""
        self._shape = dict(shapes)
        self._expected = _inferred_types(proto)
        opset = max(
            (o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), default=1
        )
        Importer.current = self
        try:
            with quiet():
                module = self.from_onnx(proto.graph, opset)
        except ModelError:
            raise
        except Exception as error:  # TVM raises whatever its converters stumble over
            raise ModelError(
                f"cannot be imported: {last_line(error)}", where=str(self._path)
            ) from error
        finally:
            Importer.current = None
        return self._label(module)

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        known = onnx_frontend._get_convert_map()
        for node in graph.node:
            if node.op_type not in known and node.op_type not in ("If", "Constant"):
                raise ModelError(
                    f"operator {node.op_type} of node {node.name!r} is not supported by TVM's "
                    "ONNX importer",
                    where=str(self._path),
                    fix="export the model without it",
                )

    def _construct_nodes(self, graph: onnx.GraphProto) -> None:
        for node in graph.node:
            single = onnx.GraphProto()
            single.node.append(node)
            try:
                if node.op_type == "DequantizeLinear":
                    self._dequantized.add(node.output[0])
                if not (self._construct_clip(node) or self._construct_pad(node)):
                    super()._construct_nodes(single)
                self._bind_result(node)
                self._check_types(node)
            except ModelError:
                raise
            except Exception as error:
                raise ModelError(
                    f"operator {node.op_type} of node {node.name!r} cannot be imported: "
                    f"{last_line(error)}",
                    where=str(self._path),
                ) from error

    def _construct_clip(self, node: onnx.NodeProto) -> bool:
        """Import a Clip of constant float bounds as one operator; TVM makes six of it."""
        if node.op_type != "Clip" or not node.input[0]:
            return False
        data = self._nodes[node.input[0]]
        bounds = [_attribute(node, "min", -np.inf), _attribute(node, "max", np.inf)]
        for position, name in enumerate(node.input[1:3]):
            if not name:
                continue
            array = tvm_api.constant_array(self._nodes[name])
            if array is None or array.size != 1:
                return False
            bounds[position] = float(array.reshape(()))
        if tvm_api.dtype_of(data) != "float32" or np.isnan(bounds).any():
            return False
        clip = tvm_api.relax.op.clip(data, *(tvm_api.float_value(bound) for bound in bounds))
        self._nodes[node.output[0]] = self.bb.normalize(clip)
        return True

    def _construct_pad(self, node: onnx.NodeProto) -> bool:
        """Import a Pad of a dequantized tensor as one operator; TVM makes a kernel of it."""
        mode = _attribute(node, "mode", b"constant")
        if node.op_type != "Pad" or node.input[0] not in self._dequantized or mode != b"constant":
            return False
        arrays = [tvm_api.constant_array(self._nodes[name]) for name in node.input[1:] if name]
        padded = constant_pad(self._nodes[node.input[0]], arrays)
        if padded is not None:
            self._nodes[node.output[0]] = self.bb.normalize(padded)
        return padded is not None

    def _bind_result(self, node: onnx.NodeProto) -> None:
        """Bind the node's first result to a variable that marks where the node ends."""
        first = node.output[0]
        value = self._nodes.get(first)
        if isinstance(value, tvm_api.Call):
            value = self.bb.emit(value, name_hint=f"result{len(self._node_of_result)}")
            self._nodes[first] = value
        if isinstance(value, tvm_api.Var):
            # An Identity yields what another node computed, which keeps its name.
            self._node_of_result.setdefault(str(value.name), node.name)

    def _check_types(self, node: onnx.NodeProto) -> None:
        """Refuse a node that TVM imports as another shape or dtype than ONNX defines."""
        for name in node.output:
            value = self._nodes.get(name)
            if name not in self._expected or not isinstance(value, tvm_api.relax.Expr):
                continue
            dtype, shape = self._expected[name]
            got_shape, got_dtype = tvm_api.static_shape(value), tvm_api.dtype_of(value)
            if got_shape is None or not got_dtype:
                continue
            if got_dtype != dtype or (shape is not None and got_shape != shape):
                wanted = f"{dtype}{list(shape)}" if shape is not None else dtype
                raise ModelError(
                    f"operator {node.op_type} of node {node.name!r} yields {wanted}, but TVM "
                    f"imports it as {got_dtype}{list(got_shape)}",
                    where=str(self._path),
                    fix="export the model with other attributes, or without the operator",
                )

    def _label(self, module: Any) -> Any:
        """Name each call after the node whose result follows it."""
        ends = self._node_of_result
        names: dict[str, str] = {}
        pending: list[str] = []
        for binding in tvm_api.bindings_of(module["main"]):
            pending.append(binding.var.name)
            if binding.var.name in ends:
                names.update(dict.fromkeys(pending, ends[binding.var.name]))
                pending = []
        return rename_operators(module, lambda b: names.get(b.var.name, b.var.name))
