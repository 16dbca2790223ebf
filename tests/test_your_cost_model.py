# SPDX-License-Identifier: Apache-2.0
"""`docs/your-cost-model.md` can be typed along; `--update-golden` writes down what is printed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from console import check_commands, run

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "your-cost-model.md"
BLOCK = re.compile(
    r"```console\n\$ (?P<command>[^\n]+)\n(?P<output>.*?)```"
    r"|[Ss]ave as\s`(?P<file>[\w./]+)`:\n\n```\w+\n(?P<text>.*?)```",
    re.DOTALL,
)


def test_a_reader_who_types_along_sees_what_the_page_shows(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "npu").mkdir()
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "examples" / "digits")

    tried = []

    def save(match: re.Match[str]) -> None:
        (tmp_path / match["file"]).write_text(match["text"], encoding="utf-8")
        if match["file"] == "npu/backend.py" and not tried:  # there is no driver yet
            tried.append(run("uma doctor ./npu", tmp_path))

    update = bool(request.config.getoption("--update-golden"))
    count = check_commands(
        PAGE,
        lambda command: run(command, tmp_path).replace(f"{tmp_path}/", ""),
        update=update,
        block=BLOCK,
        on_other=save,
    )
    assert count == 9 and PAGE.read_text("utf-8").count("```") == 2 * (count + 8)
    assert "error: " not in tried[0] and re.search(r"^ok +accel.toml", tried[0], re.MULTILINE)
