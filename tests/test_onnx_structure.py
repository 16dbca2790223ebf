# SPDX-License-Identifier: Apache-2.0
"""ONNX graphs of unusual structure: conditionals, constants, no inputs, missing names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from networks import Array, assert_close, onnx_runtime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import umakit
from umakit.errors import ModelError

FLOAT = TensorProto.FLOAT


def graph_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[int]],
    outputs: dict[str, list[int] | None],
    *,
    opset: int = 17,
    bools: dict[str, list[int]] | None = None,
    **constants: Any,
) -> onnx.ModelProto:
    """A model of float inputs and outputs with initializers by name."""
    values = [helper.make_tensor_value_info(n, FLOAT, shape) for n, shape in inputs.items()]
    values += [
        helper.make_tensor_value_info(n, TensorProto.BOOL, s) for n, s in (bools or {}).items()
    ]
    results = [helper.make_tensor_value_info(n, FLOAT, shape) for n, shape in outputs.items()]
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "g", values, results, tensors)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8 if opset < 21 else 10)


def run(model: onnx.ModelProto, inputs: dict[str, Array], folder: Path) -> dict[str, Array]:
    path = folder / "model.onnx"
    onnx.save(model, str(path))
    library = umakit.compile_model(path, [], folder / "library")
    return umakit.run_library(library.path, inputs).outputs


def check(
    model: onnx.ModelProto, inputs: dict[str, Array], folder: Path, *, reference: bool = False
) -> None:
    if reference:
        names = [value.name for value in model.graph.output]
        wanted = dict(zip(names, ReferenceEvaluator(model).run(None, inputs), strict=True))
    else:
        wanted = onnx_runtime(model, inputs)
    for name, got in run(model, inputs, folder).items():
        assert_close(got, np.asarray(wanted[name]))


def refusal(model: onnx.ModelProto, folder: Path) -> str:
    path = folder / "model.onnx"
    onnx.save(model, str(path))
    with pytest.raises(ModelError) as caught:
        umakit.import_model(path)
    message = str(caught.value)
    assert str(path) in message
    return message


def normal(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("float32")


# --- If -----------------------------------------------------------------------------------------


def branch(
    nodes: list[onnx.NodeProto], *outputs: str, shape: list[int] | None = None, **constants: Any
) -> onnx.GraphProto:
    results = [helper.make_tensor_value_info(name, FLOAT, shape or [4]) for name in outputs]
    tensors = [numpy_helper.from_array(np.asarray(v, "f4"), n) for n, v in constants.items()]
    return helper.make_graph(nodes, "branch", [], results, tensors)


def conditional() -> onnx.NodeProto:
    """Two results, outer tensors, initializers inside, and an If inside an If."""
    inner = helper.make_node(
        "If", ["d"], ["deep"],
        then_branch=branch([helper.make_node("Add", ["x", "one"], ["p"])], "p", one=[1.0]),
        else_branch=branch([helper.make_node("Mul", ["x", "y"], ["q"])], "q"),
    )  # fmt: skip
    then = branch(
        [inner, helper.make_node("Sub", ["deep", "k"], ["a"]),
         helper.make_node("Abs", ["y"], ["b"])],
        "a", "b", k=[0.5],
    )  # fmt: skip
    otherwise = branch(
        [helper.make_node("Neg", ["x"], ["e"]), helper.make_node("Relu", ["w"], ["f"])], "e", "f"
    )
    return helper.make_node("If", ["c"], ["r", "s"], then_branch=then, else_branch=otherwise)


@pytest.mark.parametrize("shape", [[], [1]])
def test_both_branches_where_the_condition_is_an_input(shape: list[int], tmp_path: Path) -> None:
    model = graph_of(
        [conditional()], {"x": [4], "y": [4]}, {"r": [4], "s": [4]},
        bools={"c": shape, "d": shape}, w=normal(4),
    )  # fmt: skip
    path = tmp_path / "model.onnx"
    onnx.save(model, str(path))
    library = umakit.compile_model(path, [], tmp_path / "library")
    for c in (False, True):
        for d in (False, True):
            inputs = {"x": normal(4), "y": normal(4)[::-1].copy()}
            inputs |= {"c": np.full(shape, c), "d": np.full(shape, d)}
            wanted = onnx_runtime(model, inputs)
            for name, got in umakit.run_library(library.path, inputs).outputs.items():
                assert_close(got, wanted[name])


@pytest.mark.parametrize("condition", [False, True])
def test_one_branch_where_the_condition_is_constant(condition: bool, tmp_path: Path) -> None:
    """The other one may have another shape and what could fail."""
    fails = branch([helper.make_node("Reshape", ["x", "sizes"], ["z"])], "z", shape=[2, 2])
    works = branch([helper.make_node("Neg", ["x"], ["n"])], "n")
    branches = {"then_branch": works, "else_branch": fails}
    if not condition:
        branches = {"then_branch": fails, "else_branch": works}
    node = helper.make_node("If", ["c"], ["r"], **branches)
    model = graph_of([node], {"x": [4]}, {"r": None}, c=np.array(condition), sizes=np.array([2, 2]))
    np.testing.assert_array_equal(run(model, {"x": normal(4)}, tmp_path)["r"], -normal(4))


def test_branches_that_cannot_both_be_computed_are_refused(tmp_path: Path) -> None:
    reshaped = branch([helper.make_node("Reshape", ["x", "sizes"], ["z"])], "z", shape=[2, 2])
    plain = branch([helper.make_node("Neg", ["x"], ["n"])], "n")
    node = helper.make_node("If", ["c"], ["r"], then_branch=reshaped, else_branch=plain)
    model = graph_of([node], {"x": [4]}, {"r": None}, bools={"c": []}, sizes=np.array([2, 2]))
    assert "float32[2, 2] in one branch and float32[4] in the other" in refusal(model, tmp_path)

    divides = branch(
        [
            helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT32),
            helper.make_node("Div", ["i", "i"], ["j"], name="division"),
            helper.make_node("Cast", ["j"], ["z"], to=FLOAT),
        ],
        "z",
    )
    node = helper.make_node("If", ["c"], ["r"], then_branch=divides, else_branch=plain)
    model = graph_of([node], {"x": [4]}, {"r": [4]}, bools={"c": []})
    assert "'division' divides integers in a branch" in refusal(model, tmp_path)


# --- Constants and graphs without inputs ----------------------------------------------------------


def test_forms_of_constants(tmp_path: Path) -> None:
    nodes = []
    forms: list[tuple[dict[str, Any], str]] = [
        ({"value_float": 2.5}, "Add"),
        ({"value_floats": [1.0, 2.0, 3.0]}, "Add"),
        ({"value_int": 1}, "Gather"),
        ({"value_ints": [3, 4]}, "Reshape"),
        ({"value": numpy_helper.from_array(np.float32(3))}, "Mul"),
    ]
    for number, (attributes, operator) in enumerate(forms):
        nodes.append(helper.make_node("Constant", [], [f"c{number}"], **attributes))
        nodes.append(helper.make_node(operator, ["x", f"c{number}"], [f"y{number}"]))
    results: dict[str, list[int] | None] = {f"y{number}": None for number in range(len(forms))}
    check(graph_of(nodes, {"x": [4, 3]}, results), {"x": normal(4, 3)}, tmp_path)


@pytest.mark.parametrize("linear", [False, True])
def test_sparse_constant(linear: bool, tmp_path: Path) -> None:
    values = numpy_helper.from_array(np.array([1.5, -2.0], "f4"), "values")
    places = np.array([1, 11], "i8") if linear else np.array([[0, 1], [3, 2]], "i8")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(places, "i"), [4, 3])
    nodes = [
        helper.make_node("Constant", [], ["c"], sparse_value=sparse),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    dense = np.zeros((4, 3), "f4")
    dense[0, 1], dense[3, 2] = 1.5, -2
    got = run(graph_of(nodes, {"x": [4, 3]}, {"y": [4, 3]}), {"x": normal(4, 3)}, tmp_path)
    np.testing.assert_array_equal(got["y"], normal(4, 3) + dense)


def test_a_network_without_inputs(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["w"], ["a"]),
        helper.make_node("Add", ["a", "w"], ["y"]),
        helper.make_node("Constant", [], ["z"], value_floats=[1.0, 2.0]),
    ]
    check(graph_of(nodes, {}, {"y": [3, 4], "z": [2]}, w=normal(3, 4)), {}, tmp_path)


def test_outputs_that_are_inputs_or_initializers(tmp_path: Path) -> None:
    model = graph_of(
        [helper.make_node("Relu", ["x"], ["y"])], {"x": [3]}, {"y": [3], "x": [3], "w": [2]},
        w=normal(2),
    )  # fmt: skip
    check(model, {"x": normal(3)}, tmp_path)


def test_output_without_a_shape(tmp_path: Path) -> None:
    model = graph_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [3]}, {"y": None})
    check(model, {"x": normal(3)}, tmp_path)


# --- What no graph may have ----------------------------------------------------------------------


def test_missing_inputs_are_refused(tmp_path: Path) -> None:
    """Of every operator by its schema; TVM reads a null pointer for a Concat without one."""
    concat = graph_of(
        [helper.make_node("Concat", ["x", ""], ["y"], "joined", axis=0)], {"x": [2]}, {"y": [2]}
    )
    assert "operator Concat of node 'joined' lacks its input" in refusal(concat, tmp_path)
    conv = graph_of([helper.make_node("Conv", ["x", ""], ["y"])], {"x": [1, 1, 3, 3]}, {"y": None})
    assert "lacks its input W" in refusal(conv, tmp_path)
    # An optional one may be left out.
    clip = graph_of([helper.make_node("Clip", ["x", "", "m"], ["y"])], {"x": [3]}, {"y": [3]},
                    m=np.float32(0.5))  # fmt: skip
    check(clip, {"x": normal(3)}, tmp_path)


def test_outputs_without_a_source_are_refused(tmp_path: Path) -> None:
    model = graph_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [3]}, {"y": [3], "z": [3]})
    assert "'z'" in refusal(model, tmp_path)
    twice = graph_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [3]}, {"y": [3]})
    twice.graph.output.append(twice.graph.output[0])
    assert "'y'" in refusal(twice, tmp_path)
    again = graph_of([helper.make_node("Relu", ["x"], ["y"])] * 2, {"x": [3]}, {"y": [3]})
    assert "SSA" in refusal(again, tmp_path)


@pytest.mark.parametrize("number", [0, 99])
def test_unknown_element_types_are_refused(number: int, tmp_path: Path) -> None:
    model = graph_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [3]}, {"y": [3]})
    model.graph.input[0].type.tensor_type.elem_type = number
    assert "'x'" in refusal(model, tmp_path)


@pytest.mark.parametrize(
    ("opset", "attributes", "sizes"),
    [(17, {}, [2, 3]), (17, {}, [7, -1]), (11, {"split": [2, 3]}, None), (17, {}, None),
     (18, {"num_outputs": 3}, None), (17, {"axis": 3}, None)],
)  # fmt: skip
def test_split_that_does_not_add_up(
    opset: int, attributes: dict[str, Any], sizes: list[int] | None, tmp_path: Path
) -> None:
    constants = {} if sizes is None else {"sizes": np.array(sizes)}
    axis = attributes.get("axis", 0)
    width = 6 if sizes or opset == 11 else 7
    node = helper.make_node(
        "Split", ["x", *constants], ["y", "z"], "parts", **{**attributes, "axis": axis}
    )
    model = graph_of([node], {"x": [width, 2]}, {"y": None, "z": None}, opset=opset, **constants)
    assert "Split" in refusal(model, tmp_path)


def test_split_of_uneven_parts(tmp_path: Path) -> None:
    node = helper.make_node("Split", ["x"], ["a", "b", "c"], num_outputs=3)
    model = graph_of([node], {"x": [7, 2]}, {"a": None, "b": None, "c": None}, opset=18)
    check(model, {"x": normal(7, 2)}, tmp_path)


# --- Operators with structure ---------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_space_to_depth_and_back(mode: str, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("SpaceToDepth", ["x"], ["y"], blocksize=2, mode=mode),
        helper.make_node("DepthToSpace", ["y"], ["z"], blocksize=2, mode=mode),
    ]
    model = graph_of(nodes, {"x": [2, 3, 4, 6]}, {"y": None, "z": None}, opset=28)
    model.ir_version = 13
    check(model, {"x": normal(2, 3, 4, 6)}, tmp_path, reference=True)


@pytest.mark.parametrize("opset", [18, 21])
def test_group_normalization(opset: int, tmp_path: Path) -> None:
    shape = [2, 6, 3, 5]
    nodes, constants = [], {}
    for groups in (1, 2, 6):
        count = 6 if opset == 21 else groups
        constants |= {f"s{groups}": normal(count), f"b{groups}": normal(count) * 2}
        names = ["x", f"s{groups}", f"b{groups}"]
        node = helper.make_node("GroupNormalization", names, [f"y{groups}"], num_groups=groups)
        nodes.append(node)
    outputs: dict[str, list[int] | None] = {f"y{groups}": shape for groups in (1, 2, 6)}
    model = graph_of(nodes, {"x": shape}, outputs, opset=opset, **constants)
    x = normal(*shape)
    found = run(model, {"x": x}, tmp_path)
    for groups in (1, 2, 6):
        grouped = x.reshape(2, groups, -1).astype("f8")
        mean, variance = grouped.mean(2, keepdims=True), grouped.var(2, keepdims=True)
        wanted = ((grouped - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape)
        s, b = (
            np.repeat(values, 6 // values.size).reshape(6, 1, 1)
            for values in (constants[f"s{groups}"], constants[f"b{groups}"])
        )
        assert_close(found[f"y{groups}"], (wanted * s + b).astype("f4"))


@pytest.mark.parametrize(
    ("opset", "shapes"),
    [(6, [(3,), (1,)]), (9, [(4,), (3, 1)]), (16, [(3, 4), (2, 3, 4), (), (2, 1, 4)])],
)
def test_prelu(opset: int, shapes: list[tuple[int, ...]], tmp_path: Path) -> None:
    slopes = {f"s{n}": np.asarray(normal(*shape), "f4") for n, shape in enumerate(shapes)}
    nodes = [helper.make_node("PRelu", ["x", name], [f"y_{name}"]) for name in slopes]
    outputs: dict[str, list[int] | None] = {f"y_{name}": [2, 3, 4] for name in slopes}
    model = graph_of(nodes, {"x": [2, 3, 4]}, outputs, opset=opset, **slopes)
    x = normal(2, 3, 4)
    found = run(model, {"x": x}, tmp_path)
    for name, values in slopes.items():
        wide = values.reshape(3, 1) if opset == 6 and values.size == 3 else values
        np.testing.assert_allclose(found[f"y_{name}"], np.where(x < 0, wide * x, x), rtol=1e-6)


def test_prelu_of_slopes_that_do_not_broadcast(tmp_path: Path) -> None:
    node = helper.make_node("PRelu", ["x", "s"], ["y"])
    model = graph_of([node], {"x": [2, 3]}, {"y": None}, s=normal(2, 2, 3))
    assert "PRelu" in refusal(model, tmp_path)
