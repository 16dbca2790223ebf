# SPDX-License-Identifier: Apache-2.0
"""Comments of kernels have the scales and zero points of weights that the model's file has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import tflite
from onnx import TensorProto, helper, numpy_helper
from tflite_networks import Array, TfliteFile

from umakit import compile_model
from umakit.backend.registry import find_backend

DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits_int8.onnx"
LAYER = re.compile(r"Layer \d+: (\S+).*?(?=Layer \d+: |\Z)", re.DOTALL)
WEIGHTS = re.compile(
    r"weights: scales? (\S+?)(?: \.\. (\S+) \((\d+), by output channel\))?,"
    r" zero points? (-?\d+)(?: \.\. (-?\d+))?( \(subtracted from the constants\))?"
)

Quantization = tuple[float, float, int, int, int]
"""Least and greatest scale, number of different scales, least and greatest zero point."""


def told(model: Path, backends: Sequence[str], folder: Path) -> list[dict[str, Quantization]]:
    """For each kernel what its comment tells of the weights of its layers, by layer."""
    library = compile_model(model, [find_backend(name) for name in backends], folder)
    source = library.path / f"codegen/host/src/tvmgen_{library.metadata['umakit']['name']}.c"
    text = source.read_text(encoding="utf-8")
    kernels = []
    for comment in re.findall(r"^/\*\n( \* Layer.*?)^ \*/", text, re.DOTALL | re.MULTILINE):
        line = " ".join(re.sub(r"^ \*", "", comment, flags=re.MULTILINE).split())
        found: dict[str, Quantization] = {}
        for layer in LAYER.finditer(line):
            for match in WEIGHTS.finditer(layer[0]):
                least, greatest, count, zero, last_zero, subtracted = match.groups()
                zeros = int(zero), int(last_zero or zero)
                scales = float(np.float32(least)), float(np.float32(greatest or least))
                assert layer[1] not in found
                assert (subtracted is not None) == (zeros != (0, 0))
                found[layer[1]] = (*scales, int(count or 1), *zeros)
        if found:
            kernels.append(found)
    return kernels


def quantization(scales: Array, zero_points: Array) -> Quantization:
    """What a comment should tell of arrays of a file."""
    least, greatest = float(scales.min()), float(scales.max())
    count = scales.size if least < greatest else 1
    return least, greatest, count, int(zero_points.min()), int(zero_points.max())


def merged(kernels: list[dict[str, Quantization]]) -> dict[str, Quantization]:
    return {name: found for kernel in kernels for name, found in kernel.items()}


@pytest.mark.parametrize(
    "backends", [[], ["chocolate_accelerator"], ["strawberry_accelerator"]], ids=str
)
def test_weights_of_qdq_networks(backends: list[str], tmp_path: Path) -> None:
    graph = onnx.load(DIGITS).graph
    arrays = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    sources = {node.output[0]: node.input for node in graph.node}
    expected = {}
    for node in graph.node:
        if node.op_type in ("Conv", "Gemm"):
            _, scale, zero_point = (arrays[name] for name in sources[node.input[1]])
            expected[node.name] = quantization(scale, zero_point)
    assert len(expected) == 5 and {each[2] for each in expected.values()} == {10, 16, 32}
    assert merged(told(DIGITS, backends, tmp_path / "library")) == expected


def test_weights_of_operators_on_integers_with_zero_points(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    constants = {
        "scale": np.float32(0.0125),
        "zero": np.uint8(7),
        "all": random.integers(0, 256, (4, 4, 3, 3), np.uint8),
        "all_scale": np.float32(0.003),
        "all_zero": np.uint8(117),
        "each": random.integers(-128, 128, (4, 4, 3, 3), np.int8),
        "each_scale": random.uniform(0.001, 0.01, 4).astype(np.float32),
        "each_zero": np.zeros(4, np.int8),
    }
    nodes = []
    for data, kind, result in (("x", "all", "middle"), ("middle", "each", "y")):
        weights, activations = (kind, f"{kind}_scale", f"{kind}_zero"), ("scale", "zero")
        names = [data, *activations, *weights, *activations]
        nodes.append(helper.make_node("QLinearConv", names, [result], name=f"conv_{kind}"))
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "network",
        [tensor("x", TensorProto.UINT8, [1, 4, 8, 8])],
        [tensor("y", TensorProto.UINT8, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    path = tmp_path / "qlinear.onnx"
    opset = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    assert merged(told(path, [], tmp_path / "library")) == {
        f"conv_{name}": quantization(
            np.atleast_1d(constants[f"{name}_scale"]), np.atleast_1d(constants[f"{name}_zero"])
        )
        for name in ("all", "each")
    }


def tflite_network() -> bytes:
    """Three equal convolutions, another one, a depthwise one and a fully connected layer."""
    file, random = TfliteFile(), np.random.default_rng(2)
    scale, zero = 0.05, 3

    def constants(shape: tuple[int, ...], scales: Array, axis: int = 0) -> list[int]:
        values = random.integers(-127, 128, shape).astype(np.int8)
        weights = file.tensor(shape, scale=list(scales), axis=axis, data=values)
        outputs = shape[axis]
        biases = random.integers(-99, 99, outputs).astype(np.int32)
        return [weights, file.tensor((outputs,), "int32", scale=list(scales * scale), data=biases)]

    def result(name: str, shape: tuple[int, ...]) -> int:
        return file.tensor(shape, scale=scale, zero_point=zero, name=name)

    def many(count: int) -> Array:
        return random.uniform(0.001, 0.01, count).astype(np.float32)

    image = (1, 8, 8, 4)
    strides = {"StrideH": 1, "StrideW": 1}
    data = first = result("x", image)
    for name, count in (("one", 4), ("two", 4), ("three", 4), ("for_all", 1)):
        operands = constants((4, 3, 3, 4), many(count))
        given, data = data, result(name, image)
        file.operator("CONV_2D", [given, *operands], [data], "Conv2DOptions", **strides)
    operands = constants((1, 3, 3, 4), many(4), axis=3)
    given, data = data, result("depthwise", image)
    options = {**strides, "DepthMultiplier": 1}
    file.operator(
        "DEPTHWISE_CONV_2D", [given, *operands], [data], "DepthwiseConv2DOptions", **options
    )
    operands = constants((5, 256), many(1))
    given, data = data, result("dense", (1, 5))
    file.operator("FULLY_CONNECTED", [given, *operands], [data], "FullyConnectedOptions")
    return file.finish([first], [data])


@pytest.mark.parametrize("backends", [[], ["strawberry_accelerator"]], ids=str)
def test_weights_of_tensorflow_lite_also_where_layers_share_a_kernel(
    backends: list[str], tmp_path: Path
) -> None:
    content = tflite_network()
    graph = tflite.Model.GetRootAs(content).Subgraphs(0)
    expected = {}
    for number in range(graph.OperatorsLength()):
        operator = graph.Operators(number)
        weights = graph.Tensors(operator.Inputs(1)).Quantization()
        name = graph.Tensors(operator.Outputs(0)).Name().decode()
        expected[name] = quantization(weights.ScaleAsNumpy(), weights.ZeroPointAsNumpy())
    assert [each[2] for each in expected.values()] == [4, 4, 4, 1, 4, 1]
    path = tmp_path / "network.tflite"
    path.write_bytes(content)
    kernels = told(path, backends, tmp_path / "library")
    assert merged(kernels) == expected
    assert any({"two", "three"} <= set(kernel) for kernel in kernels)
