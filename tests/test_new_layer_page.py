# SPDX-License-Identifier: Apache-2.0
"""`docs/new-layer.md` can be typed along; `--update-golden` writes down what is printed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from console import type_along

ROOT = Path(__file__).parents[1]


def test_a_reader_who_types_along_sees_what_the_page_shows(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "examples" / "digits")
    update = bool(request.config.getoption("--update-golden"))
    assert type_along(ROOT / "docs" / "new-layer.md", tmp_path, update=update) == 8
