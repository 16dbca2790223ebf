# SPDX-License-Identifier: Apache-2.0
"""What `uma` prints: names as they are, whatever a terminal or rich would take them for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from umakit.cli.console import console, say
from umakit.cli.main import run_command
from umakit.cli.tables import new_table

MARKUP = (
    "/blocks[/0]/Relu",
    "layers[a].relu[red]",
    "[bold]x",
    "a[/]b",
    ":smile:",
    "[link=x]y[/link]",
)
UNSAFE = (
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "a\nerror: forged",
    "a\rb",
    "a\x00b",
    "\u202eb",
    "\x9b1m",
)
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def relu(path: Path, node: str, source: str = "x", result: str = "y") -> Path:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4]) for n in (source, result))
    graph = helper.make_graph(
        [helper.make_node("Relu", [source], [result], name=node)], "g", [x], [y]
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8),
        str(path),
    )
    return path


def test_cells_of_tables_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    table = new_table("name", "where")
    for name in MARKUP:
        table.add_row(name, "cpu")
    console().print(table)
    printed = capsys.readouterr().out
    assert all(name in printed for name in MARKUP)


@pytest.mark.parametrize("name", UNSAFE)
def test_control_characters_do_not_reach_the_terminal(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = new_table("name")
    table.add_row(name)
    console().print(table)
    say(f"error: {name} is wrong", error=True)
    printed = capsys.readouterr()
    assert not CONTROL.search(printed.out + printed.err)
    assert len(printed.err.splitlines()) == 1


def test_long_names_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    table = new_table("name")
    table.add_row("n" * 100_000)
    console().print(table)
    say("n" * 100_000)
    printed = capsys.readouterr().out
    assert len(printed) < 6000
    assert "\N{HORIZONTAL ELLIPSIS}" in printed


@pytest.mark.parametrize("name", [*MARKUP[:2], *UNSAFE[:3], "\u05d0/\u4e2d", "n" * 300])
def test_commands_print_networks_with_any_names(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    relu(tmp_path / "model.onnx", name, f"in{name}", f"out{name}")
    np.savez(tmp_path / "x.npz", x=np.ones((1, 4), "float32"))
    for command in (
        ["partition", "model.onnx"],
        ["compile", "model.onnx", "-o", "library", "--memory-map", "map.svg"],
        ["run", "library", "-i", "x.npz", "-o", "out.npz", "--profile"],
        ["report", "model.onnx", "-o", "page.html"],
    ):
        assert run_command(command) == 0, command
    printed = capsys.readouterr()
    assert not CONTROL.search(printed.out + printed.err)
    assert len(printed.out) < 20_000
    if name.isprintable():
        assert name in printed.out
    with np.load("out.npz") as archive:
        assert archive.files == [f"out{name}".split("\0")[0]]
        assert np.array_equal(archive[archive.files[0]], np.ones((1, 4)))


@pytest.mark.parametrize("argument", [*MARKUP[:4], *UNSAFE[:3]])
@pytest.mark.parametrize(
    "command", [["size", "*"], ["run", "*", "-i", "*"], ["*"], ["size", "--*"]]
)
def test_mistakes_on_the_command_line(
    command: list[str], argument: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.replace("*", argument) for word in command]
    if any("\0" in word for word in words):
        pytest.skip("no argument can hold it")
    assert run_command(words) == 2
    printed = capsys.readouterr()
    assert not CONTROL.search(printed.out + printed.err)
    assert "Traceback" not in printed.err


def test_a_terminal_of_ascii_gets_escapes(tmp_path: Path) -> None:
    relu(tmp_path / "model.onnx", "\u05d0\u4e2d")
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    code = "import sys; from umakit.cli.main import run_command; sys.exit(run_command())"
    for words in (["partition", "model.onnx"], ["partition", "b\udcffd.onnx"]):
        ended = subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=tmp_path, env=environment, capture_output=True, check=False,
        )  # fmt: skip
        assert ended.returncode == (0 if words[1] == "model.onnx" else 2)
        assert b"Traceback" not in ended.stderr
        assert (ended.stdout + ended.stderr).isascii()
