# SPDX-License-Identifier: Apache-2.0
"""`docs/layouts.md` can be typed along; `--update-golden` writes down what is printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from console import type_with_digits

from umakit.partition.layouts.operators import RULES

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "layouts.md"


@pytest.mark.page
def test_a_reader_who_types_along_sees_what_the_page_shows(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    assert type_with_digits(PAGE, tmp_path, request) == 3


def test_the_page_shows_the_line_of_vanilla() -> None:
    backend = ROOT / "backends" / "vanilla_accelerator" / "backend.py"
    (line,) = [
        each.strip() for each in backend.read_text("utf-8").splitlines() if "layouts=" in each
    ]
    assert f"\n{line}\n" in PAGE.read_text("utf-8")


def test_operators_that_the_page_calls_borders_have_no_rule() -> None:
    text = PAGE.read_text("utf-8").partition("All others are borders:")[2].partition("\n\n")[0]
    assert "bilinear resizes, matrix products, splits" in " ".join(text.split())
    borders = ("quantized.resize_bilinear", "matmul", "split")
    assert not RULES.keys() & {*borders, "quantized.softmax"}
