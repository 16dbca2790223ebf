# SPDX-License-Identifier: Apache-2.0
"""ONNX ConvInteger compared with ONNX Runtime, which has it with one zero point for all weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx_drawing import Array, Draw, Network, makes
from onnx_node_tests import run_model
from onnx_sweep import assert_right


@makes("ConvInteger")
def convolution(draw: Draw) -> Network:
    rank, group = draw.integer(1, 3), draw.of([1, 1, 2])
    kernel = [draw.integer(1, 3) for _ in range(rank)]
    attributes: dict[str, Any] = {"group": group} | draw.attributes(
        strides=[[draw.integer(1, 2) for _ in range(rank)]],
        auto_pad=["SAME_UPPER", "SAME_LOWER", "VALID"],
        kernel_shape=[kernel],
    )
    if "auto_pad" not in attributes and draw.flag():
        attributes["pads"] = [draw.integer(0, k - 1) for k in kernel * 2]
    x = draw.random.integers(0, 256, (1, 2 * group, *draw.shape(rank, 5, 8))).astype("uint8")
    kind = np.iinfo(draw.of(["int8", "uint8"]))
    shape = (group * draw.integer(1, 3), 2, *kernel)
    weights = draw.random.integers(kind.min, kind.max + 1, shape).astype(kind.dtype)
    zeros: list[Array | None] = [np.array(draw.integer(0, 255), "uint8")]
    zeros.append(np.array(draw.integer(kind.min, kind.max), kind.dtype))
    given = zeros[: draw.integer(0, 2)]
    constants = draw.of([(2, 3), (1, 2, 3)])
    return Network(attributes, [x, weights, *given], constants[: len(given) + 1])


def test_drawn_networks_are_right() -> None:
    assert_right("ConvInteger", 4)


def test_a_zero_point_for_each_channel(tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 13]>
    network (uint8[1, 2, 6, 6] x, int8[3, 2, 3, 3] w, uint8 a, int8[3] b) => (int32[1, 3, 6, 6] y)
    { y = ConvInteger<pads = [1, 1, 1, 1], kernel_shape = [3, 3]>(x, w, a, b) }""")
    exact = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 13]>
    network (float[1, 2, 6, 6] x, float[3, 2, 3, 3] w) => (float[1, 3, 6, 6] y)
    { y = Conv<pads = [1, 1, 1, 1]>(x, w) }""")
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (1, 2, 6, 6)).astype("uint8")
    w = random.integers(-128, 128, (3, 2, 3, 3)).astype("int8")
    a, b = np.array(77, "uint8"), np.array([-5, 0, 9], "int8")
    real = {"x": x.astype("f4") - 77, "w": w.astype("f4") - b.reshape(3, 1, 1, 1)}
    expected = onnxruntime.InferenceSession(exact.SerializeToString()).run(None, real)
    got = run_model(model, [x, w, a, b], tmp_path)
    np.testing.assert_array_equal(got[0], expected[0])
