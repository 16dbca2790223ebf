# SPDX-License-Identifier: Apache-2.0
"""The check of MISRA C:2012 against the page that lists deviations."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import misra
import pytest

SOURCE = "int f(int a);\nint f(int a)\n{\n    if (a == 0)\n        return 1;\n    return 0;\n}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if shutil.which("cppcheck") is None:
        assert not os.environ.get("UMAKIT_CI"), "CI lacks cppcheck: see .ci/run"
        pytest.skip("cppcheck is not installed")
    (tmp_path / "source.c").write_text(SOURCE)
    (tmp_path / "umakit_simulator.c").write_text(SOURCE)
    return tmp_path


def test_a_rule_that_is_not_listed_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = folder / "page.md"
    rows = {
        rule: f"| {rule} | 1 | a description | a reason |\n" for rule in misra.findings([folder])
    }
    assert {"15.5", "15.6"} <= set(rows)
    page.write_text("".join(rows.values()))
    assert misra.main([folder], page) == 0
    page.write_text("".join(row for rule, row in rows.items() if rule != "15.6"))
    assert misra.main([folder], page) == 1
    printed = capsys.readouterr().out
    assert "rule 15.6 is not listed in page.md" in printed and "source.c:4" in printed
    assert "umakit_simulator.c" not in printed, "a board has no simulator"


def test_a_deviation_without_a_reason_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("| 15.5 | 3 | what it is about |  |\n")
    assert misra.listed(tmp_path / "page.md") == set()
    assert "15.5" in misra.listed()
