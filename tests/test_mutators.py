# SPDX-License-Identifier: Apache-2.0
"""Damaged files of every format: refused in one sentence, or taken and right.

These are the same mutants each time; `make soak-mutants` reads others for SOAK_MINUTES, compiles
all that are taken, builds them with sanitizers and compares them with a reference.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import warm_python

TESTS = Path(__file__).parent
COUNTS = {
    "onnx": 60, "tflite": 60, "torch": 20, "relax": 60, "npz": 60, "accel": 60, "metadata": 30,
}  # fmt: skip
"""Mutants of each format; `make quick` reads a twentieth of them."""


NETWORKS = ("onnx", "tflite", "torch", "relax")
LITTLE = ("--one-byte", "--memory", "1024", "--cpu-seconds", "15")
"""One changed byte takes no more memory (MB) and processor time than this, wherever it is."""


@pytest.mark.parametrize("name", COUNTS)
def test_mutants_are_refused_in_one_sentence_or_right(
    name: str, request: pytest.FixtureRequest
) -> None:
    count = COUNTS[name] // 20 if request.config.getoption("--quick") else COUNTS[name]
    mutate(name, "--count", str(count), "--thorough", "0.1", "--compared", "0.03")


@pytest.mark.parametrize("name", NETWORKS)
def test_one_changed_byte_takes_little_memory_and_time(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    """`make soak` reads thousands."""
    count = COUNTS[name] * (50 if "UMAKIT_EXAMPLES" in os.environ else 1)
    printed = mutate(name, "--count", str(count), "--thorough", "0", "--compared", "0", *LITTLE)
    record_property("covered", f"one changed byte: {printed.splitlines()[0]}")


def mutate(name: str, *options: str) -> str:
    """Read mutants of a format, of which none may fail; returns the counts."""
    if name == "torch":
        pytest.importorskip("torch", reason="needs torch: pip install 'umakit[torch]'")
    kept = Path(tempfile.gettempdir()) / "umakit-mutants"
    command = [warm_python.python(), "-m", "mutators", name, "--seed", "1", "--kept", str(kept)]
    ended = subprocess.run(
        [*command, *options], cwd=TESTS, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    assert '"accepted"' in ended.stdout and '"refused"' in ended.stdout
    return ended.stdout
