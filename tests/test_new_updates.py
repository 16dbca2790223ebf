# SPDX-License-Identifier: Apache-2.0
"""`uma new --update`: newer templates and other flags come in, and no edit is lost."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path

import pytest
from umakit.cli.main import run_command

from umakit.errors import ScaffoldError
from umakit.tools.scaffold import KINDS, Kind, new_backend, update_backend
from umakit.tools.scaffold import new as rendering

KIND = "library"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    flags = {"operators": "conv2d,dense", "rounding": "tflm"}
    return new_backend("my_npu", tmp_path, kind=KIND, flags=flags).folder


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_other_flags_give_what_they_give_at_first(project: Path, tmp_path: Path) -> None:
    """Of a project without edits."""
    flags = {"operators": "dense,add", "rounding": "both"}
    update = update_backend(project, flags, merge=False)
    fresh = new_backend("my_npu", tmp_path / "fresh", kind=KIND, flags=flags).folder
    assert contents(project) == contents(fresh)
    assert update.is_complete and not update.kept
    assert update.removed == ["kernels/source/my_npu_conv2d.c"]
    assert "kernels/source/my_npu_add.c" in update.added and "backend.py" in update.replaced
    before = contents(project)
    again = update_backend(project, merge=False)
    assert again.is_complete and not any([again.added, again.replaced, again.removed])
    assert contents(project) == before


def test_edits_elsewhere_in_a_file_are_merged_on_request(project: Path) -> None:
    backend = project / "backend.py"
    edit(backend, "Kernels of the library my_npu.", "Kernels that I wrote.")
    edited = backend.read_bytes()
    for _ in range(2):  # it stays to be merged until it is
        update = update_backend(project, {"rounding": "ort"}, merge=False)
        assert update.to_merge == ["backend.py"] and not update.is_complete
        assert '-ROUNDING = "tflm"' in update.differences["backend.py"]
        assert '+ROUNDING = "ort"' in update.differences["backend.py"]
        assert "Kernels that I wrote" not in update.differences["backend.py"].replace("\n ", "")
        assert backend.read_bytes() == edited
    update = update_backend(project, merge=True)
    assert update.merged == ["backend.py"] and update.is_complete
    text = backend.read_text(encoding="utf-8")
    assert 'ROUNDING = "ort"' in text and "Kernels that I wrote." in text
    assert update_backend(project, merge=False).is_complete
    assert backend.read_text(encoding="utf-8") == text


def test_edits_of_the_same_line_become_a_conflict(project: Path) -> None:
    backend = project / "backend.py"
    edit(backend, 'ROUNDING = "tflm"', 'ROUNDING = "own:mine"')
    update = update_backend(project, {"rounding": "ort"}, merge=True)
    assert update.conflicts == ["backend.py"] and not update.is_complete
    text = backend.read_text(encoding="utf-8")
    sides = re.search(
        r"<<<<<<< yours\n(.*)\|{7} as `uma new` wrote it\n(.*)=======\n(.*)>>>>>>> as", text, re.S
    )
    assert sides is not None
    assert [side.strip() for side in sides.groups()] == [
        'ROUNDING = "own:mine"', 'ROUNDING = "tflm"', 'ROUNDING = "ort"',
    ]  # fmt: skip
    assert update_backend(project, merge=False).conflicts == ["backend.py"]
    assert backend.read_text(encoding="utf-8") == text
    solved = text.replace(text[sides.start() : text.index("\n", sides.end()) + 1], sides[1])
    backend.write_text(solved, encoding="utf-8")
    assert update_backend(project, merge=False).is_complete
    assert backend.read_text(encoding="utf-8") == solved


def test_what_was_deleted_stays_deleted_and_what_is_not_written_any_more_is_kept(
    project: Path,
) -> None:
    (project / "run.py").unlink()
    convolution = project / "kernels/source/my_npu_conv2d.c"
    convolution.write_text("/* mine */\n", encoding="utf-8")
    (project / "notes.txt").write_text("mine", encoding="utf-8")
    update = update_backend(project, {"operators": "dense"}, merge=False)
    assert update.kept == ["kernels/source/my_npu_conv2d.c"]
    assert convolution.read_text(encoding="utf-8") == "/* mine */\n"
    assert not (project / "run.py").exists() and (project / "notes.txt").is_file()
    update_backend(project, {"operators": "dense,add"}, merge=False)
    assert not (project / "run.py").exists()


def test_a_file_of_the_users_where_a_new_one_goes_is_merged_too(project: Path) -> None:
    place = project / "kernels/source/my_npu_add.c"
    place.write_text("/* mine */\n", encoding="utf-8")
    update = update_backend(project, {"operators": "conv2d,add,dense"}, merge=False)
    assert update.to_merge == ["kernels/source/my_npu_add.c"]
    assert place.read_text(encoding="utf-8") == "/* mine */\n"
    update_backend(project, merge=True)
    assert "/* mine */" in place.read_text(encoding="utf-8")


def test_newer_templates_come_in(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another version of umakit, which writes other texts."""

    def newer(name: str, answers: object) -> dict[str, str]:
        files = original(name, answers)
        return files | {"run.py": f"{files['run.py']}# newer\n", "more/new.txt": "new\n"}

    original = rendering.project_files
    monkeypatch.setattr("umakit.tools.scaffold.update.project_files", newer)
    (project / "README.md").write_text("mine\n", encoding="utf-8")
    update = update_backend(project, merge=False)
    assert (update.added, update.replaced) == (["more/new.txt"], ["run.py"])
    assert update.is_complete
    assert (project / "README.md").read_text(encoding="utf-8") == "mine\n"


@pytest.mark.parametrize("seed", range(20))
def test_no_line_of_the_users_is_lost(seed: int, project: Path) -> None:
    """Lines are inserted, files are deleted, flags change, in any order, with and without merge."""
    draw = random.Random(seed)
    mine: dict[str, set[bytes]] = {}
    for step in range(6):
        paths = [path for path in contents(project) if not path.startswith(".umakit/")]
        for path in draw.sample(paths, 3):
            line = f"mine {seed} {step}".encode()
            lines = (project / path).read_bytes().split(b"\n")
            lines.insert(draw.randint(0, len(lines)), line)
            (project / path).write_bytes(b"\n".join(lines))
            mine.setdefault(path, set()).add(line)
        flags = {
            "operators": ",".join(draw.sample(["conv2d", "dense", "add", "multiply"], 2)),
            "rounding": draw.choice(["tflm", "ort", "both"]),
        }
        update_backend(project, flags, merge=draw.random() < 0.5)
        for path, lines_of_mine in mine.items():
            assert lines_of_mine <= set((project / path).read_bytes().split(b"\n"))


def test_the_mode_of_a_file_stays_and_links_are_followed(project: Path) -> None:
    (project / "run.py").chmod(0o755)
    moved = project / "elsewhere.py"
    (project / "backend.py").rename(moved)
    (project / "backend.py").symlink_to(moved)
    update = update_backend(project, {"rounding": "ort"}, merge=False)
    assert {"run.py", "backend.py"} <= set(update.replaced)
    assert os.access(project / "run.py", os.X_OK)
    assert (project / "backend.py").is_symlink() and '"ort"' in moved.read_text("utf-8")


def test_an_edited_register_map_is_an_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a kind whose header is made of it."""
    kind = Kind(
        "mapped",
        "",
        ("dense",),
        {"operators": "dense", "registers": ""},
        "",
        files=lambda answers, name: {
            "registers.toml": answers.registers or "size = 1\n",
            "registers.h": f"/* {answers.registers or 'size = 1'} */\n",
        },
    )
    monkeypatch.setitem(KINDS, "mapped", kind)
    monkeypatch.setattr(rendering, "_rendered", lambda *arguments: {})
    folder = new_backend("my_npu", tmp_path, kind="mapped").folder
    assert update_backend(folder, merge=False).replaced == []
    (folder / "registers.toml").write_text("size = 2\n", encoding="utf-8")
    assert update_backend(folder, merge=False).replaced == ["registers.h"]
    assert "size = 2" in (folder / "registers.h").read_text(encoding="utf-8")
    assert update_backend(folder, merge=False).replaced == []


# --- the command ----------------------------------------------------------------------------------


def test_exit_codes_and_what_is_shown(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["new", "--update", str(project)]) == 0
    assert capsys.readouterr().out == f"{project} is up to date\n"
    edit(project / "backend.py", "Kernels of the library my_npu.", "Mine.")
    command = ["new", "--update", str(project), "--rounding", "ort"]
    assert run_command(command) == 1
    printed = capsys.readouterr().out
    assert "replaced: run.py\n" in printed and "to merge: backend.py\n" in printed
    assert '\n  +ROUNDING = "ort"\n' in printed
    assert printed.endswith(f"Next: uma new --update {project} --merge\n")
    assert run_command([*command, "--merge", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["merged"] == ["backend.py"]


def test_what_cannot_be_updated_is_refused(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = project / ".umakit/new.toml"
    text = record.read_text(encoding="utf-8")
    for wrong, message in (
        (text.replace('kind = "library"', 'kind = "pizza"'), "there is no kind 'pizza'"),
        (text.replace('umakit = "', 'umakit = "9'), "newer one"),
        ("kind = 3\n", "cannot be read"),
        ("kind", "cannot be read"),
    ):
        record.write_text(wrong, encoding="utf-8")
        before = contents(project)
        assert run_command(["new", "--update", str(project)]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
        assert contents(project) == before
    with pytest.raises(ScaffoldError, match="did not write this folder"):
        update_backend(tmp_path, merge=False)
    record.write_text(text, encoding="utf-8")
    assert run_command(["new", "--update", str(project), "--array", "8x8"]) == 2
    assert "--array 8x8" in capsys.readouterr().err


def test_without_git_edited_files_are_left_alone(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = project / "backend.py"
    edit(backend, "Kernels of the library my_npu.", "Mine.")
    before = backend.read_bytes()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ScaffoldError, match=r"git, which cannot be run.*; install git"):
        update_backend(project, {"rounding": "ort"}, merge=True)
    assert backend.read_bytes() == before
