# SPDX-License-Identifier: Apache-2.0
"""Strawberry: trained models on its simulated array, exact; what it refuses; cycles and bytes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from accelerators import accelerator_with, inputs_of, same_as_the_cpu
from comparisons import examples
from hypothesis import Phase, given
from hypothesis import strategies as st
from tflite_networks import tflite_micro, trained_model

from umakit import compile_model, run_library
from umakit.backend.registry import find_backend
from umakit.machine.systolic import Dataflow, Product, SystolicArray, systolic_cycles
from umakit.partition.partitioner import partition
from umakit.testing.example_networks import QuantizedNetwork

pytestmark = pytest.mark.optimized

STRAWBERRY = "strawberry_accelerator"
MODELS = ("ad01_int8.tflite", "kws_ref_model.tflite", "pretrainedResnet_quant.tflite")
DIGITS = Path(__file__).parents[1] / "examples" / "digits"
LAYERS = ("quantized.conv2d", "quantized.dense", "quantized.depthwise_conv2d")
TOO_LARGE = re.compile(r"needs [\d,]+ B, scratchpad has 65,536 B")


@pytest.fixture(scope="module", params=MODELS)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A trained model and the library that was made of it."""
    path = trained_model(request.param)
    folder = tmp_path_factory.mktemp("strawberry")
    return path, compile_model(path, [find_backend(STRAWBERRY)], folder / "library")


def test_trained_models_equal_tensorflow_lite_micro(trained: Any) -> None:
    path, library = trained
    inputs = inputs_of(library, 10)
    (output,) = run_library(library.path, inputs).outputs.values()
    (values,) = inputs.values()
    np.testing.assert_array_equal(output, tflite_micro(path.read_bytes(), values))


def test_every_layer_that_fits_is_offloaded(trained: Any) -> None:
    _, library = trained
    layers = [row for row in library.report.placements if row.operator in LAYERS]
    assert len(layers) >= 9
    for row in layers:
        assert row.where == STRAWBERRY or TOO_LARGE.fullmatch(row.reason), row
    if library.metadata["umakit"]["name"] != "ad01_int8":
        assert library.report.offloaded_macs == library.report.total_macs


def test_the_device_moves_the_bytes_that_the_report_says(trained: Any) -> None:
    _, library = trained
    layers = run_library(library.path, inputs_of(library, 1), profile=True).layers
    traffic = library.metadata["umakit"]["memory"]["traffic"]
    assert sum(layer.moved_bytes for layer in layers) == traffic["moved"]
    assert sum(kept["saved"] for kept in traffic["kept"]) > 0
    for layer in layers:
        assert layer.device_macs == (layer.macs if layer.where == STRAWBERRY else 0)
        # One engine at a time: no cycle is both.
        assert layer.cycles == layer.array_cycles + layer.dma_cycles


@pytest.mark.parametrize("device", ["qemu-cortex-m3", "qemu-riscv32"])
def test_bare_metal_gives_the_same_results_and_cycles(device: str, trained: Any) -> None:
    """The same library, the simulator compiled in, on an emulated microcontroller."""
    _, library = trained
    inputs = inputs_of(library, 1)
    host = run_library(library.path, inputs, profile=True)
    bare = run_library(library.path, inputs, profile=True, device=device)
    for name, values in host.outputs.items():
        np.testing.assert_array_equal(bare.outputs[name], values)
    for mine, theirs in zip(bare.layers, host.layers, strict=True):
        for figure in ("cycles", "array_cycles", "dma_cycles", "moved_bytes", "device_macs"):
            assert getattr(mine, figure) == getattr(theirs, figure), (mine.name, figure)


def test_quantized_onnx_in_nchw_equals_onnx_runtime(tmp_path: Path) -> None:
    """Another layout and another rounding than TensorFlow Lite's, on the same array."""
    path = DIGITS / "digits_int8.onnx"
    library = compile_model(path, [find_backend(STRAWBERRY)], tmp_path / "library")
    offloaded = {row.operator for row in library.report.offloaded}
    assert offloaded == {"quantized.conv2d", "quantized.dense"}
    (input_view,) = library.metadata["umakit"]["inputs"]
    random = np.random.default_rng(4)
    inputs = random.uniform(0, 1, (40, *input_view["shape"])).astype(np.float32)
    if input_view["dtype"] != "float32":
        inputs = (inputs * 255 - (128 if input_view["dtype"] == "int8" else 0)).astype(
            input_view["dtype"]
        )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    expected = np.stack([session.run(None, {name: row})[0] for row in inputs])
    (output,) = run_library(library.path, {name: inputs}).outputs.values()
    np.testing.assert_array_equal(output, expected)


# --- networks drawn at random -------------------------------------------------------------------


@examples(4, phases=[Phase.explicit, Phase.generate])
@given(data=st.data())
def test_layers_of_any_shape_are_exact(data: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    def size(least: int, largest: int) -> int:
        return int(data.draw(st.integers(least, largest)))

    network = QuantizedNetwork(
        size(5, 12), size(5, 12), size(1, 9),
        layout=data.draw(st.sampled_from(["NHWC", "NCHW"])),
        rounding=data.draw(st.sampled_from(["tflm", "ort"])),
        seed=size(0, 1000),
    )  # fmt: skip
    network.conv2d(
        size(1, 19), (size(1, 4), size(1, 4)), size(1, 2),
        padding=data.draw(st.sampled_from(["same", "valid"])),
        per_channel=data.draw(st.booleans()),
    )  # fmt: skip
    filters = network.channels * size(1, 2)
    network.conv2d(filters, size(1, 3), size(1, 2), depthwise=True).dense(size(1, 12))
    folder = tmp_path_factory.mktemp("random")
    library, _ = same_as_the_cpu(network, find_backend(STRAWBERRY), folder)
    assert {row.operator for row in library.report.placements if row.where == "cpu"} == {"reshape"}


@pytest.mark.parametrize(
    ("rows", "columns", "dataflow", "drain"),
    [
        (4, 16, "weight_stationary", 0),
        (16, 4, "input_stationary", 4),
        (3, 5, "output_stationary", 3),
    ],
)
def test_another_array_has_other_cycles_and_the_same_results(
    rows: int, columns: int, dataflow: str, drain: int, tmp_path: Path
) -> None:
    # An input that stays would meet one weight only in a depthwise convolution.
    depthwise = dataflow != "input_stationary"
    values = {
        "array.rows": rows, "array.columns": columns, "array.dataflow": dataflow,
        "array.drain_cycles": drain, "array.depthwise": depthwise, "array.setup_cycles": 5,
    }  # fmt: skip
    backend = accelerator_with(tmp_path, "strawberry", values)
    network = QuantizedNetwork(9, 7, 6).conv2d(10, 3, 2).conv2d(10, depthwise=depthwise).dense(9)
    _, ran = same_as_the_cpu(network, backend, tmp_path)
    array = SystolicArray(rows, columns, Dataflow(dataflow), drain)
    # Rows and columns of the result, output channels, elements of a dot product.
    taps = 9 if depthwise else 9 * 10
    products = [Product(5 * 4, 10, 9 * 6), Product(5 * 4, 10, taps), Product(1, 9, 200)]
    expected = [5 + systolic_cycles(product, array).cycles for product in products]
    assert [layer.array_cycles for layer in ran.layers if layer.where != "cpu"] == expected


def test_an_array_without_a_depthwise_mode_says_so(tmp_path: Path) -> None:
    backend = accelerator_with(tmp_path, "strawberry", {"array.depthwise": False})
    network = QuantizedNetwork(8, 8, 4).conv2d(4, depthwise=True)
    (row,) = partition(network.model().module, [backend]).report.placements
    assert row.where == "cpu"
    assert "depthwise" in row.reason


def test_a_smaller_scratchpad_refuses_more_and_stays_exact(tmp_path: Path) -> None:
    backend = accelerator_with(tmp_path, "strawberry", {"memory.size": 2048})
    network = QuantizedNetwork(8, 8, 4).conv2d(8).conv2d(16).conv2d(8, 1)
    library, _ = same_as_the_cpu(network, backend, tmp_path)
    reasons = {row.name: row.reason for row in library.report.placements}
    assert reasons == {
        "conv1": "", "conv2": "needs 2,832 B, scratchpad has 2,048 B", "conv3": "",
    }  # fmt: skip
