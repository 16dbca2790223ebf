# SPDX-License-Identifier: Apache-2.0
"""A sample of ONNX's own node tests, and what the page says; `make soak-onnx` runs them all."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import onnx_node_tests
import pytest
from onnx_node_tests import COLUMNS, PAGE, RELEASE, Outcome, row_of_page, update_page

from umakit.version import __version__

HARNESS = Path(__file__).with_name("onnx_node_tests.py")


def run_harness(*options: str) -> str:
    """What the harness prints; in a process of its own, because it forks."""
    command = [sys.executable, str(HARNESS), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_sample_of_onnx_node_tests() -> None:
    table = run_harness("--right", "--sample", "8")
    assert "wrong: none" in table and "traceback: none" in table


def test_node_tests_with_vectors_of_a_cpu() -> None:
    """Their tensors are small: vectors of four numbers are those that they fill."""
    names = "dynamicquantizelinear_min|instancenorm_example|min_float32|softmax_axis_1$"
    table = run_harness("--cpu", "cortex-a76", "-k", names)
    assert "wrong: none" in table and "traceback: none" in table


def test_counts_of_the_page_add_up() -> None:
    """Those of the last release; that they are those of a run, `make soak-onnx` sees."""
    text = PAGE.read_text(encoding="utf-8")
    versions, rows = zip(*re.findall(r"^\| (\d\S*) \|(.*)\|$", text, re.MULTILINE), strict=True)
    assert "dev" in __version__ or versions[-1] == __version__
    *columns, total = (int(figure) for figure in rows[-1].split("|"))
    counts = dict(zip(COLUMNS, columns, strict=True))
    assert sum(columns) == total and counts["wrong"] == counts["traceback"] == 0
    lock = HARNESS.parents[1] / "requirements.lock"
    version = re.search(r"^onnx==(.*)$", lock.read_text(encoding="utf-8"), re.MULTILINE)
    assert version is not None
    assert f"{total:,} in onnx {version[1]}" in " ".join(text.split())


def test_a_row_of_the_page_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n| 0.1.0 | 7 |\n| {RELEASE} | 5 |\nafter\n")
    monkeypatch.setattr(onnx_node_tests, "PAGE", page)
    columns = ("right", "right", "refused", "out of scope")
    update_page(row_of_page([Outcome(str(n), "Add", column) for n, column in enumerate(columns)]))
    row = f"| {RELEASE} | 2 | 0 | 1 | 0 | 1 | 4 |"
    assert page.read_text() == f"before\n| 0.1.0 | 7 |\n{row}\nafter\n"
    page.write_text("before\n| 0.0.9 | 3 |\n| 0.1.0 | 7 |\nafter\n")
    update_page(row)
    assert page.read_text() == f"before\n| 0.0.9 | 3 |\n| 0.1.0 | 7 |\n{row}\nafter\n"
