# SPDX-License-Identifier: Apache-2.0
"""Tests of the lane_npu backend: run them with `python -m pytest test_backend.py`."""

from pathlib import Path

from umakit.backend import load_backend_folder
from umakit.testing import QuantizedNetwork, compile_and_run


def test_layers_run_on_the_accelerator(tmp_path: Path) -> None:
    backend = load_backend_folder(Path(__file__).parent)
    network = QuantizedNetwork(9, 7, 5).conv2d(40).conv2d(40).residual()
    model = network.conv2d(40, depthwise=True).dense(10).model()
    report = compile_and_run(model, backend, test_dir=tmp_path)
    cpu = [row.operator for row in report.offload.placements if row.where != backend.target_name]
    assert cpu == ["reshape"]
