# SPDX-License-Identifier: Apache-2.0
"""`docs/start.md` can be typed along; `--update-golden` writes down what is printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from console import type_with_digits

ROOT = Path(__file__).parents[1]


@pytest.mark.page
def test_a_reader_who_types_along_sees_what_the_page_shows(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    assert type_with_digits(ROOT / "docs" / "start.md", tmp_path, request) == 6
    library = tmp_path / "first_library"
    table = (ROOT / "docs" / "start.md").read_text("utf-8").partition("| in `first_library` |")[2]
    names = [name for row in table.split("\n\n")[0].splitlines() for name in row.split("`")[1::2]]
    assert "codegen/host/include/tvmgen_digits_int8.h" in names
    for name in names[:6]:
        assert (library / name).exists() or name == "uma package", name
