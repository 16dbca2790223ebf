# SPDX-License-Identifier: Apache-2.0
"""Import of an ONNX graph as a Relax function, one node at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.frontend.model import on_page
from umakit.frontend.onnx import refusals
from umakit.frontend.onnx.attributes import DECISIONS
from umakit.frontend.onnx.checks import QUANTIZING, all_nodes
from umakit.frontend.onnx.operators import CONVERTERS
from umakit.frontend.onnx.refusals import (
    check_conditional,
    chosen,
    contradiction,
    not_supported,
    schema_of,
)
from umakit.frontend.onnx.registry import Node, opset_of
from umakit.frontend.onnx.shapes import SOURCES, Types, check_extents, computed, inferred_types
from umakit.frontend.relax_modules import name_calls
from umakit.frontend.simplify import quiet
from umakit.text.identities import SourceOperator
from umakit.tvm_api import IRModule, relax

onnx_frontend = tvm_api.onnx_frontend()
Importer: Any = onnx_frontend.ONNXGraphImporter


DATA_DEPENDENT = ("Compress", "NonMaxSuppression", "NonZero", "Unique")
"""Operators whose results' sizes depend on values."""


class NamingImporter(Importer):  # type: ignore[misc]
    """TVM's importer, run node by node so that every call keeps its node's name."""

    _nodes: dict[str, Any]

    def __init__(self, path: Path, sources: Mapping[str, SourceOperator]) -> None:
        super().__init__({}, "float32", keep_params_in_input=False, sanitize=False)
        self._path = path
        self._sources = sources
        self._node_of_result: dict[str, str] = {}
        self._dequantized: set[str] = set()
        self._sizes: set[str] = set()
        self._conditional = 0
        self._expected: Types = {}
        self._fault = ""

    def run(self, proto: onnx.ModelProto, shapes: dict[str, list[int]]) -> IRModule:
        """Return the Relax module of a checked model. Calls carry the names of their nodes."""
        self._shape = dict(shapes)
        self._expected, self._fault = inferred_types(proto)
        check_extents(proto, self._expected, self._path)
        opset = opset_of(proto)
        Importer.current = self
        try:
            with quiet():
                module = self.from_onnx(proto.graph, opset)
        except ModelError:
            tvm_api.abandon(self.bb)
            raise
        except Exception as error:  # TVM raises arbitrary exceptions
            tvm_api.abandon(self.bb)
            raise ModelError(
                "is put together in a way that is not supported",
                where=str(self._path),
                fix="export the model again, with fixed shapes and tensors as inputs and outputs",
            ) from error
        finally:
            Importer.current = None
        if self._fault:  # a converter's own refusal takes precedence
            raise on_page(contradiction(self._fault, str(self._path)), refusals.__name__)
        return name_calls(module, self._node_of_result)

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        for node in all_nodes(graph):
            if node.op_type not in DECISIONS:
                raise ModelError(
                    f"operator {node.op_type} of node {node.name!r} is not supported",
                    where=str(self._path),
                    fix="replace it in the model by operators that are",
                )

    def _construct_nodes(self, graph: onnx.GraphProto) -> None:
        for node in graph.node:
            try:
                source = self._sources.get(node.name)
                # Rewritten nodes take more types than nodes of a file.
                if source is not None and source.kind == node.op_type:
                    check_input_types(node, self._inputs_of(node), self.opset, str(self._path))
                if node.op_type == "DequantizeLinear":
                    self._dequantized.add(node.output[0])
                if self._conditional:
                    check_conditional(node, self._inputs_of(node), str(self._path))
                seen = self._seen(node)
                check_parameters(seen)
                if node.op_type == "If":
                    self._convert_if(node)
                elif not (self._compute(node) or self._convert(seen)):
                    single = onnx.GraphProto()
                    single.node.append(node)
                    super()._construct_nodes(single)
                if node.op_type in SOURCES:
                    self._sizes.update(node.output)
                self._bind_result(node)
                self._check_types(node)
            except ModelError:
                raise
            except Exception as error:
                refusal = (
                    contradiction(self._fault, str(self._path), self._inputs_of(node))
                    if f"op_type:{node.op_type}, node name: {node.name})" in self._fault
                    else not_supported(node, self._inputs_of(node), self.opset, str(self._path))
                )
                raise on_page(refusal, refusals.__name__) from error

    def _inputs_of(self, node: onnx.NodeProto) -> tuple[Any | None, ...]:
        return tuple(self._nodes.get(name) if name else None for name in node.input)

    def _convert_if(self, node: onnx.NodeProto) -> None:
        """Convert an If node: one branch for a constant condition, else both branches and a select.

        Generated C runs straight through, so it computes both branches. `check_conditional` ensures
        that neither branch can fail.
        """
        branches = {attribute.name: attribute.g for attribute in node.attribute}
        condition = self._nodes[node.input[0]]
        value = tvm_api.constant_array(condition)
        if value is not None and value.size == 1:
            results = self._branch(branches["then_branch" if value.item() else "else_branch"])
        else:
            self._conditional += 1
            then, otherwise = (
                self._branch(branches[f"{name}_branch"]) for name in ("then", "else")
            )
            self._conditional -= 1
            results = chosen(self.bb, node, condition, (then, otherwise), str(self._path))
        self._nodes.update(zip(node.output, results, strict=True))

    def _branch(self, graph: onnx.GraphProto) -> list[Any]:
        outside = dict(self._nodes)
        for tensor in graph.initializer:
            self._nodes[tensor.name] = relax.const(self._parse_array(tensor))
        self._construct_nodes(graph)
        results = [self._nodes[value.name] for value in graph.output]
        self._nodes = outside
        return results

    def _compute(self, node: onnx.NodeProto) -> bool:
        inputs = self._inputs_of(node)
        arrays = [None if each is None else tvm_api.constant_array(each) for each in inputs]
        if any((a is None) != (i is None) for a, i in zip(arrays, inputs, strict=True)):
            return False
        of_sizes = not self._sizes.isdisjoint(node.input)
        results = computed(node, arrays, self.opset, of_sizes=of_sizes)
        if results is None:
            return False
        names = [name for name in node.output if name]
        constants = [relax.const(result, str(result.dtype)) for result in results]
        self._nodes.update(zip(names, constants, strict=True))
        if of_sizes:
            self._sizes.update(names)
        return True

    def _seen(self, proto: onnx.NodeProto) -> Node:
        return Node(
            proto,
            self._inputs_of(proto),
            self.opset,
            self.bb,
            str(self._path),
            frozenset(self._dequantized),
        )

    def _convert(self, node: Node) -> bool:
        """Import a node by a registered converter. Return False for nodes left to TVM's
        importer."""
        converter = CONVERTERS.get(node.proto.op_type)
        result = None if converter is None else converter(node)
        if result is None:
            return False
        results = result if isinstance(result, list) else [result]
        for name, expression in zip(node.proto.output, results, strict=False):
            if name:
                self._nodes[name] = self.bb.normalize(expression)
        return True

    def _bind_result(self, node: onnx.NodeProto) -> None:
        first = node.output[0]
        value = self._nodes.get(first)
        if isinstance(value, tvm_api.Call):
            value = self.bb.emit(value, name_hint=f"result{len(self._node_of_result)}")
            self._nodes[first] = value
        if isinstance(value, tvm_api.Var):
            # An Identity yields the result of another node, which keeps its name.
            self._node_of_result.setdefault(str(value.name), node.name)

    def _check_types(self, node: onnx.NodeProto) -> None:
        for name in node.output:
            value = self._nodes.get(name)
            if name not in self._expected or not isinstance(value, relax.Expr):
                continue
            dtype, shape = self._expected[name]
            got_shape, got_dtype = tvm_api.static_shape(value), tvm_api.dtype_of(value)
            if got_shape is None and node.op_type in DATA_DEPENDENT:
                raise ModelError(
                    f"operator {node.op_type} of node {node.name!r} yields as many elements as "
                    "its input says at run time, but generated C has fixed sizes",
                    where=str(self._path),
                    fix="take it out of the network",
                )
            if got_shape is None or not got_dtype:
                continue
            if got_dtype != dtype or (shape is not None and got_shape != shape):
                wanted = f"{dtype}{list(shape)}" if shape is not None else dtype
                raise ModelError(
                    f"operator {node.op_type} of node {node.name!r} yields {wanted} by its "
                    f"specification, but {got_dtype}{list(got_shape)} here",
                    where=str(self._path),
                    fix="export the model with other attributes, or without the operator",
                )


NAMES = {"float32": "float", "float64": "double"}
"""Schema names of element types that differ from NumPy's names."""

FIRST_OPSET_OF_16_BITS = 21
"""First opset whose QuantizeLinear and DequantizeLinear have 16 bits; before, ONNX Runtime has its
own."""


def check_input_types(
    node: onnx.NodeProto, inputs: Sequence[Any | None], opset: int, file: str
) -> None:
    """Refuse a node whose input types, alone or in combination, violate the operator's schema.

    TVM's importer accepts such nodes: int8 sums, for example, would wrap around.

    Args:
        node: the operator.
        inputs: Relax expressions; None for omitted inputs.
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
        if not dtype or not tensors:  # converters check sequences
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
    if expression is None or not hasattr(getattr(expression, "ty", None), "shape"):
        return ""
    return tvm_api.dtype_of(expression)


# Parameters of ONNX nodes that contradict their inputs; the checker of onnx misses them.
#
# TVM would broadcast a parameter that is too small, or ignore an attribute.

PER_CHANNEL = {"InstanceNormalization": (1, 2), "BatchNormalization": (1, 2, 3, 4)}
"""Positions of inputs that have a value for each channel of input 0, by operator."""

FIX = "correct it, or export the model again"


def check_parameters(node: Node) -> None:
    """Refuse axes, windows, biases, parameters and scales that do not fit the node's other inputs.

    Raises:
        ModelError: names operator, node, the contradiction and the expected size.
    """
    kind, shape = node.proto.op_type, node.static_shape(0)
    if shape is not None and kind not in QUANTIZING:  # one scale for all channels has no axis
        _check_axes(node, len(shape))
    if kind in ("Conv", "ConvTranspose"):
        _check_window(node)
    elif kind in PER_CHANNEL and shape is not None and len(shape) > 1:
        for position in PER_CHANNEL[kind]:
            _check_count(node, position, shape[1])
    elif kind == "LayerNormalization" and shape is not None:
        _check_normalization(node, shape)
    elif kind in QUANTIZING and shape is not None:
        _check_scales(node, shape)


def _check_axes(node: Node, rank: int) -> None:
    schema = schema_of(node.proto, node.opset)
    formals = [] if schema is None else [formal.name for formal in schema.inputs]
    given = {name: node.attribute(name, ()) for name in ("axis", "axes", "perm")}
    given |= {
        name: tvm_api.constant_array(expression)
        for name, expression in zip(formals, node.inputs, strict=False)
        if name in given and expression is not None
    }
    of_result = {"OneHot": 1, "Unsqueeze": np.size(given["axes"])}.get(node.proto.op_type, 0)
    last = rank + of_result - (node.proto.op_type != "Flatten")
    for name, axes in given.items():
        for axis in np.ravel([] if axes is None else axes):
            if not -rank - of_result <= axis <= last:
                whose = "result" if of_result else "input"
                raise node.refuse(
                    f"has {name}={axis}, but its {whose} has {rank + of_result} dimensions", FIX
                )


def _check_window(node: Node) -> None:
    weights = node.static_shape(1)
    if weights is None or len(weights) < 3:
        return
    window = list(node.attribute("kernel_shape") or weights[2:])
    if window != list(weights[2:]):
        raise node.refuse(f"has kernel_shape={window}, but weights of {list(weights)}", FIX)
    grouped, shape = node.proto.op_type == "ConvTranspose", node.static_shape(0)
    groups = int(node.attribute("group", 1))
    channels = weights[0] if grouped else weights[1] * groups
    if shape is not None and (shape[1] != channels or weights[0] % max(groups, 1)):
        raise node.refuse(
            f"has an input of {shape[1]} channels, weights of {list(weights)} and group={groups}, "
            "which do not fit",
            FIX,
        )
    _check_count(node, 2, weights[1] * groups if grouped else weights[0])


def _check_normalization(node: Node, shape: tuple[int, ...]) -> None:
    for position in (1, 2):
        given = node.static_shape(position)
        if given is None:
            continue
        sizes = zip(given[::-1], shape[::-1], strict=False)
        if len(given) > len(shape) or any(one not in (1, size) for one, size in sizes):
            raise node.refuse(
                f"has an input {position} of shape {list(given)}, which does not fit its input of "
                f"shape {list(shape)}",
                FIX,
            )


def _check_count(node: Node, position: int, count: int) -> None:
    shape = node.static_shape(position)
    if shape is not None and shape != (count,):
        raise node.refuse(
            f"has an input {position} of shape {list(shape)}, where it needs {count} values", FIX
        )


def _check_scales(node: Node, shape: tuple[int, ...]) -> None:
    scales, zeros = node.static_shape(1), node.static_shape(2)
    integers = {dtype for dtype in (node.dtype(0), node.dtype(2)) if "int" in dtype}
    if node.proto.op_type == "DequantizeLinear" and len(integers) > 1:
        raise node.refuse(
            f"has a zero point of type {node.dtype(2)}, but an input of type {node.dtype(0)}", FIX
        )
    if scales is None or len(scales) != 1 or scales == (1,):
        return
    axis = int(node.attribute("axis", 1))
    if not -len(shape) <= axis < len(shape) or shape[axis] != scales[0]:
        raise node.refuse(
            f"has {scales[0]} scales along axis {axis}, but its input has the shape {list(shape)}",
            FIX,
        )
    if zeros not in (None, scales):
        raise node.refuse(f"has {scales[0]} scales, but zero points {list(zeros or ())}", FIX)
