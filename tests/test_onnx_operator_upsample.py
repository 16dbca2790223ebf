# SPDX-License-Identifier: Apache-2.0
"""ONNX Upsample, which opset 10 replaced, with scales where each opset has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_node_tests import run_model

X = np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3)
NODES = {
    1: 'y = Upsample<height_scale = 2.0, width_scale = 3.0, mode = "{mode}">(x)',
    7: 'y = Upsample<scales = [1.0, 1.0, 2.0, 3.0], mode = "{mode}">(x)',
    9: 'y = Upsample<mode = "{mode}">(x, scales)',
}
"""By opset."""


def linear(data: np.ndarray, size: int, axis: int) -> np.ndarray:
    """Straight lines between elements at whole multiples of the scale, as `asymmetric` says."""
    count = data.shape[axis]
    places = np.minimum(np.arange(size) * count / size, count - 1)
    low = np.floor(places).astype(int)
    high = np.minimum(low + 1, count - 1)
    rest = (places - low).reshape([-1 if a == axis else 1 for a in range(data.ndim)])
    return data.take(low, axis) * (1 - rest) + data.take(high, axis) * rest


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("opset", NODES)
def test_upsample(opset: int, mode: str, tmp_path: Path) -> None:
    word = "bilinear" if opset == 1 and mode == "linear" else mode
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": {opset}]>
    network (float[1, 2, 2, 3] x) => (float[1, 2, 4, 9] y)
    <float[4] scales = {{1.0, 1.0, 2.0, 3.0}}> {{ {NODES[opset].format(mode=word)} }}""")
    expected = {
        "nearest": X.repeat(2, 2).repeat(3, 3),
        "linear": linear(linear(X, 4, 2), 9, 3),
    }[mode]
    got = run_model(model, [X], tmp_path)
    np.testing.assert_allclose(got[0], expected, rtol=1e-6)
