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

from umakit.devices import find_device

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DEVICE = re.compile(r"--device (\S+)")
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
    """Lines without the host's time, the last column of a profile, and the width it needs.

    Nor do rounding errors have to be the same everywhere.
    """
    output = re.sub(r"\b[\d.]+e-\d+\b", "TINY", output)
    lines = (re.sub(r"─+", "─", re.sub(r" +", " ", line.rstrip())) for line in output.splitlines())
    return [re.sub(r"[\d,]+\.\d$", "TIME", line) for line in lines]


def comparable(command: str, output: str) -> list[str]:
    """What is equal everywhere: without the figures that depend on a compiler's version."""
    if DEVICE.search(command):
        return stable(re.sub(r"\d[\d,.]*", "N", output))
    return stable(output)


def is_possible(command: str) -> bool:
    """Whether the tools of a command's device are there; on CI they are, see conftest.py."""
    match = DEVICE.search(command)
    if match is None:
        return True
    device = find_device(match[1])
    return all(shutil.which(name) for name in (device.command, *device.emulator[:1]))


def test_commands_print_what_the_readme_shows(
    workplace: Path, request: pytest.FixtureRequest
) -> None:
    text = README.read_text(encoding="utf-8")
    update = request.config.getoption("--update-golden")
    commands = [block["command"] for block in CONSOLE.finditer(text)]
    printed = {command: run(command, workplace) for command in filter(is_possible, commands)}
    assert len(printed) >= 6
    if update:
        new = CONSOLE.sub(
            lambda m: (
                f"```console\n$ {m['command']}\n{printed[m['command']]}```"
                if m["command"] in printed
                else m[0]
            ),
            text,
        )
        README.write_text(new, encoding="utf-8")
        return
    for block in CONSOLE.finditer(text):
        command = block["command"]
        if command in printed:
            shown = comparable(command, block["output"])
            assert comparable(command, printed[command]) == shown, command

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
    assert listed == {"partition", "compile", "run", "size", "package", "diff", "backends"}
