# SPDX-License-Identifier: Apache-2.0
"""`uma new --kind`: flags, questions, and projects that work before a line is written."""

from __future__ import annotations

import json
import os
import pty
import random
import re
import select
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import warm_python
from comparisons import some
from umakit.cli.main import run_command

from umakit.backend.registry import load_backend_folder
from umakit.devices import HOST
from umakit.errors import ScaffoldError
from umakit.testing import QuantizedNetwork, compile_and_run
from umakit.tools.doctor import Status, examine_backend
from umakit.tools.scaffold import (
    KINDS,
    OPERATORS,
    Kind,
    answers_of,
    new_backend,
    project_files,
)
from umakit.tools.scaffold.answers import CHOICES

LONG = pytest.mark.skipif("UMAKIT_EXAMPLES" not in os.environ, reason="some minutes")
SHARED = {
    *("LICENSE", "README.md", "__init__.py", "accel.toml", "backend.py", "ci.sh", "run.py"),
    *("pyproject.toml", "test_backend.py", ".gitignore", ".github/workflows/ci.yml"),
    ".umakit/new.toml",
}


def drawn_flags(kind: Kind, draw: random.Random) -> dict[str, str]:
    """Flags of a kind, some of them left out."""
    values = {name: draw.choice(choices) for name, choices in CHOICES.items()}
    count = draw.randint(1, len(kind.operators))
    values["operators"] = ",".join(draw.sample(kind.operators, count))
    values["array"] = f"{draw.choice([1, 3, 8, 16, 64])}x{draw.choice([1, 2, 8, 16, 40])}"
    values["scratchpad"] = draw.choice(["16K", "65536", "128K", "1M"])
    return {
        name: text for name, text in values.items() if name in kind.flags and draw.random() < 0.8
    }


# --- what is written ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
@pytest.mark.parametrize("seed", range(8))
def test_texts_are_whole_whatever_the_flags(kind: Kind, seed: int) -> None:
    draw = random.Random(seed)
    flags = drawn_flags(kind, draw)
    files = project_files("some_npu", answers_of(kind, flags))
    for path, text in files.items():
        assert not re.search(r"/home/|/tmp/|/work/|\{\{ |\{%|jinja|BACKEND", text), (flags, path)
        assert text.endswith("\n") and not text.endswith("\n\n"), (flags, path)
        assert "\t" not in text and not re.search(r" +\n", text), (flags, path)
        assert "\n\n\n\n" not in text, (flags, path)
        if path.endswith(".py"):
            compile(text, path, "exec")
        if path.endswith(".toml"):
            tomllib.loads(text)
    assert SHARED - {".umakit/new.toml"} <= files.keys()
    named = set(re.findall(r"^\| `([\w./]+)`", files["README.md"], re.MULTILINE))
    assert named and all(path in files or path.endswith("/") for path in named)


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_python_that_is_written_is_formatted(kind: Kind, tmp_path: Path) -> None:
    places = []
    for number, operators in enumerate((kind.operators, kind.operators[:1])):
        flags = {"operators": ",".join(operators)}
        places.append(new_backend(f"npu_{number}", tmp_path, kind=kind.name, flags=flags).folder)
    config = ["--config", "line-length=100", "--exclude", ".umakit"]
    rules = ["--select", "E,F,I,UP,B,SIM,C4,PTH", "--config", "lint.isort.known-first-party=[]"]
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run(
        [*ruff, "check", "--isolated", "--no-cache", *rules, *config, *places], check=True
    )
    subprocess.run([*ruff, "format", "--check", "--isolated", *config, *places], check=True)


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_a_new_project_runs_all_its_operators(kind: Kind, tmp_path: Path) -> None:
    flags = {"operators": ",".join(kind.operators), "rounding": "both", "layout": "both"}
    flags = {name: text for name, text in flags.items() if name in kind.flags}
    folder = new_backend("whole_npu", tmp_path, kind=kind.name, flags=flags).folder
    backend = load_backend_folder(folder)
    layouts = ("NCHW", "NHWC") if "layout" in kind.flags else ("NHWC",)
    for layout in some(layouts, len(layouts)):
        layers = QuantizedNetwork(6, 7, 8, layout=layout, rounding="tflm")
        for operator in kind.operators:
            layers = eval(f"layers{OPERATORS[operator].layers}", {"layers": layers})
        report = compile_and_run(layers.model(f"all_{layout.lower()}"), backend, test_dir=tmp_path)
        assert report.largest_difference == 0
        assert {row.operator for row in report.offload.placements if row.where == "cpu"} <= {
            "reshape"
        }
    found = examine_backend(str(folder), HOST).checks
    assert {check.status for check in found} == {Status.OK}, found


def check_project(folder: Path) -> None:
    """`run.py`, the tests, `uma doctor` and `uma check` pass."""
    for command in (
        ["run.py", "out"],
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"],
        ["-m", "umakit.cli.main", "doctor", "."],
        ["-m", "umakit.cli.main", "check", ".", "--draws", "50"],
    ):
        result = subprocess.run(
            [warm_python.python(), *command],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, (command, result.stdout, result.stderr)


@LONG
@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
@pytest.mark.parametrize("seed", range(int(os.environ.get("UMAKIT_EXAMPLES", "0")) or 1))
def test_drawn_projects_pass_before_a_line_is_written(
    kind: Kind, seed: int, tmp_path: Path
) -> None:
    flags = drawn_flags(kind, random.Random(seed))
    check_project(new_backend(f"npu_{seed}", tmp_path, kind=kind.name, flags=flags).folder)


def test_nothing_offloaded_is_a_failure(tmp_path: Path) -> None:
    flags = {"operators": "dense"}
    folder = new_backend("idle_npu", tmp_path, kind="library", flags=flags).folder
    path = folder / "backend.py"
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace("qdense(", "qdense(predicate=lambda layer: 'not today', "), encoding="utf-8"
    )
    result = subprocess.run(
        [warm_python.python(), "run.py", "out"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "Nothing ran on idle_npu" in result.stderr
    assert "not today" in result.stdout


# --- flags ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--kind", "vector"], "there is no kind 'vector'; choose from "),
        (["--kind", "library", "--array", "8x8"], "--array 8x8: a backend of the kind library has"),
        (["--kind", "library", "--simulator", "own"], "--simulator own: a backend of the kind"),
        (["--kind", "library", "--operators", "conv3d"], "has no 'conv3d'; choose from conv2d"),
        (["--kind", "library", "--operators", "dense,dense"], "dense is given twice"),
        (["--kind", "library", "--operators", ","], "--operators is empty"),
        (["--kind", "library", "--layout", "CHWN"], "there is no such layout; choose from NHWC"),
        (["--kind", "library", "--rounding", "up"], "there is no such rounding"),
        (["--tutorial", "vanilla", "--array", "8x8"], "--array 8x8: a tutorial has none"),
        (["--tutorial", "vanilla", "--kind", "library"], "--kind library: a tutorial has none"),
        (["--merge"], "--merge is for --update"),
        (["--update", "elsewhere"], "the name my_npu: an update does not change it"),
    ],
)
def test_flags_that_do_not_fit_are_refused_by_name(
    flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = [] if "--update" in flags else ["--directory", str(tmp_path)]
    assert run_command(["new", "my_npu", *directory, *flags]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["16", "0x8", "8x", "8x8x8", "9999x1", "-1x4", "axb"])
def test_no_size_of_an_array(text: str) -> None:
    kind = Kind("any", "", ("dense",), {"operators": "dense", "array": "8x8"}, "")
    with pytest.raises(ScaffoldError, match="is not the size of an array"):
        answers_of(kind, {"array": text})


@pytest.mark.parametrize(("text", "size"), [("65536", 65536), ("128K", 131072), ("1M", 1048576)])
def test_sizes_of_scratchpads(text: str, size: int) -> None:
    kind = Kind("any", "", ("dense",), {"operators": "dense", "scratchpad": "64K"}, "")
    assert answers_of(kind, {"scratchpad": text}).scratchpad == size
    for wrong in ("", "1", "12 K", "1G", "4096M"):
        with pytest.raises(ScaffoldError, match="is not the size of a scratchpad"):
            answers_of(kind, {"scratchpad": wrong})


def test_json_has_what_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["new", "my_npu", "--kind", "library", "--json", "--directory", str(tmp_path)]
    assert run_command(command) == 0
    captured = capsys.readouterr()
    printed = json.loads(captured.out)
    assert captured.err == ""
    assert (printed["name"], printed["kind"], printed["tutorial"]) == ("my_npu", "library", None)
    assert printed["flags"]["operators"] == "conv2d,depthwise,dense"
    folder = Path(printed["folder"])
    assert set(printed["files"]) == {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    }
    assert set(printed["files"]) >= SHARED


def test_defaults_are_said_where_nobody_can_be_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["new", "my_npu", "--directory", str(tmp_path)]) == 0
    note = capsys.readouterr().err
    assert note.startswith("note: not given, so these are the defaults: --kind ")
    assert "--operators conv2d,depthwise,dense" in note and note.count("\n") == 1
    # A register map says much, but not this.
    said = "; --array is the multiply-accumulates in a cycle, which no register map says"
    assert said not in note
    registers = ["--registers", str(tmp_path / "my_npu" / "registers.toml"), "--kind", "layer"]
    words = ["new", "other_npu", "--directory", str(tmp_path), *registers]
    for more in ([], ["--array", "4x4"]):
        folder = tmp_path / "array" if more else tmp_path
        assert run_command([*words[:3], str(folder), *registers, *more]) == 0
        note = capsys.readouterr().err
        assert (said in note) == ("--array 16x16" in note) == (not more)


def test_questions_on_a_terminal(tmp_path: Path) -> None:
    """A wrong answer is asked for again; what a flag says is not asked."""
    answers = ["vector", "library", "conv2d,nonsense", "dense", ""]
    leader, follower = pty.openpty()
    command = [
        warm_python.python(),
        "-m",
        "umakit.cli.main",
        "new",
        "asked_npu",
        "--layout",
        "NCHW",
    ]
    process = subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, cwd=tmp_path
    )
    os.close(follower)
    shown = ""
    while process.poll() is None or select.select([leader], [], [], 0)[0]:
        try:
            if select.select([leader], [], [], 0.1)[0]:
                shown += os.read(leader, 4096).decode()
        except OSError:  # the other end is closed
            break
        if answers and shown.rstrip(" ").endswith("]:"):
            os.write(leader, f"{answers.pop(0)}\n".encode())
            shown += " "
    os.close(leader)
    assert process.wait() == 0, shown
    assert "there is no kind 'vector'" in shown and "has no 'nonsense'" in shown
    assert "Layout" not in shown and answers == []
    record = tomllib.loads((tmp_path / "asked_npu/.umakit/new.toml").read_text(encoding="utf-8"))
    assert record["kind"] == "library"
    assert record["flags"] == {"operators": "dense", "layout": "NCHW", "rounding": "tflm"}


def test_the_script_for_any_ci_runs_each_check(tmp_path: Path) -> None:
    """With programs that only note how they are called."""
    flags = {"operators": "dense"}
    folder = new_backend("ci_npu", tmp_path, kind="library", flags=flags).folder
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("python", "uma"):
        (tools / name).write_text(f'#!/bin/sh\necho "{name} $*" >> "$CALLS"\n')
        (tools / name).chmod(0o755)
    calls = tmp_path / "calls"
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "CALLS": str(calls)}
    subprocess.run(["sh", folder / "ci.sh"], env=environment, check=True, cwd="/")
    lines = calls.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if "pip install" not in line] == [
        "uma doctor .", "python run.py", "python -m pytest", "uma check .",
    ]  # fmt: skip
    workflow = (folder / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    assert "run: sh ci.sh" in workflow and shutil.which("sh")
