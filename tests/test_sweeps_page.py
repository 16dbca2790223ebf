# SPDX-License-Identifier: Apache-2.0
"""`docs/sweeps.md` can be typed along; `--update-golden` writes down what is printed."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from console import CONSOLE, run, type_with_digits

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "sweeps.md"


@pytest.mark.page
def test_a_reader_who_types_along_sees_what_the_page_shows(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The last command has two processes; one finds the same."""
    assert type_with_digits(PAGE, tmp_path, request) == 4
    last = list(CONSOLE.finditer(PAGE.read_text("utf-8")))[-1]["command"]
    assert "--workers 2" in last and "--records sweep.jsonl" in last
    both = last.partition(" 2> ")[0]
    alone = both.replace("--workers 2", "--workers 1").replace("sweep.jsonl", "alone.jsonl")
    found = [json.loads(run(f"{words} --json 2> notes.txt", tmp_path)) for words in (both, alone)]
    assert found[0] == found[1] and len(found[0]["points"]) == 9
    assert (tmp_path / "alone.jsonl").read_bytes() == (tmp_path / "sweep.jsonl").read_bytes()


@pytest.mark.page
def test_the_python_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "examples" / "digits")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(code, {})
    lines = capsys.readouterr().out.splitlines()
    assert [re.sub(r"\} [\d]+$", "} N", line) for line in lines] == [
        f"{{'array.rows': {rows}}} N" for rows in (4, 8, 16)
    ]
