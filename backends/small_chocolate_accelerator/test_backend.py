# SPDX-License-Identifier: Apache-2.0
"""Tests of the small_chocolate_accelerator backend: run them with `python -m pytest test_backend.py`."""

from pathlib import Path

import pytest

from umakit.backend import load_backend_folder
from umakit.testing import QuantizedNetwork, compile_and_run

BACKEND = load_backend_folder(Path(__file__).parent)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(1, 2, "same"), (3, 1, "same"), ((2, 5), 2, "valid")]
)
def test_convolutions_run_on_the_array_and_are_exact(
    kernel: int | tuple[int, int], stride: int, padding: str, tmp_path: Path
) -> None:
    network = QuantizedNetwork(19, 18, 5).conv2d(35, kernel, stride, padding=padding)
    report = compile_and_run(network.model(), BACKEND, test_dir=tmp_path)
    assert [row.where for row in report.offload.placements] == [BACKEND.target_name]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("rounding", ["tflm", "ort"])
def test_a_chain_of_layers_runs_on_the_array(layout: str, rounding: str, tmp_path: Path) -> None:
    network = QuantizedNetwork(8, 8, 3, layout=layout, rounding=rounding)
    network.conv2d(12).conv2d(12, depthwise=True, stride=2).conv2d(16, kernel=1).dense(10)
    report = compile_and_run(network.model(), BACKEND, test_dir=tmp_path)
    cpu = [row.operator for row in report.offload.placements if row.where == "cpu"]
    assert cpu == ["reshape"]


def test_a_layer_larger_than_the_scratchpad_is_cut_into_tiles(tmp_path: Path) -> None:
    network = QuantizedNetwork(60, 70, 40).conv2d(64)
    report = compile_and_run(network.model(), BACKEND, test_dir=tmp_path)
    (row,) = report.offload.placements
    assert row.where == BACKEND.target_name
