# SPDX-License-Identifier: Apache-2.0
"""ONNX DynamicQuantizeLinear, and networks of `quantize_dynamic`, compared with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_node_tests
import onnxruntime
import pytest
from onnx import numpy_helper
from onnx_drawing import Draw, Network, makes
from onnx_node_tests import run_model
from onnx_sweep import assert_right
from onnxruntime import quantization


@makes("DynamicQuantizeLinear")
def dynamic_quantization(draw: Draw) -> Network:
    x = draw.array(draw.shape(), limit=draw.of([0.01, 1, 300]))
    x = draw.of([x, abs(x), -abs(x), x * np.float32(0)])
    return Network({}, [np.asarray(x, np.float32)], (), 3)


def test_drawn_networks_are_right() -> None:
    assert_right("DynamicQuantizeLinear", 3)


@pytest.mark.parametrize("cpu", ["generic", "x86-64-v3", "cortex-a76"])
def test_a_network_that_is_quantized_at_run_time(
    cpu: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_node_tests, "CPU", cpu)
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 13]>
    network (float[4, 16] x) => (float[4, 3] y) {
        a = MatMul(x, w1)
        b = Add(a, b1)
        c = Relu(b)
        y = MatMul(c, w2)
    }""")
    random = np.random.default_rng(0)
    constants = {"w1": (16, 12), "b1": (12,), "w2": (12, 3)}
    model.graph.initializer.extend(
        numpy_helper.from_array(random.normal(size=shape).astype("f4"), name)
        for name, shape in constants.items()
    )
    onnx.save(model, tmp_path / "float.onnx")
    quantization.quantize_dynamic(tmp_path / "float.onnx", tmp_path / "dynamic.onnx")
    dynamic = onnx.load(tmp_path / "dynamic.onnx")
    operators = {node.op_type for node in dynamic.graph.node}
    assert {"DynamicQuantizeLinear", "MatMulInteger"} <= operators
    x = random.normal(size=(4, 16)).astype("f4")
    expected = onnxruntime.InferenceSession(dynamic.SerializeToString()).run(None, {"x": x})
    got = run_model(dynamic, [x], tmp_path)
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-5, atol=1e-5)
