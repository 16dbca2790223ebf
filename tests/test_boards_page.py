# SPDX-License-Identifier: Apache-2.0
"""The page on boards: typed along, its files as a reader saves them, and its table of keys."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from console import type_with_digits

from umakit.devices.board_files import COMMAND_PLACES, Board

PAGE = Path(__file__).parents[1] / "docs" / "boards.md"


@pytest.mark.optimized
@pytest.mark.page
def test_the_page_typed_along_gives_what_it_shows(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    assert type_with_digits(PAGE, tmp_path, request) == 7


def test_the_page_lists_every_key_and_placeholder() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == list(Board.model_fields)
    listed = re.findall(r"^\| `\{(\w+)\}` \|", text, re.MULTILINE)
    assert sorted(listed) == sorted(COMMAND_PLACES)
