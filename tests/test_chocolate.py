# SPDX-License-Identifier: Apache-2.0
"""Chocolate: trained models on its simulated array, exact and in the predicted cycles; what each
feature of the hardware is worth, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from accelerators import accelerator_with, check_predictions, inputs_of, same_as_the_cpu
from tflite_networks import tflite_micro, trained_model

from umakit import compile_model, run_library
from umakit.backend import UMABackend
from umakit.backend.registry import find_backend
from umakit.partition.partitioner import partition
from umakit.testing.example_networks import QuantizedNetwork

Array = npt.NDArray[Any]

CHOCOLATE = "chocolate_accelerator"
MODELS = {  # by name: what is added to convolutions
    "ad01_int8.tflite": 0,
    "kws_ref_model.tflite": 0,
    "pretrainedResnet_quant.tflite": 3,
}
DIGITS = Path(__file__).parents[1] / "examples" / "digits"
OPERATORS = ("conv2d", "depthwise_conv2d", "dense", "avg_pool2d", "max_pool2d", "add")
LAYERS = {f"quantized.{name}" for name in OPERATORS}
DEVICES = {
    "ad01_int8.tflite": "qemu-cortex-m3",
    "kws_ref_model.tflite": "qemu-cortex-m3",
    "pretrainedResnet_quant.tflite": "qemu-riscv32",
}


@pytest.fixture(scope="module", params=sorted(MODELS))
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A trained model, the backend, and the library that was made of the model."""
    path = trained_model(request.param)
    folder = tmp_path_factory.mktemp("chocolate")
    backend = find_backend(CHOCOLATE)
    return path, backend, compile_model(path, [backend], folder / "library")


@pytest.mark.optimized
def test_trained_models_equal_tensorflow_lite_micro(trained: Any) -> None:
    path, _, library = trained
    inputs = inputs_of(library, 5)
    (output,) = run_library(library.path, inputs).outputs.values()
    (values,) = inputs.values()
    assert len(values) == 10
    np.testing.assert_array_equal(output, tflite_micro(path.read_bytes(), values))


def test_every_layer_is_offloaded_and_every_sum_fused(trained: Any) -> None:
    path, _, library = trained
    for row in library.report.placements:
        assert (row.where == CHOCOLATE) == (row.operator in LAYERS), row
    assert library.report.offloaded_macs == library.report.total_macs > 0
    calls = [call for call in library.program.calls if call.target == CHOCOLATE]
    fused = [call for call in calls if len(call.rows) == 2]
    for call in fused:
        operators = [library.report.placements[row].operator for row in call.rows]
        assert operators == ["quantized.conv2d", "quantized.add"]
    assert len(fused) == MODELS[path.name]


@pytest.mark.optimized
def test_cycles_and_bytes_are_those_predicted(trained: Any) -> None:
    _, backend, library = trained
    ran = run_library(library.path, inputs_of(library, 1), profile=True)
    assert check_predictions(library, ran, backend) >= 9
    for layer in ran.layers:
        assert layer.device_macs == (layer.macs if layer.where == CHOCOLATE else 0)


@pytest.mark.optimized
def test_bare_metal_gives_the_same_results_and_cycles(trained: Any) -> None:
    """The same library, the simulator compiled in, on an emulated microcontroller."""
    path, _, library = trained
    inputs = inputs_of(library, 1)
    host = run_library(library.path, inputs, profile=True)
    bare = run_library(library.path, inputs, profile=True, device=DEVICES[path.name])
    for name, values in host.outputs.items():
        np.testing.assert_array_equal(bare.outputs[name], values)
    for mine, theirs in zip(bare.layers, host.layers, strict=True):
        for figure in (
            "clock_cycles", "array_cycles", "dma_cycles", "moved_bytes", "register_reads",
            "register_writes",
        ):  # fmt: skip
            assert getattr(mine, figure) == getattr(theirs, figure), (mine.name, figure)


def test_quantized_onnx_in_nchw_equals_onnx_runtime(tmp_path: Path) -> None:
    """Another layout and another rounding than TensorFlow Lite's, on the same array."""
    path = DIGITS / "digits_int8.onnx"
    library = compile_model(path, [find_backend(CHOCOLATE)], tmp_path / "library")
    assert {row.operator for row in library.report.offloaded} <= LAYERS
    assert library.report.offloaded_macs == library.report.total_macs > 0
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


# --- other hardware -----------------------------------------------------------------------------


def mixed_network() -> QuantizedNetwork:
    """Layers of every kind, one with few channels, one larger than the scratchpad."""
    network = QuantizedNetwork(40, 36, 24).conv2d(40).conv2d(40, depthwise=True, stride=2)
    network.conv2d(6, dilation=2).pool2d("max").conv2d(6, 1).residual().pool2d("average", 3, 1)
    return network.conv2d(20, (3, 1)).dense(10)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Array, int]:
    """The network's outputs, which are those of the CPU, and its cycles on hardware as it is."""
    folder = tmp_path_factory.mktemp("plain")
    backend = accelerator_with(folder, "chocolate", {})
    library, ran = same_as_the_cpu(mixed_network(), backend, folder)
    assert {row.operator for row in library.report.placements if row.where == "cpu"} == {"reshape"}
    (output,) = ran.outputs.values()
    return output, sum(layer.clock_cycles for layer in ran.layers)


def cycles_with(values: dict[str, Any], folder: Path, plain: tuple[Array, int]) -> float:
    """Cycles of the network, with the same result, on hardware with other values: how many times
    those on hardware as it is."""
    backend = accelerator_with(folder, "chocolate", values)
    model = mixed_network().model()
    library = compile_model(model.module, [backend], folder / "library", name="net")
    ran = run_library(library.path, dict(model.inputs), profile=True)
    (output,) = ran.outputs.values()
    np.testing.assert_array_equal(output, plain[0])
    assert check_predictions(library, ran, backend) == 8
    return sum(layer.clock_cycles for layer in ran.layers) / plain[1]


@pytest.mark.parametrize(
    ("place", "value", "least"),
    [
        ("device.command_queue", 0, 1.05),
        ("device.command_queue", 2, 1.01),
        ("array.preload", False, 1.1),
        ("array.pack_columns", False, 1.005),
        ("dma.outstanding", False, 1.01),
    ],
)
def test_without_a_feature_results_are_the_same_and_cycles_more(
    place: str, value: Any, least: float, plain: tuple[Array, int], tmp_path: Path
) -> None:
    assert cycles_with({place: value}, tmp_path, plain) >= least


def test_polling_takes_as_long(plain: tuple[Array, int], tmp_path: Path) -> None:
    polling = cycles_with({"device.completion": "polling"}, tmp_path, plain)
    assert polling == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (4, 16), (32, 32)])
def test_another_array_has_other_cycles_and_the_same_results(
    rows: int, columns: int, plain: tuple[Array, int], tmp_path: Path
) -> None:
    found = cycles_with({"array.rows": rows, "array.columns": columns}, tmp_path, plain)
    assert (found < 1) == (rows * columns > 16 * 16)


def reasons(network: QuantizedNetwork, backend: UMABackend) -> list[str]:
    report = partition(network.model().module, [backend]).report
    assert {row.where for row in report.placements} == {"cpu"}
    return [row.reason for row in report.placements]


def test_a_layer_that_cannot_be_cut_to_fit_is_refused_with_numbers(tmp_path: Path) -> None:
    values = {"memory.size": 1024, "memory.banks": 16, "memory.alignment": 64}
    backend = accelerator_with(tmp_path, "chocolate", values)
    # One position, one input channel and a block of 16 filters, each in banks of 64 bytes: 49 of
    # data, 49 x 16 weights, 9 x 16 of bias, multipliers and shifts, 16 of the result.
    network = QuantizedNetwork(12, 12, 40).conv2d(16, 7)
    assert reasons(network, backend) == ["needs 1,152 B, scratchpad has 1,024 B"]
    fits = QuantizedNetwork(12, 12, 40).conv2d(16, (7, 5))
    library, ran = same_as_the_cpu(fits, backend, tmp_path)
    assert check_predictions(library, ran, backend) == 1


def test_alignment_of_transfers_is_refused(tmp_path: Path) -> None:
    backend = accelerator_with(tmp_path, "chocolate", {"dma.alignment": 4})
    assert reasons(QuantizedNetwork(8, 8, 4).conv2d(8), backend) == [
        "tiles start at any byte, the DMA engine copies from multiples of 4"
    ]
