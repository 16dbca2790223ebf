# SPDX-License-Identifier: Apache-2.0
"""Backends of `uma new --kind tiles`: the page of them, and predicted cycles."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from accelerators import check_predictions, same_as_the_cpu
from console import type_with_digits

from umakit.backend import load_backend_folder
from umakit.machine import Kind, Layer
from umakit.testing import QuantizedNetwork
from umakit.tools.calibration import calibrate
from umakit.tools.scaffold import new_backend

pytestmark = pytest.mark.optimized_simulators

ROOT = Path(__file__).parents[1]
LONG = (
    pytest.mark.soak,
    pytest.mark.skipif("UMAKIT_EXAMPLES" not in os.environ, reason="some seconds more"),
)


@pytest.mark.parametrize(
    ("before", "count"),
    [
        ("## Tilings and costs", 5),
        pytest.param(None, 12, marks=LONG, id="whole"),
    ],
)
@pytest.mark.page
def test_a_reader_who_types_along_sees_what_the_page_shows(
    before: str | None, count: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    page = ROOT / "docs" / "new-tiles.md"
    assert type_with_digits(page, tmp_path, request, before=before) == count


def every_operator(layout: str, rounding: str) -> QuantizedNetwork:
    """A network whose layers are larger than the scratchpads of these tests."""
    network = QuantizedNetwork(13, 11, 3, layout=layout, rounding=rounding, batch=2)
    network.conv2d(21, (3, 5), (2, 1)).conv2d(42, 3, depthwise=True, per_channel=False)
    network.conv2d(17, 1).conv2d(17, 3, dilation=2, per_channel=False).residual()
    return network.conv2d(1, (2, 3), padding="valid").dense(33, per_channel=True)


@pytest.mark.parametrize(
    ("layout", "rounding", "array", "scratchpad"),
    [
        ("NCHW", "ort", "16x8", "16000"),
        pytest.param("NHWC", "tflm", "3x5", "4K", marks=LONG),
    ],
)
def test_layers_are_exact_and_take_the_predicted_cycles(
    layout: str, rounding: str, array: str, scratchpad: str, tmp_path: Path
) -> None:
    flags = {
        "layout": layout, "rounding": rounding, "array": array, "scratchpad": scratchpad,
        "operators": "conv2d,depthwise,conv2d_add,dense",
    }  # fmt: skip
    folder = new_backend("tiled_npu", tmp_path, kind="tiles", flags=flags).folder
    backend = load_backend_folder(folder)
    library, ran = same_as_the_cpu(every_operator(layout, rounding), backend, tmp_path)
    assert {layer.where for layer in ran.layers} == {"tiled_npu"}
    assert check_predictions(library, ran, backend, rel=0) == len(ran.layers)


@pytest.mark.parametrize(
    ("layout", "rounding", "array", "scratchpad"),
    [
        ("NCHW", "tflm", "4x3", "1026"),  # it has no banks of whole words
        pytest.param("NHWC", "ort", "16x8", "16K", marks=LONG),
    ],
)
def test_a_driver_without_simulator_computes_tiles_by_itself(
    layout: str, rounding: str, array: str, scratchpad: str, tmp_path: Path
) -> None:
    flags = {
        "layout": layout, "rounding": rounding, "array": array, "scratchpad": scratchpad,
        "operators": "conv2d,depthwise,conv2d_add,dense", "simulator": "none",
    }  # fmt: skip
    folder = new_backend("plain_npu", tmp_path, kind="tiles", flags=flags).folder
    assert not (folder / "simulator").exists()
    backend = load_backend_folder(folder)
    _, ran = same_as_the_cpu(every_operator(layout, rounding), backend, tmp_path)
    assert {layer.where for layer in ran.layers} == {"plain_npu"}


def test_a_tile_may_be_65536_wide(tmp_path: Path) -> None:
    flags = {"operators": "conv2d", "scratchpad": "1M", "array": "2x2"}
    folder = new_backend("wide_npu", tmp_path, kind="tiles", flags=flags).folder
    network = QuantizedNetwork(1, 65536, 1).conv2d(1, 1)
    _, ran = same_as_the_cpu(network, load_backend_folder(folder), tmp_path)
    assert [layer.where for layer in ran.layers] == ["wide_npu"]


@pytest.mark.parametrize("scratchpad", ["1K", "4002", "5000", "65535", "100000"])
def test_layers_fit_a_scratchpad_of_any_size(scratchpad: str, tmp_path: Path) -> None:
    flags = {"scratchpad": scratchpad, "array": "3x5"}
    folder = new_backend("any_npu", tmp_path, kind="tiles", flags=flags).folder
    planner = load_backend_folder(folder).tiling
    assert planner is not None
    sizes: dict[str, Any] = {"kernel": (3, 3), "scales": 5, "stored_channels": 5}
    layer = Layer(Kind.CONVOLUTION, 1, (8, 8), (6, 6), 5, 5, **sizes)
    assert planner.default(layer) is not None


@pytest.mark.soak
@pytest.mark.skipif("UMAKIT_EXAMPLES" not in os.environ, reason="some seconds more")
@pytest.mark.parametrize("operators", ["depthwise", "conv2d_add", "conv2d", "dense"])
def test_a_machine_of_one_operator_and_layout_is_calibrated(operators: str, tmp_path: Path) -> None:
    flags = {"layout": "NCHW", "rounding": "ort", "operators": operators, "array": "3x5"}
    folder = new_backend("one_npu", tmp_path, kind="tiles", flags=flags).folder
    found = calibrate(load_backend_folder(folder), tiles=60)
    assert found.exact == found.held_out > 0
    assert all(each.predicted_cycles == each.clock_cycles for each in found.calibration.layers)
    assert found.calibration.layers
