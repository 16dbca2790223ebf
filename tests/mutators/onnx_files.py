# SPDX-License-Identifier: Apache-2.0
"""ONNX files: changed bytes, fields of any message, and graphs."""

from __future__ import annotations

import copy
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError
from networks import onnx_runtime
from onnx import TensorProto, helper, numpy_helper
from onnx_node_tests import collected, with_constants

from mutators.base import EXTREMES, REALS, TEXTS, mutate_bytes
from mutators.models import Arrays, compare_network, read_network

EXAMPLES = Path(__file__).parents[2] / "examples" / "digits"
OPERATORS = (
    "Relu Sigmoid Tanh Add Mul Sub Div Conv Gemm MatMul Reshape Flatten Transpose Concat Split "
    "Slice Pad Gather Softmax MaxPool AveragePool GlobalAveragePool BatchNormalization ReduceMean "
    "Clip Squeeze Unsqueeze Resize Identity Cast Constant If Loop Where Expand QuantizeLinear "
    "Shape DequantizeLinear ArgMax LayerNormalization GroupNormalization TopK Einsum Dropout Tile"
).split()


def _model(nodes: list[Any], inputs: dict[str, Any], outputs: list[str], constants: dict[str, Any]) -> Any:  # fmt: skip # noqa: E501
    """A checked model; types of outputs are inferred."""
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    onnx.checker.check_model(model)
    return model


def _floats(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def convolutions() -> Any:
    """A small image network."""
    node = helper.make_node
    return _model(
        [
            node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1]),
            node("BatchNormalization", ["c", "g", "h", "m", "v"], ["n"], "norm"),
            node("Relu", ["n"], ["r"], "relu"),
            node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
            node("Pad", ["p", "pads", "zero"], ["q"], "pad"),
            node("Flatten", ["q"], ["f"], "flatten"),
            node("Gemm", ["f", "k", "l"], ["e"], "dense", transB=1),
            node("Softmax", ["e"], ["y"], "softmax", axis=-1),
        ],
        {"x": [1, 2, 6, 6]}, ["y"],
        {"w": _floats(3, 2, 3, 3), "b": _floats(3), "g": _floats(3), "h": _floats(3),
         "m": _floats(3), "v": np.abs(_floats(3)) + 1, "k": _floats(4, 48), "l": _floats(4),
         "pads": np.array([0, 0, 1, 0, 0, 0, 0, 1]), "zero": np.float32(0)},
    )  # fmt: skip


def movements() -> Any:
    """Shapes, indices, a branch."""
    node, value = helper.make_node, helper.make_tensor_value_info
    branches = [
        helper.make_graph([node(kind, ["t"], [out], f"in_{kind}")], kind, [],
                          [value(out, TensorProto.FLOAT, [4, 3])])
        for kind, out in (("Neg", "then"), ("Abs", "else"))
    ]  # fmt: skip
    return _model(
        [
            node("Transpose", ["x"], ["t0"], "transpose", perm=[1, 0]),
            node("Reshape", ["t0", "shape"], ["t"], "reshape"),
            node("If", ["yes"], ["i"], "if", then_branch=branches[0], else_branch=branches[1]),
            node("Slice", ["i", "starts", "ends", "axes"], ["s"], "slice"),
            node("Gather", ["s", "indices"], ["g"], "gather", axis=0),
            node("Split", ["t", "sizes"], ["p1", "p2"], "split", axis=0),
            node("Concat", ["g", "p1", "p2"], ["k"], "concat", axis=0),
            node("Unsqueeze", ["k", "zero"], ["u"], "unsqueeze"),
            node("ReduceMean", ["u"], ["m"], "mean", axes=[2], keepdims=0),
            node("Cast", ["m"], ["y"], "cast", to=TensorProto.FLOAT),
            node("MatMul", ["k", "k2"], ["z0"], "matmul"),
            node("LayerNormalization", ["z0", "scale"], ["z"], "layer_norm"),
        ],
        {"x": [3, 4]}, ["y", "z"],
        {"shape": np.array([4, 3]), "yes": np.array(True), "starts": np.array([0]),
         "ends": np.array([3]), "axes": np.array([0]), "indices": np.array([2, 0]),
         "sizes": np.array([1, 3]), "zero": np.array([0]), "k2": _floats(3, 5),
         "scale": _floats(5)},
    )  # fmt: skip


class OnnxFiles:
    name = "onnx"
    suffix = ".onnx"

    def prepare(self, folder: Path) -> None:
        files = [EXAMPLES / "digits_int8.onnx"]
        self._models = [convolutions(), movements(), convolutions(), movements()]
        self._models += [onnx.load(str(path)) for path in files]

    def healthy(self) -> list[bytes]:
        """These, and ONNX's node tests of one of eight modules, with constants."""
        if not hasattr(self, "_healthy"):
            cases = [case for case in collected(8) if case.data_sets]
            models = [with_constants(c.model, c.data_sets[0][0]) or c.model for c in cases]
            self._healthy = [each.SerializeToString() for each in (*self._models[2:], *models)]
        return self._healthy

    def mutate(self, chance: Random) -> bytes:
        model = copy.deepcopy(chance.choice(self._models))
        kind = chance.random()
        if kind < 0.25:
            return mutate_bytes(chance, model.SerializeToString())
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            (_change_field if kind < 0.6 else _change_graph)(chance, model)
        try:
            return bytes(model.SerializePartialToString())
        except (EncodeError, ValueError):
            return b""

    def read(self, path: Path, thorough: bool) -> None:
        read_network(path, thorough)

    def compare(self, path: Path) -> str:
        return compare_network(path, _runtime, 1e-4, 1)


def _runtime(path: Path, arrays: Arrays, model: Any) -> Arrays:
    proto = onnx.load(str(path))
    return onnx_runtime(proto, arrays)


# --- fields --------------------------------------------------------------------------------------


def _messages(message: Any) -> list[Any]:
    found = [message]
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                found += _messages(inner)
    return found


def _change_field(chance: Random, model: Any) -> None:
    """Another value for a field of any message, which may have had none."""
    message = chance.choice(_messages(model))
    present = [field for field, _ in message.ListFields()]
    fields = present if present and chance.random() < 0.8 else list(message.DESCRIPTOR.fields)
    field = chance.choice(fields)
    if not field.is_repeated:
        if chance.random() < 0.15:
            message.ClearField(field.name)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            same = [m for m in _messages(model) if m.DESCRIPTOR is field.message_type]
            getattr(message, field.name).CopyFrom(
                copy.deepcopy(chance.choice(same or [field.message_type._concrete_class()]))
            )
        else:
            _assign(
                lambda v: setattr(message, field.name, v),
                chance,
                field,
                getattr(message, field.name),
            )
        return
    values = getattr(message, field.name)
    place = chance.randrange(len(values)) if len(values) else -1
    what = chance.random()
    if place < 0 or what < 0.2:
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            same = [m for m in _messages(model) if m.DESCRIPTOR is field.message_type]
            values.add().CopyFrom(copy.deepcopy(chance.choice(same))) if same else values.add()
        else:
            _assign(values.append, chance, field, None)
    elif what < 0.4:
        del values[place]
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        values[place].CopyFrom(copy.deepcopy(chance.choice(list(values))))
    else:
        _assign(lambda v: values.__setitem__(place, v), chance, field, values[place])


def _assign(setter: Any, chance: Random, field: Any, old: Any) -> None:
    """Give a field another value of its type; enumerations take only those that they know."""
    kinds = FieldDescriptor
    if field.type == kinds.TYPE_STRING:
        value: Any = chance.choice((*TEXTS, (old or "") + "x"))
    elif field.type == kinds.TYPE_BYTES:
        value = mutate_bytes(chance, old) if old else b"\xff\x00x"
    elif field.type in (kinds.TYPE_FLOAT, kinds.TYPE_DOUBLE):
        value = chance.choice(REALS)
    elif field.type == kinds.TYPE_ENUM:
        value = chance.choice(field.enum_type.values).number
    else:
        value = chance.choice((*EXTREMES, (old or 0) + 1, (old or 0) - 1, -(old or 0)))
    try:
        setter(value)
    except (ValueError, TypeError):  # out of the range of the field
        setter(1)


# --- graphs --------------------------------------------------------------------------------------


def _change_graph(chance: Random, model: Any) -> None:
    graph = model.graph
    names = [n for node in graph.node for n in (*node.input, *node.output)]
    names += [t.name for t in graph.initializer] or ["x"]
    if not graph.node:
        return
    node = chance.choice(graph.node)
    match chance.randrange(13):
        case 0 if node.input:
            node.input[chance.randrange(len(node.input))] = chance.choice(names)
        case 1 if node.output:
            node.output[chance.randrange(len(node.output))] = chance.choice(names)
        case 2:
            graph.node.remove(node)
        case 3:
            graph.node.add().CopyFrom(copy.deepcopy(node))
        case 4:
            copied = [copy.deepcopy(item) for item in graph.node]
            chance.shuffle(copied)
            del graph.node[:]
            graph.node.extend(copied)
        case 5:
            node.op_type = chance.choice(OPERATORS)
        case 6 if graph.initializer:
            graph.initializer.remove(chance.choice(graph.initializer))
        case 7 if graph.initializer:
            _change_constant(chance, chance.choice(graph.initializer))
        case 8:
            model.opset_import[0].version = chance.choice((-1, 0, 1, 5, 6, 9, 11, 13, 18, 21, 99))
        case 9 if graph.input:
            shape = chance.choice(graph.input).type.tensor_type.shape
            if shape.dim:
                shape.dim[chance.randrange(len(shape.dim))].dim_value = chance.choice(EXTREMES[:-1])
        case 10 if graph.input:
            chance.choice(graph.input).type.tensor_type.elem_type = chance.randrange(30)
        case 11:
            other = chance.choice(graph.node)
            for attribute in other.attribute[:1]:
                node.attribute.add().CopyFrom(copy.deepcopy(attribute))
        case _:
            if chance.random() < 0.5 and node.input:
                del node.input[-1]
            else:
                node.input.append(chance.choice(("", *names)))


def _change_constant(chance: Random, tensor: Any) -> None:
    """Another shape, dtype or other values of the same size."""
    try:
        array = numpy_helper.to_array(tensor)
        match chance.randrange(5):
            case 0:
                array = array.reshape(-1)
            case 1:
                array = array.astype(
                    chance.choice(("float32", "int64", "int32", "uint8", "float16"))
                )
            case 2:
                array = array[..., :-1]
            case 3:
                array = array.copy()
                array.reshape(-1)[:1] = chance.choice((0, -1, 100, 2**20))
            case _:
                array = np.stack([array, array])
    except (ValueError, TypeError, IndexError, OverflowError, DecodeError):
        return
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))
