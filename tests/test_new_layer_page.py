# SPDX-License-Identifier: Apache-2.0
"""`docs/new-layer.md` can be typed along; `--update-golden` writes down what is printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from console import type_with_digits

ROOT = Path(__file__).parents[1]


@pytest.mark.page
def test_a_reader_who_types_along_sees_what_the_page_shows(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    assert type_with_digits(ROOT / "docs" / "new-layer.md", tmp_path, request) == 13
