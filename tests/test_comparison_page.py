# SPDX-License-Identifier: Apache-2.0
"""`docs/compare.md` can be typed along; `--update-golden` writes down what is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from console import type_with_digits

from umakit.tools.comparison.figures import FIGURES

PAGE = Path(__file__).parents[1] / "docs" / "compare.md"


@pytest.mark.page
def test_a_reader_who_types_along_sees_what_the_page_shows(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    assert type_with_digits(PAGE, tmp_path, request) == 8


def test_the_page_lists_every_figure() -> None:
    rows = re.findall(r"^\| (`[^|]*) \| network", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert sorted(listed) == sorted([*(figure.name for figure in FIGURES), "wait ENGINE"])
