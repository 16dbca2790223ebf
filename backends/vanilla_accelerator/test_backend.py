# SPDX-License-Identifier: Apache-2.0
"""Tests of the vanilla_accelerator backend: run them with `python -m pytest test_backend.py`."""

from pathlib import Path

import pytest

from umakit.backend import load_backend_folder
from umakit.testing import compile_and_run, conv2d_model

BACKEND = load_backend_folder(Path(__file__).parent)


@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
@pytest.mark.parametrize(("height", "width"), [(8, 8), (5, 11)])
def test_same_padded_convolution_runs_on_the_array(
    kernel: int, height: int, width: int, tmp_path: Path
) -> None:
    model = conv2d_model(channels=3, height=height, width=width, filters=4, kernel=kernel)
    report = compile_and_run(model, BACKEND, test_dir=tmp_path)
    assert [row.where for row in report.offload.placements] == [BACKEND.target_name]


def test_strided_convolution_stays_on_the_cpu_with_a_reason(tmp_path: Path) -> None:
    model = conv2d_model(channels=3, height=8, width=8, filters=4, kernel=3, stride=2)
    report = compile_and_run(model, BACKEND, test_dir=tmp_path)
    (row,) = report.offload.placements
    assert (row.where, row.reason) == ("cpu", "stride 2x2: the array steps by 1x1")
