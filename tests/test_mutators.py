# SPDX-License-Identifier: Apache-2.0
"""Damaged files of every format: refused in one sentence, or taken and right.

These are the same mutants each time; `make soak-mutants` reads others for SOAK_MINUTES, compiles
all that are taken, builds them with sanitizers and compares them with a reference.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
import warm_python

TESTS = Path(__file__).parent
COUNTS = {
    "onnx": 60, "tflite": 60, "torch": 20, "relax": 60, "npz": 60, "accel": 60, "metadata": 30,
}  # fmt: skip
"""Mutants of each format; `make quick` reads a twentieth of them."""


@pytest.mark.parametrize("name", COUNTS)
def test_mutants_are_refused_in_one_sentence_or_right(
    name: str, request: pytest.FixtureRequest
) -> None:
    if name == "torch":
        pytest.importorskip("torch", reason="needs torch: pip install 'umakit[torch]'")
    kept = Path(tempfile.gettempdir()) / "umakit-mutants"
    command = [warm_python.python(), "-m", "mutators", name, "--seed", "1", "--kept", str(kept)]
    count = COUNTS[name] // 20 if request.config.getoption("--quick") else COUNTS[name]
    command += ["--count", str(count), "--thorough", "0.1", "--compared", "0.03"]
    ended = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    print(ended.stdout)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    assert '"accepted"' in ended.stdout and '"refused"' in ended.stdout
