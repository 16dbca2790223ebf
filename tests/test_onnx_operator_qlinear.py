# SPDX-License-Identifier: Apache-2.0
"""Operators of ONNX Runtime's quantized format: the same integers as ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_node_tests import run_model
from onnxruntime import quantization

from umakit.errors import ModelError

Array = np.ndarray[Any, Any]
MICROSOFT = "com.microsoft"
PAIRS = [("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8")]
"""Types of data and weights."""


class Network:
    """One operator with quantized inputs, each followed by its scale and zero point."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.inputs: dict[str, Array] = {}
        self.constants: dict[str, Array] = {}
        self.names: list[str] = []

    def integers(self, shape: tuple[int, ...], dtype: str, *, constant: bool = False) -> Array:
        limits = np.iinfo(dtype)
        low, high = int(limits.min), int(limits.max)
        if dtype == "int8" and any(x.dtype == "uint8" for x in self.inputs.values()):
            low, high = -64, 63  # without VNNI ONNX Runtime adds two products in 16 bits
        values = self.random.integers(low, high + 1, shape).astype(dtype)
        name = f"x{len(self.names)}"
        (self.constants if constant else self.inputs)[name] = values
        self.names.append(name)
        return values

    def constant(self, value: Any, dtype: str = "float32") -> None:
        name = f"x{len(self.names)}"
        self.constants[name] = np.asarray(value, dtype)
        self.names.append(name)

    def scale(self, dtype: str, scale: Any = None, zero: Any = None) -> None:
        """A scale and a zero point; drawn unless they are given."""
        limits = np.iinfo(dtype)
        drawn = self.random.integers(limits.min // 2, limits.max // 2)
        self.constant(self.random.uniform(0.01, 0.1) if scale is None else scale)
        self.constant(drawn if zero is None else zero, dtype)

    def model(self, operator: str, dtype: str, **attributes: Any) -> onnx.ModelProto:
        """The operator with these inputs and a result of a dtype."""
        domain = "" if operator in ("QLinearConv", "QLinearMatMul") else MICROSOFT
        node = helper.make_node(operator, self.names, ["y"], "layer", domain=domain, **attributes)
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        graph = helper.make_graph(
            [node],
            "network",
            [
                helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
                for n, a in self.inputs.items()
            ],
            [helper.make_tensor_value_info("y", element, None)],
            [numpy_helper.from_array(a, n) for n, a in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", 13), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def difference(self, operator: str, dtype: str, folder: Path, **attributes: Any) -> int:
        """By how much the result differs from ONNX Runtime's at most."""
        model = self.model(operator, dtype, **attributes)
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry("session.x64quantprecision", "0")  # no QGemm of int8 else
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        expected = session.run(None, self.inputs)[0]
        got = run_model(model, list(self.inputs.values()), folder)
        assert not isinstance(got, str), got
        assert got[0].dtype == expected.dtype
        return int(np.abs(got[0].astype(np.int64) - expected.astype(np.int64)).max())


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(
    ("data", "weights"), [("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8")]
)
def test_convolution(data: str, weights: str, per_channel: bool, tmp_path: Path) -> None:
    network = Network(1 + per_channel)
    network.integers((1, 3, 7, 7), data)
    network.scale(data)
    network.integers((4, 3, 3, 3), weights, constant=True)
    scales = network.random.uniform(0.001, 0.01, 4 if per_channel else ())
    zero = 0 if weights == "int8" else 120
    network.scale(weights, scales, np.full(np.shape(scales), zero))
    network.scale(data, 0.2)
    if per_channel:
        network.constant(network.random.integers(-3000, 3000, 4), "int32")
    difference = network.difference("QLinearConv", data, tmp_path, pads=[1] * 4, strides=[2, 2])
    assert difference == 0


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    ("left", "right"), [("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8")]
)
def test_matrix_product(left: str, right: str, constant: bool, tmp_path: Path) -> None:
    network = Network(3)
    network.integers((5, 16), left)
    network.scale(left)
    network.integers((16, 8), right, constant=constant)
    scales = network.random.uniform(0.001, 0.01, 8 if constant else ())
    network.scale(right, scales, np.zeros(np.shape(scales)) if constant else 3)
    network.scale(left, 0.15)
    assert network.difference("QLinearMatMul", left, tmp_path) == 0


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_gemm(dtype: str, tmp_path: Path) -> None:
    network = Network(4)
    network.integers((2, 16), dtype)
    network.scale(dtype)
    network.integers((8, 16), "int8", constant=True)
    network.scale("int8", network.random.uniform(0.001, 0.01, 8), np.zeros(8))
    network.constant(network.random.integers(-3000, 3000, 8), "int32")
    network.scale(dtype, 0.1)
    assert network.difference("QGemm", dtype, tmp_path, transB=1) == 0


def test_gemm_without_a_bias(tmp_path: Path) -> None:
    network = Network(5)
    network.integers((2, 16), "uint8")
    network.scale("uint8")
    network.integers((16, 8), "int8", constant=True)
    network.scale("int8", 0.005, 0)
    network.names.append("")
    network.scale("uint8", 0.1)
    assert network.difference("QGemm", "uint8", tmp_path) == 0


def test_gemm_of_real_numbers(tmp_path: Path) -> None:
    """Without a scale of the result, which is float32 then."""
    network = Network(5)
    x = network.integers((2, 16), "uint8")
    network.scale("uint8", 0.05, 7)
    network.integers((16, 8), "int8", constant=True)
    network.scale("int8", 0.005, 0)
    network.names.append("")
    model = network.model("QGemm", "float32")
    session = onnxruntime.InferenceSession(model.SerializeToString())
    expected = session.run(None, network.inputs)[0]
    got = run_model(model, [x], tmp_path)
    assert not isinstance(got, str), got
    np.testing.assert_allclose(got[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("operator", "weights", "scales", "attributes", "words"),
    [
        ("QGemm", (4, 8), 1, {"alpha": 0.5}, "has an attribute alpha other than 1"),
        ("QLinearConv", (2, 4, 1, 1, 1), 1, {}, "has weights of 5 dimensions"),
        ("QLinearMatMul", (4, 8), 8, {}, "has 8 scales and 3 zero points"),
    ],
)
def test_weights_that_are_not_taken(
    operator: str, weights: tuple[int, ...], scales: int, attributes: dict[str, Any], words: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    network = Network(6)
    network.integers((1, 4, *(1 for _ in weights[2:])), "uint8")
    network.scale("uint8")
    network.integers(weights, "int8", constant=True)
    network.scale("int8", np.full(scales, 0.1), np.zeros(1 if scales == 1 else 3))
    if operator == "QGemm":
        network.names.append("")
    network.scale("uint8")
    with pytest.raises(ModelError, match=f"{operator}.*{words}"):
        run_model(network.model(operator, "uint8", **attributes), [], tmp_path)


@pytest.mark.parametrize(
    ("scale", "attributes", "words"),
    [
        (0.1, {"channels_last": 1}, "has channels_last=1, which is not supported"),
        ([0.1, 0.2], {}, "has 2 scales where one is supported"),
    ],
)
def test_a_pool_that_is_not_taken(
    scale: Any, attributes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    network = Network(7)
    network.integers((1, 2, 3, 3), "uint8")
    network.scale("uint8", scale)
    network.scale("uint8")
    with pytest.raises(ModelError, match=f"QLinearGlobalAveragePool.*{words}"):
        run_model(network.model("QLinearGlobalAveragePool", "uint8", **attributes), [], tmp_path)


@pytest.mark.parametrize(("scale", "shape"), [(0.05, (3, 400)), (None, (3, 400)), (None, (1,))])
@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
def test_pair(operator: str, shape: tuple[int, ...], scale: float | None, tmp_path: Path) -> None:
    network = Network(5)
    network.integers((3, 400), "uint8")
    network.scale("uint8", scale and 0.02)
    network.integers(shape, "uint8")
    network.scale("uint8", scale and 0.03)
    network.scale("uint8", scale)
    assert network.difference(operator, "uint8", tmp_path) == 0


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("QLinearLeakyRelu", {"alpha": 0.25}),
        ("QLinearSigmoid", {}),
        ("QLinearGlobalAveragePool", {}),
    ],
)
def test_function(operator: str, attributes: dict[str, Any], dtype: str, tmp_path: Path) -> None:
    network = Network(6)
    network.integers((2, 4, 16, 16), dtype)
    network.scale(dtype, 0.05)
    network.scale(dtype, 0.02)
    assert network.difference(operator, dtype, tmp_path, **attributes) == 0


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_concat(dtype: str, tmp_path: Path) -> None:
    network = Network(7)
    network.scale(dtype)
    for channels in (3, 2):
        network.integers((1, channels, 200), dtype)
        network.scale(dtype)
    assert network.difference("QLinearConcat", dtype, tmp_path, axis=1) == 0


class Images(quantization.CalibrationDataReader):  # type: ignore[misc]
    """Random images for calibration."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self.images: Iterator[Array] = iter(random.normal(size=(4, 1, 3, 12, 12)).astype("f4"))

    def get_next(self) -> dict[str, Array] | None:
        image = next(self.images, None)
        return None if image is None else {"x": image}


def test_a_network_that_onnx_runtime_quantized(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    weights = {
        "w1": random.normal(size=(8, 3, 3, 3)),
        "b1": random.normal(size=8),
        "w2": random.normal(size=(8, 8, 3, 3)) / 8,
        "b2": random.normal(size=8),
        "w3": random.normal(size=(8, 5)),
        "b3": random.normal(size=5),
    }
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 13]>
    network (float[1, 3, 12, 12] x) => (float[1, 5] y) {
        a = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w1, b1)
        b = Relu(a)
        c = Conv<pads = [1, 1, 1, 1]>(b, w2, b2)
        d = Add(b, c)
        e = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(d)
        f = GlobalAveragePool(e)
        g = Flatten(f)
        y = Gemm(g, w3, b3)
    }""")
    constants = [numpy_helper.from_array(a.astype("f4"), n) for n, a in weights.items()]
    model.graph.initializer.extend(constants)
    onnx.save(model, tmp_path / "float.onnx")
    quantization.quantize_static(
        tmp_path / "float.onnx",
        tmp_path / "int.onnx",
        Images(),
        quant_format=quantization.QuantFormat.QOperator,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )
    quantized = onnx.load(tmp_path / "int.onnx")
    operators = {node.op_type for node in quantized.graph.node}
    assert {"QLinearConv", "QLinearAdd", "QLinearGlobalAveragePool", "QGemm"} <= operators
    x = random.normal(size=(1, 3, 12, 12)).astype("f4")
    expected = onnxruntime.InferenceSession(quantized.SerializeToString()).run(None, {"x": x})
    got = run_model(quantized, [x], tmp_path)
    np.testing.assert_array_equal(got[0], expected[0])


def test_what_onnx_runtime_computes_otherwise_is_refused(tmp_path: Path) -> None:
    network = Network(8)
    for _ in range(2):
        network.integers((3, 4), "int8")
        network.scale("int8")
    network.scale("int8")
    with pytest.raises(ModelError, match=r"QLinearAdd.*has a result of int8, where"):
        network.difference("QLinearAdd", "int8", tmp_path)
    network = Network(9)
    network.integers((3, 4), "uint8")
    network.scale("uint8")
    network.scale("uint8")
    network.inputs["x1"] = network.constants.pop("x1")
    with pytest.raises(ModelError, match="has a scale that is not a constant"):
        network.difference("QLinearSigmoid", "uint8", tmp_path)


def test_damaged_constants_are_refused(tmp_path: Path) -> None:
    node = helper.make_node("QLinearSigmoid", ["x", "s", "z", "s", "z"], ["y"], domain=MICROSOFT)
    scale = TensorProto(name="s", data_type=TensorProto.FLOAT, dims=[3], raw_data=b"1234")
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "network",
        [value("x", TensorProto.UINT8, [4])],
        [value("y", TensorProto.UINT8, [4])],
        [scale, numpy_helper.from_array(np.uint8(3), "z")],
    )
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    with pytest.raises(ModelError):
        run_model(model, [], tmp_path)
