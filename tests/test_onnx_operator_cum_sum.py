# SPDX-License-Identifier: Apache-2.0
"""ONNX CumSum: drawn networks compared with ONNX Runtime."""

from __future__ import annotations

import numpy as np
from onnx_drawing import Draw, Network, makes
from onnx_sweep import assert_right


@makes("CumSum")
def cumulative_sum(draw: Draw) -> Network:
    shape = draw.shape(draw.integer(1, 3))
    axis = np.array(draw.integer(-len(shape), len(shape) - 1), draw.of(["int32", "int64"]))
    attributes = draw.attributes(exclusive=[0, 1], reverse=[0, 1])
    return Network(attributes, [draw.array(shape, draw.dtype()), axis], (1,))


def test_drawn_networks_are_right() -> None:
    assert_right("CumSum", 4)
