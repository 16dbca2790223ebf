# SPDX-License-Identifier: Apache-2.0
"""Commands in Markdown pages: run them, compare what they print with what the page shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import warm_python

from umakit.devices import find_device
from umakit.devices.addresses import is_address

DEVICE = re.compile(r"--device (\S+)")
RTL = re.compile(r"^uma cosim|--rtl\b")
CONSOLE = re.compile(r"```console\n\$ (?P<command>[^\n]+)\n(?P<output>.*?)```", re.DOTALL)


TYPED = re.compile(
    rf"{CONSOLE.pattern}|[Ss]ave as\s`(?P<file>[\w./]+)`:\n\n```\w+\n(?P<text>.*?)```", re.DOTALL
)
"""Console blocks, and blocks of files that a reader saves."""


def run(command: str, folder: Path, columns: int = 110) -> str:
    """What a shell prints for a command, without progress and trailing blanks."""
    path = f"{warm_python.programs()}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": str(columns)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    lines = [line for line in result.stdout.splitlines() if not re.match(r"\[ *\d+\.\d s\]", line)]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def comparable(command: str, output: str) -> list[str]:
    """What is equal everywhere: without the figures that depend on a compiler's version."""
    if DEVICE.search(command):
        return _stable(re.sub(r"\d[\d,.]*", "N", output))
    return _stable(output)


def _stable(output: str) -> list[str]:
    """Lines without the host's times, the last columns of a profile, the width they need, and
    umakit's version.

    Nor do rounding errors have to be the same everywhere.
    """
    output = re.sub(r"\b[\d.]+e-\d+\b", "TINY", output)
    output = re.sub(r"[\d,]+\.\d us of processor time", "TIME of processor time", output)
    output = re.sub(r"^(\w+ time, ns) .*", r"\1 TIMES", output, flags=re.MULTILINE)
    output = re.sub(r"in [\d.]+ s, [\d,]+ cycles a second", "in TIME", output)
    output = re.sub(r"\bumakit \d+\.\d+\.\d+(\.dev\d+)?", "umakit VERSION", output)
    lines = (re.sub(r"─+", "─", re.sub(r" +", " ", line.rstrip())) for line in output.splitlines())
    return [re.sub(r"[\d,]+\.\d( [\d,]+\.\d)?$", "TIME", line) for line in lines]


def is_possible(command: str) -> bool:
    """Whether the tools of a command's device are there; on CI they are, see conftest.py."""
    if RTL.search(command) and shutil.which("verilator") is None:
        return False
    match = DEVICE.search(command)
    if match is None:
        return True
    if is_address(match[1]):  # its test has a server
        return True
    # Pages have descriptions of boards that are based on this one.
    device = find_device("qemu-cortex-m4" if match[1].endswith(".toml") else match[1])
    return all(shutil.which(name) for name in (device.command, *device.run[:1]))


def check_commands(
    page: Path,
    execute: Callable[[str], str],
    *,
    update: bool,
    block: re.Pattern[str] = CONSOLE,
    on_other: Callable[[re.Match[str]], None] | None = None,
    before: str | None = None,
) -> int:
    """Run the console blocks of a page in order; they print what the page shows.

    Args:
        execute: a command to what it prints.
        update: writes what they print into the page instead.
        block: finds console blocks by the groups `command` and `output`, and what else is to be
            dealt with between them.
        on_other: gets each match without a command.
        before: the line of the page at which to stop; None for all of it.

    Returns:
        How many commands were run.
    """
    count = 0

    def printed(match: re.Match[str]) -> str:
        nonlocal count
        command = match["command"]
        if command is None:
            if on_other is not None:
                on_other(match)
            return match[0]
        if not is_possible(command):
            return match[0]
        count += 1
        output = execute(command)
        if comparable(command, output) == comparable(command, match["output"]):
            return match[0]  # as it is, with the times that it has
        assert update, f"{page.name}: $ {command}\nprints\n{output}\nnot\n{match['output']}"
        return f"```console\n$ {command}\n{output}```"

    text = page.read_text(encoding="utf-8")
    end = len(text) if before is None else text.index(f"\n{before}\n")
    new = block.sub(printed, text[:end]) + text[end:]
    if update:
        page.write_text(new, encoding="utf-8")
    return count


def type_with_digits(
    page: Path,
    folder: Path,
    request: pytest.FixtureRequest,
    *,
    saved: Callable[[str], None] = lambda file: None,
    before: str | None = None,
) -> int:
    """Type a page along, as `type_along`, in a folder that has the network of digits."""
    digits = Path(__file__).parents[1] / "examples" / "digits"
    shutil.copytree(digits, folder / "examples" / "digits")
    update = bool(request.config.getoption("--update-golden"))
    return type_along(page, folder, update=update, saved=saved, before=before)


def type_along(
    page: Path,
    folder: Path,
    *,
    update: bool,
    saved: Callable[[str], None] = lambda file: None,
    before: str | None = None,
) -> int:
    """Type a page along: save its files, run its commands, and compare what they print.

    Args:
        page: the page.
        folder: where the reader is; folders of files are made there.
        update: as in `check_commands`.
        saved: called with the path of each file that was saved, as the page has it.
        before: the line of the page at which the reader stops; None for all of it.

    Returns:
        The number of commands.
    """

    def save(match: re.Match[str]) -> None:
        path = folder / match["file"]
        path.parent.mkdir(exist_ok=True)
        path.write_text(match["text"], encoding="utf-8")
        saved(match["file"])

    def execute(command: str) -> str:
        return run(command, folder).replace(f"{folder}/", "")

    return check_commands(page, execute, update=update, block=TYPED, on_other=save, before=before)
