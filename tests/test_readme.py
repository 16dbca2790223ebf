# SPDX-License-Identifier: Apache-2.0
"""The README's commands print what the README says; `--update-golden` writes it down again."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from console import check_commands, run

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "examples", folder / "examples")
    return folder


def test_commands_print_what_the_readme_shows(
    workplace: Path, request: pytest.FixtureRequest
) -> None:
    update = bool(request.config.getoption("--update-golden"))
    count = check_commands(README, lambda command: run(command, workplace), update=update)
    assert count >= 6
    if update:
        return

    text = README.read_text(encoding="utf-8")
    snippet = re.search(r"```c\n(.*?)```", text, re.DOTALL)
    assert snippet is not None
    (workplace / "snippet.c").write_text(snippet[1], encoding="utf-8")
    include = "digits_library/codegen/host/include"
    assert run(f"cc -std=c99 -Wall -Werror -I{include} -c snippet.c -o snippet.o", workplace) == ""

    python = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert python is not None
    (workplace / "snippet.py").write_text(python[1], encoding="utf-8")
    assert run("python snippet.py", workplace) == "3 operators offloaded\n"


def test_help_names_every_command_of_the_readme() -> None:
    text = README.read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `uma (\w+)", text, re.MULTILINE))
    assert listed == set("partition compile run size package diff report tune sim backends".split())
