# SPDX-License-Identifier: Apache-2.0
"""Tests of the lane_npu backend: run them with `python -m pytest test_backend.py`."""

from pathlib import Path

from umakit.backend import load_backend_folder
from umakit.testing import QuantizedNetwork, compile_and_run


def test_layers_run_on_the_accelerator(tmp_path: Path) -> None:
    backend = load_backend_folder(Path(__file__).parent)
    network = QuantizedNetwork(9, 7, 5).conv2d(40).residual().conv2d(40, depthwise=True).dense(10)
    report = compile_and_run(network.model(), backend, test_dir=tmp_path)
    assert {row.where for row in report.offload.placements} == {backend.target_name}
