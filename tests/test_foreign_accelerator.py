# SPDX-License-Identifier: Apache-2.0
"""An accelerator that shares no code with umakit's: `examples/lane_npu`.

Its simulator runs instructions, and knows nothing of tiles and predictions; results are compared
with TensorFlow Lite Micro and the CPU's kernels, predicted cycles with those that it counts.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from accelerators import check_predictions, same_as_the_cpu
from comparisons import SANITIZED, examples
from console import check_commands, run
from hypothesis import Phase, event, given
from hypothesis import strategies as st
from strict import CPP_WARNINGS, WARNINGS
from tflite_networks import tflite_micro, trained_model

import sim
import umakit
from umakit.backend import UMABackend, load_backend_folder
from umakit.devices import build, simulators
from umakit.machine import Kind, Layer, Tiling, misfit, tiles_on
from umakit.machine.space import axis_unit
from umakit.machine.tiles import AXES
from umakit.partition.partitioner import partition
from umakit.testing import QuantizedNetwork
from umakit.tools.doctor.checks import Status
from umakit.tools.doctor.examination import memory_checks
from umakit.tools.doctor.probes import Probes
from umakit.tools.tuning.simulate import simulated_cycles

pytestmark = pytest.mark.optimized_simulators

SANITIZERS = [flag for flag in SANITIZED if "sanitize" in flag]
FOLDER = Path(__file__).parents[1] / "examples" / "lane_npu"

SMALL = {
    "step = 16 ": "step = 8 ",
    "lanes = 32 ": "lanes = 16 ",
    "sums = 32768 ": "sums = 8192 ",
    "dma_channels = 2 ": "dma_channels = 1 ",
    "width0 = 16 ": "width0 = 4 ",
    'name = "data"\nsize = 65536\nbanks = 16\nalignment = 4096': (
        'name = "data"\nsize = 16384\nbanks = 8\nalignment = 2048'
    ),
    'name = "weights"\nsize = 65536\nbanks = 16\nalignment = 4096': (
        'name = "weights"\nsize = 32768\nbanks = 4\nalignment = 8192'
    ),
    'does = ["data", "addend", "result"]': (
        'does = ["data", "addend", "result", "weights", "parameters"]'
    ),
    """[[machine.engine]]
name = "dma1"
does = ["weights", "parameters"]
queue = "copies1"
depth = "outstanding1"
busy = "planes * rows * ceil_div(row_bytes, width1)"
tail = "latency1"
""": "",
}
"""Half the lanes and steps, a quarter of the data memory, one DMA channel: text of accel.toml."""


def written(folder: Path, changes: Mapping[str, str]) -> Path:
    """A copy of the backend's folder with another text of `accel.toml`, and no other change."""
    copy = folder / "lane_npu"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("__pycache__", "calibration.json"))
    text = (copy / "accel.toml").read_text(encoding="utf-8")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (copy / "accel.toml").write_text(text, encoding="utf-8")
    return copy


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> UMABackend:
    return load_backend_folder(written(tmp_path_factory.mktemp("small"), SMALL))


@pytest.fixture(scope="module")
def large() -> UMABackend:
    return load_backend_folder(FOLDER)


def check_exactly(network: QuantizedNetwork, backend: UMABackend, folder: Path) -> Any:
    """All layers are offloaded, exact, and take the predicted cycles."""
    library, ran = same_as_the_cpu(network, backend, folder)
    assert {layer.where for layer in ran.layers} == {"lane_npu"}
    assert check_predictions(library, ran, backend, rel=0) == len(ran.layers)
    return ran


@pytest.mark.parametrize("name", ["large", "small"])
def test_layers_of_all_kinds(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    layout, rounding = ("NHWC", "tflm") if name == "large" else ("NCHW", "ort")
    network = QuantizedNetwork(13, 11, 3, layout=layout, rounding=rounding, batch=2)
    network.conv2d(37, (3, 5), (2, 1)).conv2d(74, 3, depthwise=True, per_channel=False)
    network.conv2d(17, 1).conv2d(17, 3, dilation=2, per_channel=False).residual()
    network.conv2d(1, (2, 3), padding="valid").dense(33, per_channel=True)
    if name == "large":
        check_exactly(network, request.getfixturevalue(name), tmp_path)
        return
    # Any undefined behaviour and any access outside of an array end the program.
    flags = (*simulators.FLAGS, *SANITIZERS)
    with (
        mock.patch.object(build, "FLAGS", SANITIZED),
        mock.patch.object(simulators, "FLAGS", flags),
    ):
        check_exactly(network, request.getfixturevalue(name), tmp_path)


def test_layers_far_larger_than_the_memories(small: UMABackend, tmp_path: Path) -> None:
    network = QuantizedNetwork(48, 40, 40).conv2d(96).conv2d(96, 5, 3, depthwise=True)
    ran = check_exactly(network.conv2d(200, 3, 2), small, tmp_path)
    data, result, weights, memory = 48 * 40 * 40, 48 * 40 * 96, 9 * 96 * 200, 16384
    assert min(data, result, weights) > 4 * memory
    assert ran.layers[0].moved_bytes > data + result


def drawn_tiling(data: st.DataObject, layer: Layer, backend: UMABackend) -> Tiling | None:
    """Sizes of tiles that fit; None if those that were drawn do not."""
    planner: Any = backend.tiling
    sizes = {}
    extents = {"rows": layer.output_size[0], "columns": layer.output_size[1],
               "output_channels": layer.output_channels,
               "input_channels": layer.input_channels}  # fmt: skip
    for axis, extent in extents.items():
        unit = axis_unit(layer, planner.machine, axis)
        sizes[axis] = min(unit * data.draw(st.integers(1, -(-extent // unit))), extent)
    if layer.per_channel:
        sizes["input_channels"] = layer.input_channels
    order, buffers = data.draw(st.permutations(AXES)), data.draw(st.sampled_from([1, 2, 4]))
    tiling = Tiling(planner.machine.dataflows[0], **sizes, order=tuple(order), buffers=buffers)
    return None if misfit(tiles_on(layer, tiling, planner.machine), planner.machine) else tiling


@examples(1, phases=[Phase.explicit, Phase.generate])
@given(data=st.data())
def test_any_tiling_is_exact_and_takes_the_predicted_cycles(
    data: st.DataObject, small: UMABackend, tmp_path_factory: pytest.TempPathFactory
) -> None:
    draw = data.draw
    layout, rounding = draw(st.sampled_from([("NHWC", "tflm"), ("NCHW", "ort")]))
    network = QuantizedNetwork(
        draw(st.integers(5, 12)), draw(st.integers(5, 12)), draw(st.integers(1, 40)),
        layout=layout, rounding=rounding, batch=draw(st.integers(1, 2)),
    )  # fmt: skip
    window, stride = st.tuples(*[st.integers(1, 3)] * 2), st.tuples(*[st.integers(1, 2)] * 2)
    network.conv2d(draw(st.integers(1, 40)), draw(window), draw(stride))
    network.conv2d(network.channels, draw(window), depthwise=True, dilation=draw(stride))
    network.conv2d(network.channels, draw(window)).residual()
    planner: Any = small.tiling
    tilings: dict[Layer, Tiling | None] = {}
    with mock.patch.object(planner, "default", planner.default) as chosen:
        asked: list[Layer] = []
        planner.default = lambda layer: (asked.append(layer), chosen(layer))[1]
        partition(network.model().module, [small])  # draws may not be made in TVM's callbacks
        for layer in asked:
            tilings[layer] = drawn_tiling(data, layer, small) or chosen(layer)
            event(f"{tilings[layer] == chosen(layer)}")
        planner.default = tilings.get
        check_exactly(network, small, tmp_path_factory.mktemp("tiling"))


NETWORKS = ("kws_ref_model", "pretrainedResnet_quant", "ad01_int8")
TILED = 10
"""Layers that are cut into tiles, in each of them."""

SOAK = "UMAKIT_EXAMPLES" in os.environ
WHOLE = [(network, name) for name in ("large", "small") for network in NETWORKS]


@pytest.mark.soak
@pytest.mark.parametrize(("network", "name"), WHOLE[: None if SOAK else 1])
def test_whole_networks(
    network: str, name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Bit-exact with TensorFlow Lite Micro; at least 90 % of the MACs are offloaded."""
    path, backend = trained_model(f"{network}.tflite"), request.getfixturevalue(name)
    library = umakit.compile_model(path, [backend], tmp_path / "library")
    (view,) = library.metadata["umakit"]["inputs"]
    values = np.random.default_rng(3).integers(-128, 128, view["shape"]).astype(np.int8)
    ran = umakit.run_library(library.path, {view["name"]: values}, profile=True)
    (result,) = ran.outputs.values()
    np.testing.assert_array_equal(result, tflite_micro(path.read_bytes(), [values])[0])
    offloaded = sum(layer.macs for layer in ran.layers if layer.where == "lane_npu")
    assert offloaded >= 0.9 * sum(layer.macs for layer in ran.layers)
    assert check_predictions(library, ran, backend, rel=0) == TILED


def test_a_layer_that_adds_is_measured_alone(large: UMABackend) -> None:
    layer = Layer(
        Kind.CONVOLUTION, 2, (9, 8), (5, 8), 20, 33, (3, 3), (2, 1), (1, 1), scales=33,
        stored_channels=64, adds=True,
    )  # fmt: skip
    planner: Any = large.tiling
    tiling = planner.default(layer)
    predicted = planner.predict(tiles_on(layer, tiling, planner.machine)).cycles
    assert simulated_cycles(large, layer, tiling) == predicted


def test_what_it_cannot_compute_is_refused_by_name(small: UMABackend, tmp_path: Path) -> None:
    wide = QuantizedNetwork(4, 4, 2, dtype="int16").conv2d(3)
    assert "int8" in reason(wide, small)
    few = load_backend_folder(written(tmp_path, {"sums = 32768 ": "sums = 124 "}))
    assert reason(QuantizedNetwork(4, 4, 2).conv2d(3), few) == (
        "needs 128 B of accumulators, there are 124 B"
    )


def test_doctor_names_a_memory_that_holds_no_tensor(tmp_path: Path) -> None:
    holds = {'holds = ["weights", "parameters"]\n': ""}
    backend = load_backend_folder(written(tmp_path, holds))
    (check,) = memory_checks(backend, Probes())
    assert check.status is Status.WARNING
    assert check.message.startswith("no tensor lies in 'weights': it has no holds")
    # What no memory names lies in the first.
    holds = {'holds = ["data", "addend", "result"]\n': ""}
    backend = load_backend_folder(written(tmp_path / "first", holds))
    assert [each.status for each in memory_checks(backend, Probes())] == [Status.OK]


def reason(network: QuantizedNetwork, backend: UMABackend) -> str:
    (row,) = partition(network.model().module, [backend]).report.placements
    assert row.where == "cpu"
    return str(row.reason)


def flags() -> list[str]:
    macros = load_backend_folder(FOLDER).configuration.simulator_macros
    includes = [FOLDER / "isa", sim.source_directory() / "include"]
    return [f"-D{each}" for each in macros] + [f"-I{each}" for each in includes]


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_its_simulator_compiles_without_a_warning(compiler: str) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"there is no {compiler}")
    sources = sorted((FOLDER / "simulator").glob("*.cc"))
    command = [compiler, "-std=c++14", *CPP_WARNINGS, "-fsyntax-only", *flags(), *sources]
    subprocess.run(command, check=True)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_its_driver_compiles_without_a_warning(compiler: str) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"there is no {compiler}")
    command = [compiler, "-std=c99", *WARNINGS, "-fsyntax-only", *flags(), FOLDER / "lane_npu.c"]
    subprocess.run(command, check=True)


def test_its_own_test(tmp_path: Path) -> None:
    script = FOLDER / "test_backend.py"
    runpy.run_path(str(script))["test_layers_run_on_the_accelerator"](tmp_path)


@pytest.mark.page
def test_commands_of_its_page(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    shutil.copytree(FOLDER.parent, tmp_path / "examples")
    count = check_commands(
        FOLDER / "README.md",
        lambda command: run(command, tmp_path).replace(f"{tmp_path}/", ""),
        update=pytestconfig.getoption("--update-golden"),
    )
    assert count == 11


BUSY = """busy = \"\"\"step + ceil_div(n, lanes) * kernel_rows * kernel_columns * \
ceil_div(input_channels, step)
    * max(m, step)\"\"\"
"""
ROUGH = {
    BUSY: 'busy = "ceil_div(m * n * k, lanes * step)"\n',
    "1 + ceil_div(n, lanes) * k * m": "ceil_div(m * n * k, lanes * step)",
    'tail = "pipeline"': "tail = 0",
    'tail = "latency0"': "tail = 0",
    "planes * rows * ceil_div(row_bytes, width0)": "ceil_div(bytes, width0)",
}
"""What a team knows of the costs on the first day."""


@pytest.mark.skipif(not SOAK, reason="measures hundreds of tiles: make soak")
@pytest.mark.parametrize("changes", [{}, SMALL], ids=["large", "small"])
def test_whole_networks_are_predicted_within_2_percent_after_calibration(
    changes: Mapping[str, str], tmp_path: Path
) -> None:
    folder = written(tmp_path, {**ROUGH, **changes})
    printed = run("uma calibrate lane_npu", tmp_path)
    backend = load_backend_folder(folder)
    for network in NETWORKS:
        path = trained_model(f"{network}.tflite")
        library = umakit.compile_model(path, [backend], tmp_path / network)
        (view,) = library.metadata["umakit"]["inputs"]
        values = {view["name"]: np.zeros(view["shape"], np.int8)}
        ran = umakit.run_library(library.path, values, profile=True)
        assert check_predictions(library, ran, backend, rel=0.02) == TILED, printed


@pytest.mark.skipif(not SOAK, reason="measures tilings: make soak")
@pytest.mark.parametrize("network", NETWORKS)
def test_whole_networks_are_tuned(network: str, tmp_path: Path) -> None:
    written(tmp_path, {})
    given = f"{trained_model(network + '.tflite')} --backend lane_npu --records records.json"
    assert "All cycles are measured in the simulator" in run(f"uma tune {given}", tmp_path)
    assert f"tuned tilings for {TILED} of {TILED}" in run(f"uma compile {given} -o it", tmp_path)
