# SPDX-License-Identifier: Apache-2.0
"""ONNX Slice of all opsets compared with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_node_tests import run_model

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
LAST, FIRST = 2**63 - 1, -(2**63)


@pytest.mark.parametrize("opset", [1, 13])
@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ([1], [2], None, None),
        ([0, 1, -2], [2, -1, LAST], None, None),
        ([-9, 2], [9, 4], [2, 0], None),
        ([-3, 1], [-1, 3], [1, 2], None),
        ([-1], [FIRST], [1], [-1]),
        ([3, 9], [0, -9], [1, 2], [-2, -3]),
        ([-9], [-9], [1], [-1]),
        ([0], [LAST], [-1], [3]),
    ],
)
def test_places(
    opset: int,
    starts: list[int],
    ends: list[int],
    axes: list[int] | None,
    steps: list[int] | None,
    tmp_path: Path,
) -> None:
    given = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
    given = {name: value for name, value in given.items() if value is not None}
    if opset < 10 and (steps or min(axes or [0]) < 0):
        pytest.skip("came with opset 10")
    if opset < 10:
        node, constants = helper.make_node("Slice", ["x"], ["y"], **given), {}
    else:
        names = ["x", *(name if name in given else "" for name in ("starts", "ends", "axes"))]
        names += ["steps"] if steps else []
        node, constants = helper.make_node("Slice", names, ["y"]), given
    graph = helper.make_graph(
        [node],
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": X})
    got = run_model(model, [X], tmp_path)
    np.testing.assert_array_equal(got, expected)
