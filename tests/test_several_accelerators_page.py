# SPDX-License-Identifier: Apache-2.0
"""`docs/several-accelerators.md` can be typed along; `--update-golden` writes what is printed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from console import type_with_digits

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "several-accelerators.md"


@pytest.mark.page
def test_a_reader_who_types_along_sees_what_the_page_shows(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    assert type_with_digits(PAGE, tmp_path, request) == 4


def test_the_python_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "examples" / "digits")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(code, {})
    assert re.fullmatch(r"[1-9]\d+ cycles saved\n", capsys.readouterr().out)
