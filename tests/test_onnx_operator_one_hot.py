# SPDX-License-Identifier: Apache-2.0
"""ONNX OneHot: drawn networks compared with ONNX Runtime."""

from __future__ import annotations

import numpy as np
from onnx_drawing import Draw, Network, makes
from onnx_sweep import assert_right


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
