# SPDX-License-Identifier: Apache-2.0
"""Graphs of several operators: how values are shared, copied and batched, and operators of the CPU.

Everything is compared with ONNX Runtime.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execution import VANILLA, Execution, execute, vanilla
from networks import Graph, assert_close, convolve, normal, onnx_runtime, random_inputs, save
from onnx import TensorProto

import umakit
from umakit.errors import LoweringError, ModelError, UmakitError
from umakit.testing.harness import AOTModel, compile_and_run
from umakit.tvm_api import relax


def offloaded_once(execution: Execution, *names: str) -> bool:
    """Whether exactly these nodes ran on the accelerator, each in one call."""
    return execution.offloaded == list(names) and execution.accelerator_layers == len(names)


# --- Values that are shared -----------------------------------------------------------------------


def test_two_convolutions_share_an_input(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input("x", 1, 3, 6, 9)
    graph.output(graph.conv(x, 4, 3, name="left"), graph.conv(x, 5, 1, name="right"))
    assert offloaded_once(execute(graph.model(), tmp_path), "left", "right")


def test_two_convolutions_share_input_and_weights(tmp_path: Path) -> None:
    graph = Graph()
    x, weights = graph.input("x", 1, 3, 6, 9), graph.random(4, 3, 3, 3)
    for name in ("left", "right"):
        graph.output(graph.node("Conv", x, weights, pads=[1, 1, 1, 1], name=name))
    execution = execute(graph.model(), tmp_path)
    assert execution.offloaded in (["left"], ["left", "right"])


def test_a_result_used_twice_is_computed_once(tmp_path: Path) -> None:
    graph = Graph()
    shared = graph.conv(graph.input("x", 1, 3, 6, 9), 4, name="shared")
    graph.output(graph.node("Relu", shared), graph.node("Sigmoid", shared))
    assert offloaded_once(execute(graph.model(), tmp_path), "shared")


def test_a_result_used_by_both_sides_of_one_operator(tmp_path: Path) -> None:
    graph = Graph()
    shared = graph.conv(graph.input("x", 1, 3, 6, 9), 4, name="shared")
    graph.output(graph.node("Mul", shared, shared))
    assert offloaded_once(execute(graph.model(), tmp_path), "shared")


def test_a_result_that_is_also_an_output(tmp_path: Path) -> None:
    graph = Graph()
    first = graph.conv(graph.input("x", 1, 3, 6, 9), 3, name="first")
    graph.output(graph.conv(first, 4, name="second"), first)
    assert offloaded_once(execute(graph.model(), tmp_path), "first", "second")


@pytest.mark.parametrize("operators", [("Relu", "Sigmoid"), ("Neg", "Abs"), ("Tanh", "Exp")])
def test_a_branch_is_not_computed_again_for_its_second_consumer(
    operators: tuple[str, str], tmp_path: Path
) -> None:
    graph = Graph()
    stem = graph.node(operators[0], graph.conv(graph.input("x", 1, 3, 6, 9), 4, name="stem"))
    left = graph.conv(stem, 4, 3, name="left")
    right = graph.node(operators[1], graph.conv(stem, 4, 1, name="right"))
    graph.output(graph.node("Add", left, right))
    assert offloaded_once(execute(graph.model(), tmp_path), "stem", "left", "right")


@pytest.mark.parametrize("blocks", [1, 3])
def test_residual_blocks(blocks: int, tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input("x", 1, 4, 6, 9)
    for number in range(blocks):
        inner = graph.node("Relu", graph.conv(x, 4, 3, bias=True, name=f"{number}a"))
        x = graph.node("Relu", graph.node("Add", graph.conv(inner, 4, 3, name=f"{number}b"), x))
    graph.output(x)
    names = [f"{number}{part}" for number in range(blocks) for part in "ab"]
    assert offloaded_once(execute(graph.model(), tmp_path), *names)


def test_a_value_that_lives_across_many_layers_keeps_its_memory(tmp_path: Path) -> None:
    graph = Graph()
    early = graph.conv(graph.input("x", 1, 3, 6, 9), 4, name="early")
    x = early
    for _ in range(4):
        x = graph.node("Relu", graph.conv(x, 4, 3))
    graph.output(graph.node("Concat", x, early, axis=1))
    execute(graph.model(), tmp_path)


def test_profile_accounts_for_every_multiply_accumulate(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input("x", 1, 3, 8, 8)
    x = graph.node("Relu", graph.conv(x, 4, 3, strides=[2, 2], pads=[1] * 4, name="strided"))
    for number in range(3):
        x = graph.node("Relu", graph.conv(x, 4, 1, name=f"pointwise{number}"))
        x = graph.node("Relu", graph.conv(x, 4, 3, group=0, name=f"depthwise{number}"))
    graph.output(graph.dense(graph.node("Flatten", x), 4 * 4 * 4, 5, name="dense"))
    execution = execute(graph.model(), tmp_path)
    strided, pointwise, depthwise, dense = 4 * 16 * 27, 4 * 16 * 4, 4 * 16 * 9, 64 * 5
    names = ["strided", *[f"{kind}{n}" for n in range(3) for kind in ("pointwise", "depthwise")]]
    assert [(row.name, row.macs) for row in execution.placements if row.macs] == list(
        zip([*names, "dense"], [strided, *[pointwise, depthwise] * 3, dense], strict=True)
    )
    assert [(layer.name.split(" + ")[0], layer.macs) for layer in execution.result.layers
            if layer.macs] == list(
        zip([*names, "dense"], [strided, *[pointwise, depthwise] * 3, dense], strict=True)
    )  # fmt: skip


def test_normalized_layers_keep_their_names(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input("x", 1, 3, 6, 9)
    for name in ("first", "second"):
        x = graph.node("Relu", graph.batch_norm(graph.conv(x, 4, 3, name=name)))
    graph.output(x)
    assert offloaded_once(execute(graph.model(), tmp_path), "first", "second")


# --- Inputs and outputs ---------------------------------------------------------------------------


def test_one_value_returned_twice(tmp_path: Path) -> None:
    graph = Graph()
    conv = graph.conv(graph.input("x", 1, 3, 6, 9), 4, name="conv")
    graph.output(conv, graph.node("Identity", conv, name="again"))
    execution = execute(graph.model(), tmp_path)
    assert offloaded_once(execution, "conv")


def test_a_relax_tuple_may_repeat_values_and_return_inputs() -> None:
    ifmap, weights = normal(1, 3, 6, 9), normal(4, 3, 3, 3)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(ifmap.shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            conv = relax.op.nn.conv2d(x, relax.const(weights), padding=(1, 1, 1, 1))
            conv = builder.emit_output(conv)
        builder.emit_func_output(relax.Tuple([conv, x, conv, x]))
    wanted = convolve(ifmap, weights, (1, 1, 1, 1)).astype("float32")
    expected = {f"output_{n}": ifmap if n % 2 else wanted for n in range(4)}
    model = AOTModel(builder.get(), {"x": ifmap}, expected, 1e-4)
    (row,) = compile_and_run(model, vanilla()).offload.placements
    assert row.where == VANILLA


def test_a_network_without_operators(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input("x", 2, 3)
    graph.output(graph.node("Identity", x, name="y"), graph.node("Identity", x, name="z"))
    assert execute(graph.model(), tmp_path).placements == ()


def test_an_input_returned_as_output(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input("x", 1, 3, 6, 9)
    graph.output(graph.conv(x, 4, name="conv"), graph.node("Identity", x, name="same"))
    execute(graph.model(), tmp_path)


def test_an_input_returned_in_another_shape(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input("x", 1, 3, 6, 9)
    graph.output(graph.node("Reshape", x, graph.constant([3, 54], "int64"), name="flat"))
    execute(graph.model(), tmp_path)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([1.5, -2.0, np.inf], "float32"), ([-(2**63), 2**63 - 1], "int64"), ([True, False], "bool")],
)
def test_a_constant_output(values: list[float], dtype: str, tmp_path: Path) -> None:
    graph = Graph()
    graph.output(graph.node("Relu", graph.input("x", 2)))
    graph.output(graph.node("Identity", graph.constant(values, dtype), name="fixed"))
    model = graph.model()
    inputs = random_inputs(model)
    library = umakit.compile_model(save(model, tmp_path), [vanilla()], tmp_path / "library")
    outputs = umakit.run_library(library.path, inputs).outputs
    np.testing.assert_array_equal(outputs["fixed"], np.array(values, dtype))
    assert outputs["fixed"].dtype == dtype


def test_several_inputs_and_outputs_keep_their_order(tmp_path: Path) -> None:
    graph = Graph()
    zebra, apple = graph.input("zebra", 1, 3, 6, 9), graph.input("apple", 1, 5, 6, 9)
    scale = graph.input("scale", 1)
    total = graph.node("Add", graph.conv(zebra, 4), graph.conv(apple, 4), name="total")
    graph.output(graph.node("Mul", total, scale, name="scaled"), total)
    graph.output(graph.node("Sub", apple, scale, name="first"))
    execution = execute(graph.model(), tmp_path)
    described = execution.library.metadata["umakit"]
    assert [item["name"] for item in described["inputs"]] == ["zebra", "apple", "scale"]
    assert [item["name"] for item in described["outputs"]] == ["scaled", "total", "first"]


def test_an_input_that_nothing_uses(tmp_path: Path) -> None:
    graph = Graph()
    graph.input("unused", 7)
    graph.output(graph.conv(graph.input("x", 1, 3, 6, 9), 4))
    execute(graph.model(), tmp_path)


def test_names_that_are_no_c_identifiers(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input("input.1/image:0", 1, 3, 6, 9)
    conv = graph.conv(x, 4, name="layer*/conv/*1")
    graph.output(conv, graph.node("Relu", conv, name="return"))
    graph.output(graph.node("Neg", conv, name="9 lives"))
    assert execute(graph.model(), tmp_path).offloaded == ["layer*/conv/*1"]


def test_a_constant_large_enough_to_be_printed_as_bytes(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input("x", 1, 128, 3, 4)
    graph.output(graph.conv(x, 130, 1, name="conv"))
    assert execute(graph.model(), tmp_path).offloaded == ["conv"]


# --- Data that move between the accelerator and the CPU -------------------------------------------


def test_concatenated_convolutions(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input("x", 1, 3, 6, 9)
    parts = [graph.conv(x, filters, kernel) for filters, kernel in ((4, 1), (5, 3), (2, 5))]
    joined = graph.node("Concat", *parts, axis=1)
    weights = graph.random(3, 11, 3, 3)
    graph.output(graph.node("Conv", joined, weights, pads=[1, 1, 1, 1]))
    assert execute(graph.model(), tmp_path).accelerator_layers == 4


def test_split_feeds_convolutions(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input("x", 1, 6, 6, 9)
    sizes = graph.constant([2, 4], "int64")
    small, large = graph.nodes("Split", x, sizes, results=2, axis=1, name="split")
    weights = [graph.random(4, channels, 3, 3) for channels in (2, 4)]
    left, right = (
        graph.node("Conv", part, weight, pads=[1, 1, 1, 1])
        for part, weight in zip((small, large), weights, strict=True)
    )
    graph.output(graph.node("Add", left, right), large)
    assert execute(graph.model(), tmp_path).accelerator_layers == 2


@pytest.mark.parametrize("operator", ["Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze"])
def test_shape_changes_between_layers(operator: str, tmp_path: Path) -> None:
    graph = Graph()
    conv = graph.conv(graph.input("x", 1, 3, 6, 9), 4, name="conv")
    if operator == "Reshape":
        moved = graph.node(operator, conv, graph.constant([1, 2, -1, 9], "int64"))
        graph.output(graph.node("Conv", moved, graph.random(3, 2, 3, 3), pads=[1, 1, 1, 1]))
    elif operator == "Transpose":
        moved = graph.node(operator, conv, perm=[0, 1, 3, 2])
        graph.output(graph.node("Conv", moved, graph.random(3, 4, 3, 3), pads=[1, 1, 1, 1]))
    elif operator == "Flatten":
        graph.output(graph.dense(graph.node(operator, conv), 4 * 6 * 9, 7))
    else:
        graph.output(graph.node(operator, conv, graph.constant([0], "int64")))
    wanted = 2 if operator in ("Reshape", "Transpose") else 1
    assert execute(graph.model(), tmp_path).accelerator_layers == wanted


def test_constant_padding_before_a_convolution(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input("x", 1, 3, 6, 9)
    pads = graph.constant([0, 0, 1, 2, 0, 0, 3, 0], "int64")
    padded = graph.node("Pad", x, pads, graph.constant(0.5))
    weights = graph.random(4, 3, 3, 3)
    graph.output(graph.node("Conv", padded, weights, pads=[1, 1, 1, 1], name="conv"))
    assert execute(graph.model(), tmp_path).offloaded == ["conv"]


# --- Operators of the CPU -------------------------------------------------------------------------


@pytest.mark.parametrize("widths", [[0, 0, 0, 0, 1, 0], [0, 1, 0, 0, 0, 0], [0, 1, 2, 0, 1, 1]])
def test_padding_behind_a_mean_is_written_whole(widths: list[int], tmp_path: Path) -> None:
    """Also in rows of which nothing is computed from the mean that it is fused with."""
    graph = Graph()
    x = graph.input("x", 1, 5, 7)
    both = graph.node("Add", x, graph.node("ReduceMean", x, axes=[2], keepdims=1))
    value = graph.constant(3.0)
    graph.output(graph.node("Pad", both, graph.constant(widths, "int64"), value))
    execute(graph.model(), tmp_path)


def vector(graph: Graph, values: Any) -> str:
    return graph.constant(values, "int64")


def gelu(graph: Graph, x: str) -> str:
    scaled = graph.node("Erf", graph.node("Div", x, graph.constant(np.sqrt(2))))
    half = graph.node("Mul", x, graph.constant(0.5))
    return graph.node("Mul", half, graph.node("Add", scaled, graph.constant(1.0)))


def attention(graph: Graph, x: str) -> str:
    words = graph.node("Reshape", x, vector(graph, [1, 24, 9]))
    query, key, value = (graph.node("MatMul", words, graph.random(9, 8)) for _ in range(3))
    scores = graph.node("MatMul", query, graph.node("Transpose", key, perm=[0, 2, 1]))
    return graph.node("MatMul", graph.node("Softmax", scores, axis=-1), value)


def layer_norm_of_primitives(graph: Graph, x: str) -> str:
    centred = graph.node("Sub", x, graph.node("ReduceMean", x, axes=[-1]))
    squared = graph.node("Pow", centred, graph.constant(2.0))
    variance = graph.node("ReduceMean", squared, axes=[-1])
    deviation = graph.node("Sqrt", graph.node("Add", variance, graph.constant(1e-5)))
    normalized = graph.node("Div", centred, deviation)
    return graph.node("Add", graph.node("Mul", normalized, graph.random(9)), graph.random(9))


def tenths(graph: Graph, x: str) -> str:
    return graph.node("Cast", graph.node("Mul", x, graph.constant(10.0)), to=TensorProto.INT32)


def resize(graph: Graph, x: str, **attributes: Any) -> str:
    return graph.node("Resize", x, "", graph.constant([1, 1, 2, 3]), **attributes)


def slice_of(graph: Graph, x: str, start: list[int], end: list[int], step: list[int]) -> str:
    return graph.node(
        "Slice", x, vector(graph, start), vector(graph, end), vector(graph, [2, 3]),
        vector(graph, step),
    )  # fmt: skip


# Each takes a [1, 4, 6, 9] result of the accelerator.
OPERATORS: dict[str, Callable[[Graph, str], str | tuple[str, ...]]] = {
    "MaxPool": lambda g, x: g.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]),
    "MaxPool of padded rows": lambda g, x: g.node(
        "MaxPool", x, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 1, 0, 0]
    ),
    "MaxPool with ceil_mode": lambda g, x: g.node(
        "MaxPool", x, kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1
    ),
    "MaxPool with SAME_UPPER": lambda g, x: g.node(
        "MaxPool", x, kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_UPPER"
    ),
    "MaxPool with dilation": lambda g, x: g.node(
        "MaxPool", x, kernel_shape=[2, 3], strides=[1, 1], dilations=[2, 2]
    ),
    "AveragePool": lambda g, x: g.node("AveragePool", x, kernel_shape=[2, 3], strides=[2, 3]),
    "AveragePool without padding in the count": lambda g, x: g.node(
        "AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
    ),
    "AveragePool with padding in the count": lambda g, x: g.node(
        "AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 1, 1],
        count_include_pad=1,
    ),
    "AveragePool with ceil_mode": lambda g, x: g.node(
        "AveragePool", x, kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1
    ),
    "AveragePool with SAME_UPPER": lambda g, x: g.node(
        "AveragePool", x, kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_UPPER"
    ),
    "GlobalAveragePool": lambda g, x: g.node("GlobalAveragePool", x),
    "GlobalMaxPool": lambda g, x: g.node("GlobalMaxPool", x),
    "Softmax over channels": lambda g, x: g.node("Softmax", x, axis=1),
    "Softmax over columns": lambda g, x: g.node("Softmax", x, axis=-1),
    "LogSoftmax": lambda g, x: g.node("LogSoftmax", x, axis=1),
    "LayerNormalization": lambda g, x: g.node(
        "LayerNormalization", x, g.random(9), g.random(9), axis=-1
    ),
    "layer normalization of primitives": layer_norm_of_primitives,
    "InstanceNormalization": lambda g, x: g.node(
        "InstanceNormalization", x, g.random(4), g.random(4)
    ),
    "LRN": lambda g, x: g.node("LRN", x, size=3, alpha=0.01),
    "Gemm with transB": lambda g, x: g.dense(g.node("Flatten", x), 216, 5),
    "Gemm with alpha, beta and transA": lambda g, x: g.node(
        "Gemm", g.node("Flatten", x, axis=3), g.random(24, 5), g.random(5), transA=1, alpha=0.5,
        beta=2.0,
    ),
    "MatMul of a batch": lambda g, x: g.node("MatMul", x, g.random(9, 5)),
    "Resize nearest": lambda g, x: resize(
        g, x, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    ),
    "Resize nearest from half a pixel": lambda g, x: resize(g, x, mode="nearest"),
    "Resize linear": lambda g, x: resize(g, x, mode="linear"),
    "Clip (Relu6)": lambda g, x: g.node("Clip", x, g.constant(0.0), g.constant(6.0)),
    "Clip from below": lambda g, x: g.node("Clip", x, g.constant(-0.25)),
    "LeakyRelu": lambda g, x: g.node("LeakyRelu", x, alpha=0.1),
    "Elu": lambda g, x: g.node("Elu", x, alpha=0.7),
    "Selu": lambda g, x: g.node("Selu", x),
    "Softplus": lambda g, x: g.node("Softplus", x),
    "Sigmoid": lambda g, x: g.node("Sigmoid", x),
    "Tanh": lambda g, x: g.node("Tanh", x),
    "Erf": lambda g, x: g.node("Erf", x),
    "Gelu of primitives": gelu,
    "HardSigmoid": lambda g, x: g.node("HardSigmoid", x),
    "HardSwish": lambda g, x: g.node("HardSwish", x),
    "Swish of primitives": lambda g, x: g.node("Mul", x, g.node("Sigmoid", x)),
    "attention of primitives": attention,
    "PRelu": lambda g, x: g.node("PRelu", x, g.random(4, 1, 1)),
    "ConvTranspose": lambda g, x: g.node(
        "ConvTranspose", x, g.random(4, 3, 3, 3), g.random(3), strides=[2, 2], pads=[1, 1, 1, 1],
        output_padding=[1, 0],
    ),
    "ConvTranspose with SAME_UPPER": lambda g, x: g.node(
        "ConvTranspose", x, g.random(4, 3, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER"
    ),
    "grouped ConvTranspose": lambda g, x: g.node(
        "ConvTranspose", x, g.random(4, 2, 2, 3), group=2, strides=[1, 2]
    ),
    "BatchNormalization after a pool": lambda g, x: g.batch_norm(
        g.node("MaxPool", x, kernel_shape=[2, 2])
    ),
    "BatchNormalization of a result used twice": lambda g, x: (g.batch_norm(x), x),
    "ReduceMean": lambda g, x: g.node("ReduceMean", x, axes=[2, 3], keepdims=0),
    "ReduceMax": lambda g, x: g.node("ReduceMax", x, axes=[1]),
    "ReduceMin of everything": lambda g, x: g.node("ReduceMin", x, keepdims=0),
    "ReduceSum": lambda g, x: g.node("ReduceSum", x, vector(g, [1, 3])),
    "ReduceL2": lambda g, x: g.node("ReduceL2", x, axes=[1]),
    "Pad": lambda g, x: g.node("Pad", x, vector(g, [0, 1, 2, 0, 0, 0, 1, 3]), g.constant(-1.0)),
    "Pad with reflection": lambda g, x: g.node(
        "Pad", x, vector(g, [0, 0, 2, 1, 0, 0, 1, 3]), mode="reflect"
    ),
    "Pad with the edge": lambda g, x: g.node(
        "Pad", x, vector(g, [0, 0, 2, 1, 0, 0, 1, 3]), mode="edge"
    ),
    "Slice": lambda g, x: slice_of(g, x, [1, -8], [5, 9], [1, 2]),
    "Slice backwards": lambda g, x: slice_of(g, x, [-1, 8], [-5, 0], [-1, -3]),
    "Gather": lambda g, x: g.node("Gather", x, vector(g, [2, 0, 2]), axis=1),
    "Gather from the end": lambda g, x: g.node("Gather", x, vector(g, [[-1, 0]]), axis=3),
    "Gather of one": lambda g, x: g.node("Gather", x, g.constant(1, "int64"), axis=1),
    "GatherElements": lambda g, x: g.node(
        "GatherElements", x, vector(g, [[[[0, 2, 1]]]]), axis=3
    ),
    "GatherND": lambda g, x: g.node("GatherND", x, vector(g, [[0, 1], [0, 3]])),
    "ScatterElements": lambda g, x: g.node(
        "ScatterElements", x, vector(g, [[[[5, 0, 8]]]]), g.random(1, 1, 1, 3), axis=3
    ),
    "ScatterND": lambda g, x: g.node("ScatterND", x, vector(g, [[0, 2]]), g.random(1, 6, 9)),
    "Split": lambda g, x: g.nodes("Split", x, vector(g, [1, 2, 6]), results=3, axis=3),
    "Split into equal parts": lambda g, x: g.nodes("Split", x, results=3, axis=2),
    "Concat": lambda g, x: g.node("Concat", x, g.node("Neg", x), x, axis=2),
    "Expand": lambda g, x: g.node("Expand", x, vector(g, [2, 4, 6, 9])),
    "Tile": lambda g, x: g.node("Tile", x, vector(g, [1, 2, 1, 3])),
    "Transpose": lambda g, x: g.node("Transpose", x, perm=[0, 2, 3, 1]),
    "DepthToSpace": lambda g, x: g.node("DepthToSpace", x, blocksize=2),
    "DepthToSpace CRD": lambda g, x: g.node("DepthToSpace", x, blocksize=2, mode="CRD"),
    "SpaceToDepth": lambda g, x: g.node("SpaceToDepth", x, blocksize=3),
    "ArgMax": lambda g, x: g.node("ArgMax", x, axis=1),
    "ArgMin without its axis": lambda g, x: g.node("ArgMin", x, axis=3, keepdims=0),
    "Greater": lambda g, x: g.node("Greater", x, g.constant(0.1)),
    "Not of LessOrEqual": lambda g, x: g.node("Not", g.node("LessOrEqual", x, g.constant(0.1))),
    "And": lambda g, x: g.node(
        "And", g.node("Greater", x, g.constant(-0.5)), g.node("Less", x, g.constant(0.5))
    ),
    "Equal of indices": lambda g, x: g.node(
        "Equal", g.node("ArgMax", x, axis=1), g.constant(2, "int64")
    ),
    "Where": lambda g, x: g.node(
        "Where", g.node("Greater", x, g.constant(0.0)), x, g.node("Mul", x, g.constant(-0.1))
    ),
    "Cast to int32": lambda g, x: tenths(g, x),
    "Cast to uint8": lambda g, x: g.node(
        "Cast", g.node("Abs", g.node("Mul", x, g.constant(10.0))), to=TensorProto.UINT8
    ),
    "Cast of bool": lambda g, x: g.node(
        "Cast", g.node("Greater", x, g.constant(0.0)), to=TensorProto.FLOAT
    ),
    "Cast to double": lambda g, x: g.node("Cast", x, to=TensorProto.DOUBLE),
    "Div of negative integers": lambda g, x: g.node("Div", tenths(g, x), g.constant(3, "int32")),
    "Mod of negative integers": lambda g, x: g.node("Mod", tenths(g, x), g.constant(3, "int32")),
    "Mod of floats": lambda g, x: g.node("Mod", x, g.constant(0.3), fmod=1),
    "Exp": lambda g, x: g.node("Exp", x),
    "Log": lambda g, x: g.node("Log", g.node("Add", g.node("Abs", x), g.constant(1.0))),
    "Sqrt": lambda g, x: g.node("Sqrt", g.node("Abs", x)),
    "Pow": lambda g, x: g.node("Pow", x, g.constant(3.0)),
    "Sin": lambda g, x: g.node("Sin", x),
    "Floor": lambda g, x: g.node("Floor", x),
    "Round half to even": lambda g, x: g.node(
        "Round", g.node("Mul", g.node("Floor", g.node("Mul", x, g.constant(8.0))), g.constant(0.5))
    ),
    "Sign": lambda g, x: g.node("Sign", x),
    "Max and Min": lambda g, x: g.node(
        "Max", g.node("Min", x, g.constant(0.5)), g.random(1, 4, 1, 1)
    ),
    "Div by zero": lambda g, x: g.node("Div", x, g.node("Relu", x)),
    "IsNaN": lambda g, x: g.node("IsNaN", g.node("Sqrt", x)),
    "Einsum": lambda g, x: g.node("Einsum", x, g.random(4, 3), equation="nchw,cd->ndhw"),
}  # fmt: skip


AT_ONCE = 12
"""How many operators one library has, each behind a convolution of an input of its own."""


def check_operators(operators: Sequence[str], folder: Path) -> None:
    graph = Graph()
    convolutions = []
    for number, operator in enumerate(operators):
        x = graph.input(f"x{number}", 1, 3, 6, 9)
        convolutions.append(graph.conv(x, 4, name=f"conv of {number}"))
        results = OPERATORS[operator](graph, convolutions[-1])
        graph.output(*([results] if isinstance(results, str) else results))
    assert offloaded_once(execute(graph.model(), folder), *convolutions)


@pytest.fixture(scope="module")
def right_together(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], bool]:
    """Whether an operator and those next to it that are tested are right, in one library."""
    names = {item.name for item in request.session.items}
    test = test_operator_on_the_cpu_after_a_convolution.__name__
    wanted = [operator for operator in OPERATORS if f"{test}[{operator}]" in names]

    @functools.cache
    def right(group: int) -> bool:
        operators = wanted[group * AT_ONCE : (group + 1) * AT_ONCE]
        try:
            check_operators(operators, tmp_path_factory.mktemp("operators"))
        except (AssertionError, UmakitError):
            return False  # Each alone: those fail that are wrong.
        return True

    return lambda operator: right(wanted.index(operator) // AT_ONCE)


@pytest.mark.parametrize("operator", OPERATORS)
def test_operator_on_the_cpu_after_a_convolution(
    operator: str, right_together: Callable[[str], bool], tmp_path: Path
) -> None:
    if not right_together(operator):
        check_operators([operator], tmp_path)


def test_output_shape_of_a_transposed_convolution_is_kept_or_refused(tmp_path: Path) -> None:
    graph = Graph()
    x, weights = graph.input("x", 1, 2, 3, 4), graph.random(2, 3, 3, 3)
    shape = {"strides": [2, 2], "output_shape": [6, 8]}
    graph.output(graph.node("ConvTranspose", x, weights, name="grow", **shape))
    try:
        execute(graph.model(), tmp_path)
    except ModelError as error:
        assert "grow" in str(error)


def test_a_one_hot_tensor_has_the_dtype_of_its_values(tmp_path: Path) -> None:
    graph = Graph()
    index = graph.node("ArgMax", graph.input("x", 1, 4, 6, 9), axis=1, keepdims=0)
    values = graph.constant([0.0, 1.0])
    graph.output(graph.node("OneHot", index, graph.constant(4, "int64"), values, name="hot"))
    execute(graph.model(), tmp_path)


def test_operator_without_a_lowering_is_named(tmp_path: Path) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 9), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            total = builder.emit(relax.op.ewise_fma(x, x, x), "total")
            result = builder.emit_output(relax.op.negative(total))
        builder.emit_func_output(result)
    wanted = "node total.*: operator ewise_fma is not supported for float32"
    with pytest.raises(LoweringError, match=wanted):
        umakit.compile_model(builder.get(), [], tmp_path / "library")


def test_integers_and_bools_are_inputs_and_outputs(tmp_path: Path) -> None:
    graph = Graph()
    table = graph.constant(normal(10, 3))
    words = graph.input("words", 5, dtype=TensorProto.INT64)
    keep = graph.input("keep", 5, 3, dtype=TensorProto.BOOL)
    rows = graph.node("Gather", table, words)
    graph.output(graph.node("Where", keep, rows, graph.constant(0.0)))
    graph.output(graph.node("Add", words, graph.constant(2**40, "int64")))
    graph.output(graph.node("Not", keep))
    execute(graph.model(), tmp_path)


# --- Batches --------------------------------------------------------------------------------------


def batched_network() -> Graph:
    graph = Graph()
    x = graph.input("x", "batch", 3, 6, 9)
    x = graph.node("GlobalAveragePool", graph.node("Relu", graph.conv(x, 4, name="conv")))
    graph.output(graph.dense(graph.node("Flatten", x), 4, 5, name="logits"))
    return graph


def test_inferences_of_a_batch_equal_single_ones(tmp_path: Path) -> None:
    model = batched_network().model()
    library = umakit.compile_model(save(model, tmp_path), [vanilla()], tmp_path / "library").path
    images = normal(7, 3, 6, 9)
    together = umakit.run_library(library, {"x": images}).outputs["logits"]
    single = [umakit.run_library(library, {"x": image[None]}).outputs["logits"] for image in images]
    assert together.shape == (7, 1, 5)
    np.testing.assert_array_equal(together, np.stack(single))
    stacked = umakit.run_library(library, {"x": images[:, np.newaxis]}).outputs["logits"]
    np.testing.assert_array_equal(together, stacked)
    assert_close(together[:, 0], onnx_runtime(model, {"x": images})["logits"])


def test_every_input_of_a_batch_has_a_leading_dimension(tmp_path: Path) -> None:
    graph = Graph()
    x, scale = graph.input("x", 1, 3, 6, 9), graph.input("scale", 3, 1, 1)
    graph.output(graph.conv(graph.node("Mul", x, scale), 4, name="conv"))
    model = graph.model()
    library = umakit.compile_model(save(model, tmp_path), [vanilla()], tmp_path / "library").path
    inputs = {"x": normal(5, 1, 3, 6, 9), "scale": normal(5, 3, 1, 1, seed=1)}
    together = umakit.run_library(library, inputs).outputs["conv"]
    for number, result in enumerate(together):
        single = {name: array[number] for name, array in inputs.items()}
        assert_close(result, onnx_runtime(model, single)["conv"])


def test_a_batch_chosen_at_compile_time_is_refused_by_the_accelerator(tmp_path: Path) -> None:
    model = batched_network().model()
    path = save(model, tmp_path)
    library = umakit.compile_model(
        path, [vanilla()], tmp_path / "library", input_shapes={"x": (2, 3, 6, 9)}
    )
    images = normal(2, 3, 6, 9)
    logits = umakit.run_library(library.path, {"x": images}).outputs["logits"]
    assert_close(logits, onnx_runtime(model, {"x": images})["logits"])
    assert all(row.where != VANILLA for row in library.report.placements)


def test_a_symbolic_batch_is_bound_to_one_with_a_notice(tmp_path: Path) -> None:
    notices: list[str] = []
    path = save(batched_network().model(), tmp_path)
    umakit.compile_model(path, [vanilla()], tmp_path / "library", notice=notices.append)
    (notice,) = notices
    assert "'x'" in notice
    assert "'batch' is bound to 1" in notice


@pytest.mark.parametrize("bias", [True, False])
def test_a_batch_norm_behind_a_matrix_product_costs_nothing(bias: bool, tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input("x", 2, 12)
    x = graph.dense(x, 12, 7) if bias else graph.node("MatMul", x, graph.random(12, 7))
    graph.channels(x, 7)
    graph.output(graph.batch_norm(x))
    memory = execute(graph.model(), tmp_path).library.metadata["umakit"]["memory"]
    assert memory["constants_bytes"] == 4 * (12 * 7 + 7)


@pytest.mark.parametrize("shape", [(1, 1, 8, 1), (1, 1, 1, 8), (1, 8, 1, 1), (8, 1, 1), (1,)])
def test_a_batch_norm_behind_a_sum_keeps_the_axis_of_what_is_added(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    """Height, width and channels are equal, so a mistaken axis would not show in any shape."""
    graph = Graph()
    x = graph.conv(graph.input("image", 1, 3, 8, 8), 8)
    graph.output(graph.batch_norm(graph.node("Add", x, graph.random(*shape))))
    execute(graph.model(), tmp_path)


def test_a_batch_norm_behind_a_sum_along_the_batch(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.node("MatMul", graph.input("x", 5, 12), graph.random(12, 5))
    graph.channels(x, 5)
    graph.output(graph.batch_norm(graph.node("Add", x, graph.random(5, 1))))
    execute(graph.model(), tmp_path)
