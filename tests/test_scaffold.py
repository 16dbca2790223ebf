# SPDX-License-Identifier: Apache-2.0
"""`uma new`: a pure function of the name, refusals without traces, and what it writes works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import warm_python
from comparisons import some
from umakit.cli.main import run_command

from umakit.backend.registry import load_backend_folder
from umakit.errors import ScaffoldError
from umakit.testing.harness import compile_and_run, conv2d_model
from umakit.tools.scaffold import TUTORIALS, check_name, new_backend, tutorial_files

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "backends" / "vanilla_accelerator"
VANILLA = ["new", "vanilla_accelerator", "--tutorial", "vanilla"]


def contents(folder: Path) -> dict[str, tuple[bytes, bool]]:
    """Bytes and executable bit of every file below a folder, but for Python's caches."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), os.access(path, os.X_OK))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def python(
    *arguments: str | Path, cwd: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run this Python in another process."""
    return subprocess.run(
        [warm_python.python(), *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


# --- the same bytes everywhere ------------------------------------------------------------------


@pytest.mark.parametrize("tutorial", TUTORIALS)
def test_the_reference_backend_is_what_uma_new_writes(tutorial: str, tmp_path: Path) -> None:
    name = f"{tutorial}_accelerator"
    assert run_command(["new", name, "--tutorial", tutorial, "--directory", str(tmp_path)]) == 0
    there = contents(ROOT / "backends" / name)
    design = {path for path in there if path.startswith("rtl/")}  # not of the templates
    assert contents(tmp_path / name) == {p: there[p] for p in there if p not in design}


@pytest.mark.parametrize("seed", ["0", "4242"])
def test_what_is_written_depends_on_nothing_but_the_name(seed: str, tmp_path: Path) -> None:
    place = tmp_path / f"some where {seed}"
    place.mkdir()
    result = python(
        *("-m", "umakit.cli.main", *VANILLA),
        cwd=place,
        PYTHONHASHSEED=seed,
        USER="someone",
        HOME=str(tmp_path),
        TZ="Pacific/Auckland",
        LC_ALL="C",
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert contents(place / "vanilla_accelerator") == contents(REFERENCE)


def test_time_and_umask_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)
    before = os.umask(0o077)
    try:
        written = new_backend("vanilla_accelerator", tmp_path, "vanilla")
    finally:
        os.umask(before)
    assert contents(written.folder) == contents(REFERENCE)
    assert set(written.files) == set(contents(REFERENCE))


@pytest.mark.parametrize("tutorial", TUTORIALS)
def test_no_file_names_a_place_a_date_or_a_template(tutorial: str) -> None:
    for name, text in tutorial_files("some_npu", tutorial).items():
        assert not re.search(r"\b20[2-9]\d\b|/home|/tmp|/work|\{\{|\}\}|\{%|jinja", text), name
        assert text.endswith("\n") and not text.endswith("\n\n"), name
        assert "\t" not in text and not re.search(r" +\n", text), name


def test_the_command_line_of_umas_tutorial_writes_the_same_bytes(tmp_path: Path) -> None:
    script = ROOT / "cli" / "uma_cli.py"
    result = python(
        *(script, "--add_hardware", "vanilla_accelerator", "--tutorial", "vanilla"), cwd=tmp_path
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert contents(tmp_path / "vanilla_accelerator") == contents(REFERENCE)
    again = python(script, "--add_hardware", "vanilla_accelerator", cwd=tmp_path)
    assert (again.returncode, len(again.stderr.splitlines())) == (2, 1)
    assert contents(tmp_path / "vanilla_accelerator") == contents(REFERENCE)


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("../x", "a/b", "/tmp/x", ".", "..", "class", "match", "9lives", "My-Npu", "MyNpu", "int"),
        *("", " ", "a b", "a.b", "größe", "_x", "x\n", "-x", "restrict", "template", "main"),
        *("con\0", "\N{KELVIN SIGN}elvin", "x" * 300),
    ],
)
def test_a_name_that_cannot_be_used_is_refused_without_a_trace(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    code = run_command(["new", "--directory", str(place), "--tutorial", "vanilla", "--", name])
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1
    assert "Traceback" not in captured.err
    assert list(tmp_path.rglob("*")) == [place]


@pytest.mark.parametrize("name", ["a", "my_npu", "npu2", "x_", "selfish", "c", "llvm"])
def test_other_names_are_fine(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("kind", ["folder", "empty folder", "file", "link", "dangling link"])
def test_what_exists_is_left_alone(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, elsewhere = tmp_path / "my_npu", tmp_path / "elsewhere"
    if kind == "file":
        target.write_text("mine")
    elif kind.endswith("link"):
        if kind == "link":
            elsewhere.mkdir()
        target.symlink_to(elsewhere)
    else:
        target.mkdir()
        if kind == "folder":
            (target / "backend.py").write_text("mine")
    before = sorted(tmp_path.rglob("*")), contents(tmp_path), target.is_symlink()
    assert run_command(["new", "my_npu", "--directory", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "my_npu: exists already" in error and error.count("\n") == 1
    assert (sorted(tmp_path.rglob("*")), contents(tmp_path), target.is_symlink()) == before


def test_an_unknown_tutorial_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["new", "my_npu", "--tutorial", "nope", "--directory", str(tmp_path)]
    assert run_command(arguments) == 2
    error = capsys.readouterr().err
    assert error == (
        "error: there is no tutorial 'nope'; choose from vanilla, strawberry, chocolate, "
        "small_chocolate\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_a_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert run_command(["new", "my_npu", "--directory", str(tmp_path / "file")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1


def test_a_missing_directory_is_made(tmp_path: Path) -> None:
    assert new_backend("my_npu", tmp_path / "a" / "b", "vanilla").folder.is_dir()


def test_a_write_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object, **options: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ScaffoldError, match="cannot be written: No space left on device"):
        new_backend("my_npu", tmp_path, "vanilla")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_leaves_all_to_the_cpu_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "vanilla_accelerator"
    shutil.copytree(ROOT / "backends" / folder.name, folder)
    script = folder / "run.py"
    text = script.read_text(encoding="utf-8")
    float32 = "conv2d_model(channels=3, height=16, width=12, filters=8, kernel=3)"
    assert float32 in text
    text = text.replace(float32, "QuantizedNetwork(4, 4, 2).conv2d(2).model()")
    text = text.replace(
        "import compile_and_run, conv2d_model", "import QuantizedNetwork, compile_and_run"
    )
    script.write_text(text, encoding="utf-8")
    result = python("run.py", str(tmp_path / "out"), cwd=folder)
    assert result.returncode == 1
    assert "Nothing ran on the vanilla_accelerator" in result.stderr


# --- a finished backend -------------------------------------------------------------------------


def test_run_py_works_from_anywhere(tmp_path: Path) -> None:
    folder = new_backend("vanilla_accelerator", tmp_path / "backends here", "vanilla").folder
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    result = python(folder / "run.py", cwd=elsewhere, TMPDIR=str(elsewhere))
    assert (result.returncode, result.stderr) == (0, "")
    found = re.search(r"^Generated files are in (.*)$", result.stdout, re.MULTILINE)
    assert found is not None
    library = elsewhere / found[1]
    wanted = ["codegen/host/src", "codegen/host/include", "parameters", "src", "runtime"]
    assert all((library / part).is_dir() for part in wanted)
    assert (library / "metadata.json").is_file()
    assert "vanilla_accelerator" in result.stdout

    chosen = python(folder / "run.py", "my output", cwd=elsewhere)
    assert (chosen.returncode, chosen.stderr) == (0, "")
    assert (elsewhere / "my output" / "conv2d" / "metadata.json").is_file()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("tutorial", "count"), some([("vanilla", 9), ("strawberry", 8), ("chocolate", 8)], 3)
)
def test_the_tests_of_a_generated_backend_pass(tutorial: str, count: int, tmp_path: Path) -> None:
    folder = new_backend("acme_npu", tmp_path, tutorial).folder
    for name, text in tutorial_files("acme_npu", tutorial).items():
        rest = text.replace(f"--tutorial {tutorial}", "").replace(f"docs/{tutorial}.md", "")
        assert tutorial not in rest.lower(), name
    result = python(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_backend.py"),
        cwd=folder,
    )
    assert result.returncode == 0, result.stdout
    assert re.search(rf"\b{count} passed\b", result.stdout)


def test_a_renamed_backend_works_and_keeps_to_its_name(tmp_path: Path) -> None:
    folder = new_backend("acme_npu", tmp_path, "vanilla").folder
    backend = load_backend_folder(folder)
    model = conv2d_model(channels=2, height=5, width=6, filters=3, kernel=3)
    report = compile_and_run(model, backend, test_dir=tmp_path / "out")
    assert [row.where for row in report.offload.placements] == ["acme_npu"]

    library = tmp_path / "out" / "conv2d"
    code = library / "codegen" / "host" / "src"
    sources = sorted(code.rglob("*.c"))
    assert not any("vanilla" in path.read_text(encoding="utf-8").lower() for path in sources)
    objects = tmp_path / "objects"
    objects.mkdir()
    subprocess.run(["cc", "-std=c99", "-c", *sources], cwd=objects, check=True)
    for path in sources:
        listing = subprocess.run(
            ["nm", "-g", "--defined-only", objects / f"{path.stem}.o"],
            capture_output=True,
            text=True,
            check=True,
        )
        prefix = path.relative_to(code).parts[0].split("_", 1)[0]
        owner = {"umakit": "umakit_", "tvmgen": "tvmgen_conv2d_", "acme": "acme_npu_"}[prefix]
        names = [line.split()[-1] for line in listing.stdout.splitlines()]
        assert names and all(name.startswith(owner) for name in names), path


def test_two_renamed_backends_are_linked_into_one_library(tmp_path: Path) -> None:
    first = load_backend_folder(new_backend("left_npu", tmp_path, "vanilla").folder)
    second = load_backend_folder(new_backend("right_npu", tmp_path, "vanilla").folder)
    model = conv2d_model(channels=2, height=5, width=6, filters=3, kernel=3)
    report = compile_and_run(model, [second, first], test_dir=tmp_path / "out")
    assert [row.where for row in report.offload.placements] == ["right_npu"]
