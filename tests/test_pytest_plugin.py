# SPDX-License-Identifier: Apache-2.0
"""The fixture `uma_check` of umakit's plugin for pytest."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import warm_python

ROOT = Path(__file__).parents[1]
TEST = "def test_layers_are_right(uma_check):\n    assert uma_check().passed\n"


def pytest_in(folder: Path, configuration: str, *arguments: str) -> tuple[int, str]:
    """Run pytest on a test with the fixture; return exit code and output."""
    (folder / "test_it.py").write_text(TEST, encoding="utf-8")
    (folder / "pytest.ini").write_text(f"[pytest]\n{configuration}\n", encoding="utf-8")
    outside = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    # Named here, as an environment that was made before the entry point does not know it.
    command = [
        warm_python.python(),
        "-m",
        "pytest",
        "-p",
        "umakit.testing.pytest_plugin",
        *arguments,
    ]
    ended = subprocess.run(
        command,
        cwd=folder,
        env={**outside, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout + ended.stderr


def test_each_operator_of_the_backend_is_a_test(tmp_path: Path) -> None:
    code, text = pytest_in(
        tmp_path, "uma_backend = strawberry_accelerator\numa_draws = 3", "-v", "-k", "qdense"
    )
    assert code == 0, text
    assert "test_layers_are_right[qdense] PASSED" in text
    assert "1 passed, 2 deselected" in text


def test_a_failure_is_told_in_sentences_and_folders_are_relative(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "backends" / "strawberry_accelerator", tmp_path / "mine")
    patterns = tmp_path / "mine" / "patterns.py"
    text = patterns.read_text(encoding="utf-8")
    patterns.write_text(text.replace("if needed > room:", "if True:"), encoding="utf-8")
    code, text = pytest_in(tmp_path, "uma_backend = mine\numa_draws = 3", "-k", "qdense")
    assert code == 1, text
    assert "qdense: the pattern accepts no layer" in text
    assert "Traceback" not in text and "pytest_plugin.py" not in text


def test_a_mistake_that_a_stage_finds_is_told_in_a_sentence(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "nova_nn", tmp_path / "mine")
    file = tmp_path / "mine" / "accel.toml"
    file.write_text(file.read_text().replace("nova_nn_functions.h", "nova_nn_function.h"))
    code, text = pytest_in(tmp_path, "uma_backend = mine\numa_draws = 9", "-k", "qsoftmax")
    assert code == 1, text
    assert "accel.toml:" in text and "write Include/nova_nn_functions.h" in text
    assert "Traceback" not in text and "pytest_plugin.py" not in text


@pytest.mark.parametrize(
    "configuration, wanted",
    [
        ("", "the fixture uma_check needs a backend: set uma_backend"),
        ("uma_backend = other", "uma_backend = other: "),
        ("uma_backend = strawberry_accelerator\numa_seconds = long", "uma_seconds = long"),
    ],
)
def test_mistakes_in_the_configuration_are_told(
    configuration: str, wanted: str, tmp_path: Path
) -> None:
    code, text = pytest_in(tmp_path, configuration, "-x")
    assert code != 0 and wanted in text, text
    assert "INTERNALERROR" not in text
