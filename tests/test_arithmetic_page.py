# SPDX-License-Identifier: Apache-2.0
"""`docs/arithmetic.md` can be typed along; `--update-golden` writes down what is printed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from console import check_commands, run

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "arithmetic.md"
BLOCK = re.compile(
    r"```console\n\$ (?P<command>[^\n]+)\n(?P<output>.*?)```"
    r"|Save as\s`(?P<file>[\w./]+)`:\n\n```\w+\n(?P<text>.*?)```",
    re.DOTALL,
)


def test_a_reader_who_types_along_sees_what_the_page_shows(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "cut_npu").mkdir()
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "examples" / "digits")
    count = check_commands(
        PAGE,
        lambda command: run(command, tmp_path).replace(f"{tmp_path}/", ""),
        update=bool(request.config.getoption("--update-golden")),
        block=BLOCK,
        on_other=lambda match: (tmp_path / match["file"]).write_text(match["text"], "utf-8"),
    )
    assert count == 3
