# SPDX-License-Identifier: Apache-2.0
"""Real architectures at full size, from ONNX to Vanilla's C library and back."""

from __future__ import annotations

import math
import time
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from comparisons import some
from execution import VANILLA, vanilla
from networks import (
    Array,
    assert_close,
    fold_batch_norms,
    mobilenet_v1,
    onnx_runtime,
    random_inputs,
    resnet18,
    save,
)

import umakit
from umakit.devices.run import LayerProfile, RunResult
from umakit.library.export import Library
from umakit.testing.harness import llvm_runner

pytestmark = pytest.mark.optimized

DIGITS = Path(__file__).parents[1] / "examples" / "digits"


@dataclass(frozen=True)
class Layer:
    """A convolution that the accelerator must take, by the architecture's table."""

    name: str
    filters: int
    channels: int
    size: int
    kernel: int

    @property
    def macs(self) -> int:
        return self.filters * self.channels * self.size**2 * self.kernel**2

    def cycles(self, rows: int, columns: int) -> int:
        """An output-stationary array: one fold for each `rows` positions of `columns` filters."""
        depth = self.channels * self.kernel**2
        folds = math.ceil(self.size**2 / rows) * math.ceil(self.filters / columns)
        return folds * (rows + columns + depth - 2)


def mobilenet_layers(alpha: float) -> list[Layer]:
    """The pointwise convolutions: filters, channels and size from table 1 of Howard et al."""
    table = [(64, 32, 112), (128, 64, 56), (128, 128, 56), (256, 128, 28), (256, 256, 28),
             (512, 256, 14), *[(512, 512, 14)] * 5, (1024, 512, 7), (1024, 1024, 7)]  # fmt: skip
    return [
        Layer(f"pointwise{number}", int(filters * alpha), int(channels * alpha), size, 1)
        for number, (filters, channels, size) in enumerate(table, 1)
    ]


def resnet18_layers() -> list[Layer]:
    """Every 3x3 convolution but the strided ones at the head of stages 2 to 4."""
    return [
        Layer(f"stage{stage}_block{block}_conv{conv}", filters, filters, size, 3)
        for stage, filters, size in ((1, 64, 56), (2, 128, 28), (3, 256, 14), (4, 512, 7))
        for block in (1, 2)
        for conv in (1, 2)
        if stage == 1 or (block, conv) != (1, 1)
    ]


@dataclass(frozen=True)
class Architecture:
    """A network, what the accelerator takes of it, and its published size."""

    model: onnx.ModelProto
    accelerated: list[Layer]
    macs: int
    """Of the whole network: 569 M (Howard et al., table 4), 1.8 G (He et al., table 1)."""


ARCHITECTURES = {
    "mobilenet_v1": lambda: Architecture(mobilenet_v1(1.0), mobilenet_layers(1.0), 568_740_352),
    "resnet18": lambda: Architecture(resnet18(), resnet18_layers(), 1_814_073_344),
    "mobilenet_v1_025_folded": lambda: Architecture(
        fold_batch_norms(mobilenet_v1(0.25)), mobilenet_layers(0.25), 41_030_272
    ),
}


@dataclass(frozen=True)
class Run:
    """An architecture that was compiled and run once."""

    architecture: Architecture
    inputs: dict[str, Array]
    library: Library
    result: RunResult
    path: Path


@pytest.fixture(scope="module", params=some(ARCHITECTURES, 2))
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp(request.param)
    architecture = ARCHITECTURES[request.param]()
    inputs = random_inputs(architecture.model)
    path = save(architecture.model, folder, request.param)
    started = time.perf_counter()
    library = umakit.compile_model(path, [vanilla()], folder / "library")
    compiled = time.perf_counter()
    result = umakit.run_library(library.path, inputs, profile=True)
    finished = time.perf_counter()
    print(
        f"\n{request.param}: compiled in {compiled - started:.1f} s, built and run in "
        f"{finished - compiled:.1f} s, one inference {result.times[0] * 1000:.0f} ms"
    )
    return Run(architecture, inputs, library, result, path)


def accelerated(run: Run) -> list[LayerProfile]:
    return [layer for layer in run.result.layers if layer.where == VANILLA]


@pytest.mark.soak
def test_a_whole_network(run: Run) -> None:
    """One test, because each process that took one of several would compile and run again."""
    _outputs_equal_onnx_runtime(run)
    _outputs_equal_tvms_own_build(run)
    _network_has_its_published_size(run)
    _report_lists_what_the_accelerator_runs(run)
    _device_counts_what_the_shapes_say(run)


def _outputs_equal_onnx_runtime(run: Run) -> None:
    expected = onnx_runtime(run.architecture.model, run.inputs)
    assert list(run.result.outputs) == list(expected)
    for name, wanted in expected.items():
        assert_close(run.result.outputs[name], wanted)


def _outputs_equal_tvms_own_build(run: Run) -> None:
    expected = llvm_runner(umakit.import_model(run.path))(run.inputs)
    for name, wanted in expected.items():
        assert_close(run.result.outputs[name], wanted)


def _network_has_its_published_size(run: Run) -> None:
    assert run.library.report.total_macs == run.architecture.macs
    assert sum(layer.macs for layer in run.result.layers) == run.architecture.macs


def _report_lists_what_the_accelerator_runs(run: Run) -> None:
    layers = run.architecture.accelerated
    report = run.library.report
    assert [(row.name, row.macs) for row in report.offloaded] == [
        (layer.name, layer.macs) for layer in layers
    ]
    assert all(
        row.reason.startswith(("stride 2x2", "groups="))
        for row in report.placements
        if row.operator == "nn.conv2d" and row.where == "cpu"
    )


def _device_counts_what_the_shapes_say(run: Run) -> None:
    layers = run.architecture.accelerated
    array = tomllib.loads((vanilla().folder / "accel.toml").read_text())["array"]
    counted = [(layer.name, layer.device_macs, layer.cycles) for layer in accelerated(run)]
    assert counted == [
        (layer.name, layer.macs, layer.cycles(array["rows"], array["columns"])) for layer in layers
    ]
    on_cpu = [layer for layer in run.result.layers if layer.where != VANILLA]
    assert {(layer.device_macs, layer.cycles) for layer in on_cpu} == {(0, 0)}


# --- The example network --------------------------------------------------------------------------


@cache
def held_out() -> tuple[Array, Array]:
    with np.load(DIGITS / "held_out.npz") as archive:
        return archive["image"], archive["label"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Library, RunResult]:
    folder = tmp_path_factory.mktemp("digits")
    library = umakit.compile_model(DIGITS / "digits.onnx", [vanilla()], folder / "library")
    return library, umakit.run_library(library.path, {"image": held_out()[0]}, profile=True)


def test_digits_are_read_as_onnx_runtime_reads_them(digits: tuple[Library, RunResult]) -> None:
    images, labels = held_out()
    logits = digits[1].outputs["logits"]
    assert logits.shape == (540, 1, 10)
    expected = onnx_runtime(onnx.load(DIGITS / "digits.onnx"), {"image": images})["logits"]
    assert_close(logits[:, 0], expected)
    np.testing.assert_array_equal(logits[:, 0].argmax(1), expected.argmax(1))
    assert (logits[:, 0].argmax(1) == labels).mean() >= 0.97


def test_digits_run_where_the_example_says(digits: tuple[Library, RunResult]) -> None:
    library, result = digits
    assert [(row.name, row.macs) for row in library.report.offloaded] == [
        ("conv1", 9_216),
        ("conv2", 147_456),
        ("conv4_1x1", 4_096),
    ]
    assert library.report.total_macs == 180_480
    strided = next(row for row in library.report.placements if row.name == "conv3_stride2")
    assert strided.reason == "stride 2x2: the array steps by 1x1"
    by_layer = {layer.name: layer.device_macs for layer in result.layers if layer.where == VANILLA}
    assert by_layer == {"conv1": 9_216, "conv2": 147_456, "conv4_1x1": 4_096}
