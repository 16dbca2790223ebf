# SPDX-License-Identifier: Apache-2.0
"""ONNX OneHot: drawn networks compared with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_drawing import Draw, Network, makes
from onnx_node_tests import run_model
from onnx_sweep import assert_right

from umakit.errors import ModelError


@makes("OneHot")
def one_hot(draw: Draw) -> Network:
    shape = draw.shape(draw.integer(1, 2))
    depth = draw.integer(1, 5)
    kind = draw.of(["int64", "int32", "float32"])
    indices = draw.random.integers(-depth, depth, shape).astype(kind)
    values = np.array([2, 7], draw.of(["float32", "int64", "int32"]))
    axes = list(range(-len(shape) - 1, len(shape) + 1))
    return Network(draw.attributes(axis=axes), [indices, np.array(depth), values], (1, 2))


def test_drawn_networks_are_right() -> None:
    assert_right("OneHot", 4)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("y = OneHot(x, given, values)", "needs a constant depth and two constant values"),
        ("y = OneHot(x, none, values)", "has the depth 0"),
        ("y = OneHot<axis = 2>(x, five, values)", "has axis=2, but its result has 2 dimensions"),
    ],
)
def test_what_is_not_taken_is_named(text: str, words: str, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 11]>
        network (int64[3] x, int64 given) => (float[n, m] y)
        <int64 none = {{0}}, int64 five = {{5}}, float[2] values = {{0, 1}}> {{ {text} }}""")
    with pytest.raises(ModelError, match=f"OneHot.*{words}"):
        run_model(model, [], tmp_path)
