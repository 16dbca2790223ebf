# SPDX-License-Identifier: Apache-2.0
"""Drawn ONNX operators: equal to ONNX Runtime or the reference evaluator, or refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SWEEP = Path(__file__).with_name("onnx_sweep.py")

OFTEN = (
    "BitShift Cast ConvTranspose Dropout Gemm IsInf LpPool Mod Pad ReduceL1 ReduceLogSumExp "
    "Slice TopK"
)
"""Operators with attributes and opsets that TVM's importer alone gets wrong, or did."""


def run_sweep(*options: str) -> None:
    """Run the sweep in a process of its own, because it forks."""
    command = [sys.executable, str(SWEEP), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)


def test_operators_that_were_wrong() -> None:
    run_sweep(*OFTEN.split(), "--count", "1")


@pytest.mark.soak
@pytest.mark.skipif("UMAKIT_EXAMPLES" not in os.environ, reason="minutes: make soak")
def test_all_operators() -> None:
    run_sweep("--count", os.environ.get("UMAKIT_EXAMPLES", "20"))
