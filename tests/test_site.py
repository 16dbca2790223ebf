# SPDX-License-Identifier: Apache-2.0
"""`make site`: links between pages of the repository lead to pages of the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "site"))
    import stage

    return stage


def test_links_lead_to_pages_of_the_site(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    for name in ("docs/other.md", "README.md", "script.py"):
        (tmp_path / name).write_text("")
    page = tmp_path / "docs" / "page.md"
    page.write_text("[a](other.md#x) [b](../README.md) [c](../script.py) [d](https://x.y) [e](#z)")
    assert stage.staged(page) == "[a](other.md#x) [b](index.md) c [d](https://x.y) [e](#z)"
    page.write_text("[a](nowhere.md)")
    with pytest.raises(SystemExit, match=r"no file nowhere\.md"):
        stage.staged(page)


def test_each_page_is_in_one_chapter(stage: Any) -> None:
    pages = " ".join(stage.CHAPTERS.values()).split()
    assert len(pages) == len(set(pages))
    written = {"reference/help", "reference/python", "gallery/index", "gallery/nova_nn",
               "gallery/lane_npu", "changelog", "contributing", "security"}  # fmt: skip
    found = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert set(pages) - written == found


def test_public_modules_are_those_that_backends_import(stage: Any) -> None:
    page = (ROOT / "docs" / "backends-api.md").read_text(encoding="utf-8")
    assert all(f"`{module}`" in page for module in set(stage.PYTHON) - {"umakit"})
