# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's Gelu and its relatives: drawn networks compared with ONNX Runtime."""

from __future__ import annotations

import pytest
from onnx_drawing import Draw, Network, makes
from onnx_sweep import assert_right

OPERATORS = "com.microsoft.Gelu com.microsoft.BiasGelu com.microsoft.FastGelu"


@makes(f"{OPERATORS} com.microsoft.QuickGelu")
def gelu(draw: Draw) -> Network:
    shape = draw.shape(draw.integer(1, 3))
    inputs = [draw.array(shape)]
    if draw.operator == "BiasGelu" or (draw.operator == "FastGelu" and draw.flag()):
        inputs.append(draw.array(shape[-1:]))
    attributes = draw.attributes(alpha=[0.5, 2.0]) if draw.operator == "QuickGelu" else {}
    return Network(attributes, list(inputs), draw.of([(), (1,)]))


@pytest.mark.parametrize("operator", [*OPERATORS.split(), "com.microsoft.QuickGelu"])
def test_drawn_networks_are_right(operator: str) -> None:
    assert_right(operator, 2)
