# SPDX-License-Identifier: Apache-2.0
"""Identities of layers: places of operators in the file, the same for every machine and report.

Oracles are the model files, as the packages onnx and tflite read them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tflite
from integer_backend import DRIVERS, Npu
from onnx import TensorProto, helper
from qdq import Qdq
from tflite_networks import trained_model

import umakit
from umakit import patterns, tvm_api
from umakit.frontend import import_model
from umakit.library.identities import cpu_step_kind, identities_of
from umakit.library.metadata import load_metadata
from umakit.text.identities import (
    LayerIdentity,
    NamedLayer,
    SourceOperator,
    layer_identities,
    matched_layers,
)

DIGITS = Path(__file__).parents[1] / "examples" / "digits"


def identities(folder: Path, model: Any, *backends: Any) -> list[LayerIdentity]:
    """Those in the metadata of a library, each unique."""
    found = [each if isinstance(each, umakit.UMABackend) else umakit.find_backend(each)
             for each in backends]  # fmt: skip
    umakit.compile_model(model, found, folder)
    layers = identities_of(load_metadata(folder)["umakit"])
    assert len({each.key for each in layers}) == len(layers)
    assert len({(each.role, each.operators, each.part) for each in layers}) == len(layers)
    return layers


def test_operators_have_their_places_in_the_file(tmp_path: Path) -> None:
    path = DIGITS / "digits_int8.onnx"
    nodes = list(onnx.load(path).graph.node)
    seen = []
    for backend in ("strawberry_accelerator", "chocolate_accelerator"):
        layers = identities(tmp_path / backend, path, backend)
        for layer in layers:
            for operator in layer.operators:
                assert operator.index is not None
                node = nodes[operator.index]
                assert (operator.given, operator.kind) == (node.name, node.op_type)
        seen.append(layers)
    assert seen[0] == seen[1]
    assert matched_layers(*seen) == [((number,), (number,)) for number in range(8)]


def test_layers_that_one_machine_splits_are_matched_with_the_whole(tmp_path: Path) -> None:
    path = DIGITS / "digits.onnx"
    split = identities(tmp_path / "split", path, "vanilla_accelerator")
    whole = identities(tmp_path / "whole", path)
    names = [
        ([split[number].key for number in ones], [whole[number].key for number in others])
        for ones, others in matched_layers(split, whole)
    ]
    assert (["conv1", "conv1 + relu1"], ["conv1 + relu1"]) in names
    assert (["pool1"], ["pool1"]) in names and (["dense"], ["dense"]) in names
    assert sum(len(ones) for ones, _ in names) == len(split)
    assert sum(len(others) for _, others in names) == len(whole)


def chain(*names: str) -> onnx.ModelProto:
    """Products of matrices one after the other, whose nodes have these names."""
    nodes, constants = [], []
    for number, name in enumerate(names):
        weights = np.full((4, 4), number + 1, np.float32)
        constants.append(onnx.numpy_helper.from_array(weights, f"w{number}"))
        nodes.append(helper.make_node("MatMul", [f"x{number}", f"w{number}"], [f"x{number + 1}"],
                                      name))  # fmt: skip
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4])
        for name in ("x0", f"x{len(names)}")
    ]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def test_names_that_are_missing_or_equal_are_told_apart(tmp_path: Path) -> None:
    given = ["a_2", "a", "a", "", "MatMul_5", "", "a", "a_6"]
    onnx.save(chain(*given), tmp_path / "chain.onnx")
    layers = identities(tmp_path / "library", tmp_path / "chain.onnx")
    operators = [operator for layer in layers for operator in layer.operators]
    assert [each.index for each in operators] == list(range(len(given)))
    assert [each.given for each in operators] == given
    names = [each.name for each in operators]
    assert len(set(names)) == len(names)
    assert all(each.name == each.given for each in operators if given.count(each.given) == 1
               and each.given)  # fmt: skip


def test_an_inserted_operator_moves_places_and_keeps_names(tmp_path: Path) -> None:
    onnx.save(chain("one", "two", "three"), tmp_path / "before.onnx")
    onnx.save(chain("one", "new", "two", "three"), tmp_path / "after.onnx")
    before = identities(tmp_path / "old", tmp_path / "before.onnx")
    after = identities(tmp_path / "new", tmp_path / "after.onnx")
    assert [each.operators[0].index for each in after] == [0, 1, 2, 3]
    assert matched_layers(before, after) == [
        ((0,), (0,)), ((1,), (2,)), ((2,), (3,)), ((), (1,)),
    ]  # fmt: skip


def test_operators_of_tflite_are_those_of_the_file() -> None:
    path = trained_model("kws_ref_model.tflite")
    graph = tflite.Model.GetRootAsModel(path.read_bytes(), 0).Subgraphs(0)
    results = [
        graph.Tensors(graph.Operators(number).Outputs(0)).Name().decode()
        for number in range(graph.OperatorsLength())
    ]
    sources = import_model(path).sources.values()
    assert [each.index for each in sources] == list(range(len(results)))
    assert [each.given for each in sources] == results


def test_variables_of_relax_of_one_name_are_told_apart() -> None:
    relax, kind = tvm_api.relax, tvm_api.tensor_type((4,), "float32")
    x, one, two = relax.Var("x", kind), relax.DataflowVar("same", kind), relax.Var("same", kind)
    bindings = [
        relax.VarBinding(one, relax.op.nn.relu(x)),
        relax.VarBinding(two, relax.op.negative(one)),
    ]
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], two)
    function = relax.Function([x], body, kind, True).with_attr("global_symbol", "main")
    sources = import_model(tvm_api.IRModule({"main": function})).sources
    assert list(sources) == ["same", "same_2"]
    assert [(each.given, each.index) for each in sources.values()] == [("same", 0), ("same", 1)]
    assert [each.kind for each in sources.values()] == ["nn.relu", "negative"]


def test_transposes_between_layouts_are_layout_changes(tmp_path: Path) -> None:
    """One that is alone, and one that is computed together with an operator."""
    npu = Npu(tmp_path, [patterns.qconv2d(layouts="NHWC", rounding="ort")],
              {"qconv2d": DRIVERS["qconv2d"]})  # fmt: skip
    qdq = Qdq("int8", 1)
    weights, _ = qdq.weights((4, 3, 3, 3), "int8", per_channel=False)
    result = qdq.quantize(qdq.node("Conv", qdq.input((1, 3, 6, 6), 0.05), weights), 0.05)
    model = qdq.model(result)
    del model.graph.node[-1], model.graph.output[0]
    ending = helper.make_tensor_value_info(result, TensorProto.INT8, [1, 4, 4, 4])
    model.graph.output.append(ending)
    onnx.save(model, tmp_path / "alone.onnx")
    layers = identities(tmp_path / "alone", tmp_path / "alone.onnx", npu)
    assert [each.role for each in layers[1:]] == ["operators", "layout change"]
    assert layers[2].key == f"{layers[1].key} transposed"
    (operator,) = layers[2].operators
    assert operator == layers[1].operators[0] and operator.kind == "Conv"
    identities(tmp_path / "digits", DIGITS / "digits_int8.onnx", npu)
    view = load_metadata(tmp_path / "digits")["umakit"]
    kinds = [cpu_step_kind(layer, view["operators"]) for layer in view["layers"]
             if layer["where"] == "cpu"]  # fmt: skip
    assert kinds == ["quantize", "max_pool2d", "layout change + reshape", "dense", "dequantize"]


def test_a_copy_has_no_operators(tmp_path: Path) -> None:
    model = chain("one")
    model.graph.output.append(helper.make_tensor_value_info("x0", TensorProto.FLOAT, [1, 4]))
    model.graph.node.append(helper.make_node("Identity", ["x1"], ["again"], "again"))
    model.graph.output.append(helper.make_tensor_value_info("again", TensorProto.FLOAT, [1, 4]))
    del model.graph.output[1]
    onnx.save(model, tmp_path / "copy.onnx")
    layers = identities(tmp_path / "library", tmp_path / "copy.onnx")
    assert [(each.key, each.role) for each in layers] == [
        ("one", "operators"), ("copy to again", "copy"),
    ]  # fmt: skip
    assert layers[1].operators == ()


def test_keys_stay_unique_whatever_names_are() -> None:
    labels = ["a", "a #2", "a", "a", "a + b", "a + b", ""]
    layers = [NamedLayer(label, "operators", ("a",)) for label in labels]
    found = layer_identities(layers, {"a": SourceOperator("a", "a", 5)})
    assert len({each.key for each in found}) == len(labels)
    assert [each.part for each in found] == list(range(len(labels)))
    assert LayerIdentity.from_json(found[2].as_json()) == found[2]
