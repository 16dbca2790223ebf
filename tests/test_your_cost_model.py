# SPDX-License-Identifier: Apache-2.0
"""`docs/your-cost-model.md` can be typed along; `--update-golden` writes down what is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from console import run, type_with_digits

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "your-cost-model.md"


@pytest.mark.page
def test_a_reader_who_types_along_sees_what_the_page_shows(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    tried = []

    def saved(file: str) -> None:
        if file == "npu/backend.py" and not tried:  # there is no driver yet
            tried.append(run("uma doctor ./npu", tmp_path))

    count = type_with_digits(PAGE, tmp_path, request, saved=saved)
    assert count == 9 and PAGE.read_text("utf-8").count("```") == 2 * (count + 8)
    assert "error: " not in tried[0] and re.search(r"^ok +accel.toml", tried[0], re.MULTILINE)
