# SPDX-License-Identifier: Apache-2.0
"""ONNX TopK: drawn networks compared with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx_drawing import Draw, Network, makes
from onnx_node_tests import run_model
from onnx_sweep import assert_right


@makes("TopK")
def top(draw: Draw) -> Network:
    shape = draw.shape(draw.integer(1, 3), 2, 5)
    axis = draw.integer(0, len(shape) - 1)
    k = draw.integer(1, shape[axis])
    attributes = {"axis": axis, **draw.attributes(largest=[0, 1], sorted=[1])}
    x = draw.array(shape, draw.dtype(), draw.of([1, 100]))
    if draw.opset < 10:
        return Network({**attributes, "k": k}, [x], (), 2)
    return Network(attributes, [x, np.array([k])], (1,), 2)


def test_drawn_networks_are_right() -> None:
    assert_right("TopK", 4)


def test_indices_are_positions_of_other_operators(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    network (float[3, 7] x, float[7, 2] table) => (float[3, 3, 2] y)
    <int64[1] k = {3}>
    {
        values, places = TopK<axis = 1, sorted = 1>(x, k)
        y = Gather<axis = 0>(table, places)
    }"""
    model = onnx.parser.parse_model(text)
    random = np.random.default_rng(0)
    inputs = [random.integers(0, 4, (3, 7)), random.normal(size=(7, 2))]
    inputs = [values.astype(np.float32) for values in inputs]
    session = onnxruntime.InferenceSession(model.SerializeToString())
    expected = session.run(None, dict(zip(("x", "table"), inputs, strict=True)))
    np.testing.assert_array_equal(run_model(model, inputs, tmp_path), expected)
