# SPDX-License-Identifier: Apache-2.0
"""ONNX LayerNormalization with all its outputs: drawn networks compared with ONNX Runtime."""

from __future__ import annotations

from onnx_drawing import Draw, Network, makes
from onnx_sweep import assert_right


@makes("LayerNormalization")
def layer_normalization(draw: Draw) -> Network:
    dtype = draw.dtype(among=("float32", "float64"))
    shape = draw.shape(draw.integer(1, 4), 2)
    axis = draw.integer(-len(shape), len(shape) - 1)
    values = [draw.array(shape[axis % len(shape) :], dtype) for _ in range(draw.integer(1, 2))]
    attributes = {"axis": axis, **draw.attributes(epsilon=[0.1, 1e-3])}
    outputs = draw.of([(0,), (0, 1), (0, 2), (0, 1, 2)])
    inputs = [draw.array(shape, dtype), *values]
    return Network(attributes, list(inputs), (1, 2)[: len(values)], outputs)


def test_drawn_networks_are_right() -> None:
    assert_right("LayerNormalization", 4)
