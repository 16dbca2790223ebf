# SPDX-License-Identifier: Apache-2.0
"""A sample of ONNX's own node tests; `make soak-onnx` runs them all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HARNESS = Path(__file__).with_name("onnx_node_tests.py")


def run_harness(*options: str) -> str:
    """What the harness prints; in a process of its own, because it forks."""
    command = [sys.executable, str(HARNESS), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_sample_of_onnx_node_tests() -> None:
    table = run_harness("--right", "--sample", "40")
    assert "wrong: none" in table and "traceback: none" in table
