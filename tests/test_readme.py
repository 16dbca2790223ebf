# SPDX-License-Identifier: Apache-2.0
"""The README's commands print what the README says; `--update-golden` writes it down again."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
CONSOLE = re.compile(r"```console\n\$ (?P<command>[^\n]+)\n(?P<output>.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "examples", folder / "examples")
    return folder


def run(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "110"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    lines = [line for line in result.stdout.splitlines() if not re.match(r"\[ *\d+\.\d s\]", line)]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def stable(output: str) -> list[str]:
    """Lines without the host's time, the last column of a profile, and the width it needs."""
    lines = (re.sub(r"─+", "─", re.sub(r" +", " ", line.rstrip())) for line in output.splitlines())
    return [re.sub(r"[\d,]+\.\d$", "TIME", line) for line in lines]


def test_commands_print_what_the_readme_shows(
    workplace: Path, request: pytest.FixtureRequest
) -> None:
    text = README.read_text(encoding="utf-8")
    update = request.config.getoption("--update-golden")
    printed = {m["command"]: run(m["command"], workplace) for m in CONSOLE.finditer(text)}
    assert len(printed) >= 6
    if update:
        new = CONSOLE.sub(
            lambda m: f"```console\n$ {m['command']}\n{printed[m['command']]}```", text
        )
        README.write_text(new, encoding="utf-8")
        return
    for block in CONSOLE.finditer(text):
        assert stable(printed[block["command"]]) == stable(block["output"]), block["command"]

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
    assert listed == {"partition", "compile", "run", "backends"}
