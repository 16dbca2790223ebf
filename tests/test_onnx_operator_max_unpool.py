# SPDX-License-Identifier: Apache-2.0
"""ONNX MaxUnpool: the same tensors as ONNX Runtime, and what is not taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_node_tests import run_model

from umakit.errors import ModelError

PLACES = np.array([0, 3, 9, 14], np.int64).reshape(1, 1, 2, 2)
"""Of the maxima in 4 x 4 elements."""


def network(text: str, places: str = "{0, 3, 9, 14}") -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 11]>
    network (float[1, 1, 2, 2] x, int64[1, 1, 2, 2] given) => (float[1, 1, h, w] y)
    <int64[1, 1, 2, 2] places = {places}, int64[4] same = {{1, 1, 4, 4}},
     int64[4] less = {{1, 1, 4, 3}}, int64[1, 1, 1, 4] row = {{0, 3, 9, 14}}>
    {{ y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>({text}) }}""")


@pytest.mark.parametrize("text", ["x, places", "x, given", "x, given, same"])
def test_elements_are_those_of_onnx_runtime(text: str, tmp_path: Path) -> None:
    model = network(text)
    x = np.random.default_rng(3).normal(0, 1, (1, 1, 2, 2)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    expected = session.run(None, {"x": x, "given": PLACES})[0]
    got = run_model(model, [x, PLACES], tmp_path)
    assert not isinstance(got, str), got
    np.testing.assert_array_equal(got[0], expected)


def test_a_larger_output_shape_adds_zeros_behind(tmp_path: Path) -> None:
    model = network("x, places, same")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 1, 5, 6]), "larger"))
    model.graph.node[0].input[2] = "larger"
    x = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2)
    got = run_model(model, [x, PLACES], tmp_path)
    expected = np.zeros(16, np.float32)
    expected[PLACES.reshape(-1)] = x.reshape(-1)
    assert not isinstance(got, str), got
    padded = np.pad(expected.reshape(1, 1, 4, 4), ((0, 0), (0, 0), (0, 1), (0, 2)))
    np.testing.assert_array_equal(got[0], padded)


@pytest.mark.parametrize(
    ("text", "places", "words"),
    [
        ("x, places", "{0, 3, 9, 16}", "has the index 16, which is out of range"),
        ("x, places", "{0, 3, -1, 14}", "has the index -1, which is out of range"),
        ("x, places, less", "{0, 3, 9, 14}", r"output_shape that is .* below \[1, 1, 4, 4\]"),
        ("x, row", "{0, 3, 9, 14}", r"inputs \[1, 1, 2, 2\], \[1, 1, 1, 4\]"),
    ],
)
def test_what_is_not_taken_is_named(text: str, places: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"MaxUnpool.*{words}"):
        run_model(network(text, places), [], tmp_path)
