# SPDX-License-Identifier: Apache-2.0
"""Patterns on quantized ONNX files: data in NCHW, and a driver that rounds as ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from integer_backend import BLOCKED, Npu
from networks import Array, Graph, save
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_static,
)

from umakit import compile_model, patterns, run_library

DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits_int8.onnx"
DRIVERS = {
    "qconv2d": "npu_qconv2d_nchw",
    "qdepthwise": "npu_qdepthwise_nchw",
    "qmax_pool2d": "npu_qmax_pool2d_nchw",
    "qdense": "npu_qdense",
}


def onnx_npu(folder: Path, *, blocked: bool = False) -> Npu:
    """A backend that computes what ONNX Runtime does, in C."""
    given: dict[str, Any] = {"rounding": "ort", "layouts": "NCHW"}
    prepared = {"weight_layout": BLOCKED, "fold_zero_point": True} if blocked else {}
    registrations = [
        patterns.qconv2d(groups=None, dilation=None, **given, **prepared),
        patterns.qdepthwise(**given),
        patterns.qmax_pool2d(layouts="NCHW"),
        patterns.qdense(rounding="ort", weight_layout="IO"),
    ]
    convolution = "npu_qconv2d_blocked_nchw" if blocked else "npu_qconv2d_nchw"
    return Npu(folder, registrations, DRIVERS | {"qconv2d": convolution})


class Calibration(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, shape: tuple[int, ...]) -> None:
        random = np.random.default_rng(7)
        self.batches = iter([{"x": random.normal(size=shape).astype("f4")} for _ in range(4)])

    def get_next(self) -> Any:
        return next(self.batches, None)


def quantized_network(folder: Path) -> Path:
    """Strides, uneven padding, dilation, groups, depthwise, a pool, per channel, by the exporter's
    own tool."""
    graph = Graph(seed=21)
    x = graph.input("x", 1, 3, 15, 14)
    x = graph.node("Relu", graph.conv(x, 12, 3, bias=True, strides=[2, 1], pads=[1, 0, 2, 1]))
    x = graph.node("Relu", graph.conv(x, 12, 3, bias=True, group=12, pads=[1, 1, 1, 1]))
    x = graph.node("Relu", graph.conv(x, 20, 1, bias=True, group=2))
    x = graph.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = graph.conv(x, 9, 3, bias=True, dilations=[1, 2], pads=[1, 2, 1, 2])
    flat = graph.node("Flatten", graph.node("Relu", x))
    graph.output(graph.dense(flat, 9 * 4 * 6, 10))
    path = save(graph.model(), folder)
    quantize_static(
        path,
        folder / "quantized.onnx",
        Calibration((1, 3, 15, 14)),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
    )
    return folder / "quantized.onnx"


def onnx_runtime(path: Path, inputs: Array) -> Array:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (name,) = (item.name for item in session.get_inputs())
    return np.stack([session.run(None, {name: array})[0] for array in inputs])


@pytest.mark.parametrize("blocked", [False, True], ids=["OHWI", "blocked"])
def test_the_driver_equals_onnx_runtime(blocked: bool, tmp_path: Path) -> None:
    path = quantized_network(tmp_path)
    npu = onnx_npu(tmp_path, blocked=blocked)
    library = compile_model(path, [npu], tmp_path / "library")
    offloaded = [row.operator for row in library.report.offloaded]
    assert offloaded.count("quantized.conv2d") == 3 and "quantized.dense" in offloaded
    assert offloaded.count("quantized.depthwise_conv2d") == 1
    assert "quantized.max_pool2d" in offloaded
    inputs = np.random.default_rng(3).normal(size=(50, 1, 3, 15, 14)).astype("f4")
    (output,) = run_library(library.path, {"x": inputs}).outputs.values()
    expected = onnx_runtime(path, inputs)
    assert len(np.unique(expected)) > 50
    np.testing.assert_array_equal(output, expected)


def test_the_trained_digits_equal_onnx_runtime(tmp_path: Path) -> None:
    library = compile_model(DIGITS, [onnx_npu(tmp_path, blocked=True)], tmp_path / "library")
    assert library.report.offloaded_macs == library.report.total_macs > 0
    images = np.random.default_rng(5).uniform(0, 16, (100, 1, 1, 8, 8)).astype("f4")
    (output,) = run_library(library.path, {"image": images}).outputs.values()
    np.testing.assert_array_equal(output, onnx_runtime(DIGITS, images))


def test_the_other_rounding_is_refused_with_its_name(tmp_path: Path) -> None:
    npu = Npu(tmp_path, [patterns.qconv2d(layouts="NCHW")])
    library = compile_model(DIGITS, [npu], tmp_path / "library")
    reasons = {r.reason for r in library.report.placements if r.operator == "quantized.conv2d"}
    assert reasons == {"rounding ort: the accelerator rounds as tflm"}
