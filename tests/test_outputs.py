# SPDX-License-Identifier: Apache-2.0
"""What commands write: nothing that umakit did not write is lost, and nothing is half-written."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from umakit.errors import OutputError
from umakit.files import staging
from umakit.files.manifest import manifest_text, parse_manifest
from umakit.files.outputs import NPZ_RESULTS, check_distinct, check_file, check_folder
from umakit.files.staging import write_file, write_folder
from umakit.library.metadata import LIBRARY_FOLDER
from umakit.library.packages.arduino import ARDUINO_FOLDER
from umakit.library.tar_files import LIBRARY_TAR, tar_bytes, write_tar

FIRST = {"README.md": "first", "src/a.c": "int a;\n", "src/gone.c": "int gone;\n"}
SECOND = {"README.md": "second", "src/a.c": "int b;\n", "src/deep/new.c": "int n;\n"}
MINE = {"notes.txt": "mine", "src/mine.c": "int mine;\n", "build/cache/x": "built"}


def tree(folder: Path) -> dict[str, str]:
    """All files below a folder, and where links lead."""
    return {
        str(path.relative_to(folder)): f"-> {path.readlink()}"
        if path.is_symlink()
        else path.read_bytes().decode("latin-1")
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or not path.is_dir()
    }


def with_manifest(files: dict[str, str]) -> dict[str, str]:
    """Files and the manifest of them."""
    contents = staging.with_manifest(files, LIBRARY_FOLDER.manifest)
    return {path: content.decode() for path, content in contents.items()}


def put(folder: Path, files: dict[str, str]) -> None:
    """Write files by hand."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def export(folder: Path, files: dict[str, str], force: bool = False) -> None:
    """Write a library of these files."""
    write_folder(folder, files, LIBRARY_FOLDER, force=force)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library of `FIRST`, in which a user put `MINE`."""
    export(tmp_path / "out", FIRST)
    put(tmp_path / "out", MINE)
    return tmp_path / "out"


# --- folders ------------------------------------------------------------------------------------


def test_what_umakit_wrote_is_replaced_and_what_others_wrote_stays(library: Path) -> None:
    (library / "link").symlink_to("/etc/hostname")
    (library / "empty").mkdir()
    library.chmod(0o750)
    inode = (library / "notes.txt").stat().st_ino
    export(library, SECOND)
    assert tree(library) == {**with_manifest(SECOND), **MINE, "link": "-> /etc/hostname"}
    assert (library / "notes.txt").stat().st_ino == inode
    assert library.stat().st_mode & 0o777 == 0o750
    assert [path.name for path in library.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("path", ["README.md", "src/a.c", "src/gone.c"])
def test_a_changed_file_is_a_refusal_that_names_it(path: str, library: Path) -> None:
    (library / path).write_text("changed by hand")
    before = tree(library.parent)
    with pytest.raises(OutputError, match=rf"out/{path}: was changed since umakit wrote it; .*--f"):
        export(library, SECOND)
    with pytest.raises(OutputError, match=path):
        check_folder(library, LIBRARY_FOLDER)  # before anything is compiled
    assert tree(library.parent) == before
    export(library, SECOND, force=True)
    assert tree(library) == {**with_manifest(SECOND), **MINE}


def test_a_file_of_the_user_is_not_overwritten_by_a_new_one(library: Path) -> None:
    put(library, {"src/deep/new.c": "int precious;\n"})
    before = tree(library.parent)
    with pytest.raises(OutputError, match=r"src/deep/new\.c: exists, and is none of the files"):
        export(library, SECOND)
    assert tree(library.parent) == before
    export(library, SECOND, force=True)
    assert (library / "src/deep/new.c").read_text() == "int n;\n"


def test_equal_and_deleted_files_are_no_obstacle(library: Path) -> None:
    put(library, {"src/deep/new.c": SECOND["src/deep/new.c"]})
    (library / "src/a.c").unlink()
    export(library, SECOND)
    assert tree(library) == {**with_manifest(SECOND), **MINE}


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("kind", ["folder", "link", "linked folder", "file for folder"])
def test_what_is_no_plain_file_is_never_followed_or_replaced(
    kind: str, force: bool, library: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    put(elsewhere, {"a.c": FIRST["src/a.c"], "mine.c": "m", "gone.c": "int gone;\n"})
    if kind == "folder":
        (library / "src/a.c").unlink()
        put(library, {"src/a.c/inside": "mine"})
    elif kind == "link":
        (library / "src/a.c").unlink()
        (library / "src/a.c").symlink_to(elsewhere / "a.c")
    elif kind == "linked folder":
        shutil.rmtree(library / "src")
        (library / "src").symlink_to(elsewhere)
    else:
        put(library, {"src/deep": "a file where a folder goes"})
    before = tree(tmp_path)
    with pytest.raises(OutputError, match=r"was changed|exists, and is none"):
        export(library, SECOND, force=force)
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    "content",
    [
        {"metadata.json": '{"umakit": 1}', "thesis.txt": "mine"},
        {"metadata.json": '{"umakit": {"name": "x"}, "modules": {}}'},
        {"metadata.json": "[" * 100_000},
        {"SHA256SUMS": "0" * 64 + "  thesis.txt\n", "thesis.txt": "mine"},
        {"thesis.txt": "mine"},
    ],
)
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("kind", [LIBRARY_FOLDER, ARDUINO_FOLDER])
def test_folders_of_others_are_left_alone(
    content: dict[str, str], force: bool, kind: object, tmp_path: Path
) -> None:
    put(tmp_path / "out", content)
    before = tree(tmp_path)
    with pytest.raises(OutputError, match="out: exists and is not a "):
        write_folder(tmp_path / "out", FIRST, kind, force=force)  # type: ignore[arg-type]
    assert tree(tmp_path) == before


def test_an_unmodified_empty_or_missing_folder_is_fine(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for files in (FIRST, FIRST, SECOND):
        export(tmp_path / "out", files)
        assert tree(tmp_path / "out") == with_manifest(files)
    export(tmp_path / "a" / "b", FIRST)
    assert tree(tmp_path / "a" / "b") == with_manifest(FIRST)


def test_the_working_folder_is_entered_again(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(library)
    export(Path(), SECOND)
    assert Path("README.md").read_text() == "second"
    assert tree(library) == {**with_manifest(SECOND), **MINE}


# --- the manifest -------------------------------------------------------------------------------


def test_sha256sum_checks_an_export(tmp_path: Path) -> None:
    names = ["a b", "back\\slash", "new\nline", "sub/\u00e4", " lead", "*star", "carriage\rreturn"]
    export(tmp_path / "out", {name: f"content of {name}" for name in names})
    command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    done = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, check=False)
    assert done.returncode == 0, done
    (tmp_path / "out" / "a b").write_text("changed")
    done = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, check=False)
    assert done.returncode == 1 and b"a b: FAILED" in done.stdout
    with pytest.raises(OutputError, match="a b: was changed"):
        export(tmp_path / "out", FIRST)


def test_a_manifest_reads_back() -> None:
    files = {"a": b"1", "b/\\c\n": b"", "\u00fc": b"\xff"}
    parsed = parse_manifest(manifest_text(files))
    assert parsed is not None and list(parsed) == sorted(files)


@pytest.mark.parametrize(
    "path", ["../thesis", "/etc/hostname", "a/../../b", "a//b", ".", "a/./b", "nul\0", "\\x"]
)
def test_a_manifest_that_names_files_elsewhere_counts_as_none(path: str, tmp_path: Path) -> None:
    text = manifest_text({"a": b""}) + f"{'0' * 64}  {path}\n"
    if path == "\\x":
        text = manifest_text({"a": b""}) + f"\\{'0' * 64}  {path}\n"
    assert parse_manifest(text) is None
    put(tmp_path / "out", {"SHA256SUMS": text, "a": ""})
    with pytest.raises(OutputError, match="is not a umakit library"):
        export(tmp_path / "out", FIRST)


def test_damaged_manifests_count_as_none() -> None:
    text = manifest_text({"a": b"1", "b": b"2"})
    assert parse_manifest(text) is not None
    for damaged in (
        text[:-1],
        text[10:],
        text.replace("  ", " "),
        text + "\n",
        b"\xff",
        "",
        text * 2,
    ):
        assert parse_manifest(damaged) is None


# --- inputs -------------------------------------------------------------------------------------

WAYS = ["same", "hard link", "link", "dots", "loop of links"]


def another_name(path: Path, way: str, place: Path) -> Path:
    """Another way to the same file."""
    if way == "same":
        return path
    if way == "dots":
        return path.parent / "." / ".." / path.parent.name / path.name
    other = place / f"other{path.suffix}"
    if way == "hard link":
        other.hardlink_to(path)
    elif way == "link":
        (place / "step").symlink_to(path)
        other.symlink_to("step")
    else:
        other.symlink_to(other.name)
    return other


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("force", [False, True])
def test_an_input_is_never_an_output(way: str, force: bool, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    one = place / "in.npz"
    write_file(one, b"umakit results", NPZ_RESULTS)  # so that it would be replaced
    other = another_name(one, way, place)
    before = tree(tmp_path)
    with pytest.raises(OutputError, match=r"no input is replaced|cannot be looked at"):
        write_file(other, b"umakit results 2", NPZ_RESULTS, [one], force=force)
    if way == "loop of links":
        assert tree(tmp_path) == before
        return  # as an input it cannot be read
    with pytest.raises(OutputError, match=r"no input is replaced|cannot be looked at"):
        write_file(one, b"umakit results 2", NPZ_RESULTS, [other], force=force)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("depth", ["in.npz", "src/in.npz", "a/b/c/in.npz", "link"])
def test_an_output_folder_holds_no_input(depth: str, library: Path, tmp_path: Path) -> None:
    one = library / depth
    if depth == "link":
        put(tmp_path, {"real.npz": "x"})
        one.symlink_to(tmp_path / "real.npz")
    else:
        put(library, {depth: "x"})
    before = tree(tmp_path)
    for force in (False, True):
        with pytest.raises(OutputError, match=f"out: holds the input .*{one.name}; choose"):
            write_folder(library, SECOND, LIBRARY_FOLDER, [one], force=force)
    assert tree(tmp_path) == before


def test_nothing_is_written_into_a_folder_that_is_read(library: Path) -> None:
    (library.parent / "alias").symlink_to(library)
    for place in (library / "new.npz", library / "src/deep/new.npz", library / "../out/x.npz",
                  library.parent / "alias" / "x.npz"):  # fmt: skip
        with pytest.raises(OutputError, match=r"lies inside .*out, which is read"):
            check_file(place, NPZ_RESULTS, [library])
        with pytest.raises(OutputError, match=r"lies inside .*out, which is read"):
            check_folder(place, LIBRARY_FOLDER, [library])
    with pytest.raises(OutputError, match="no input is replaced"):
        check_folder(library, LIBRARY_FOLDER, [library])
    with pytest.raises(OutputError, match="holds the input"):
        check_folder(library.parent, LIBRARY_FOLDER, [library])


def test_home_and_root_are_no_output_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for place in (Path("/"), tmp_path, tmp_path / "." / ".." / tmp_path.name):
        with pytest.raises(OutputError, match="is not a folder of its own"):
            check_folder(place, LIBRARY_FOLDER)
    monkeypatch.delenv("HOME")
    check_folder(tmp_path, LIBRARY_FOLDER)


def test_two_outputs_are_two_files(tmp_path: Path) -> None:
    check_distinct(tmp_path / "a", None, tmp_path / "b")
    (tmp_path / "link").symlink_to("a")
    for other in ("a", "link", "x/../a", "A"):
        with pytest.raises(OutputError, match="is given for two outputs"):
            check_distinct(tmp_path / "a", tmp_path / other)


# --- files --------------------------------------------------------------------------------------


def test_only_marked_files_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "out.npz"
    path.write_bytes(b"data of mine")
    with pytest.raises(OutputError, match=r"out\.npz: exists and is not a file of results"):
        write_file(path, b"umakit results", NPZ_RESULTS)
    assert path.read_bytes() == b"data of mine"
    write_file(path, b"umakit results" + bytes(10_000), NPZ_RESULTS, force=True)
    write_file(path, bytes(10_000) + b"umakit results", NPZ_RESULTS)
    write_file(path, b"", NPZ_RESULTS)
    write_file(path, b"umakit results", NPZ_RESULTS)  # an empty file holds nothing to lose
    assert path.read_bytes() == b"umakit results"


@pytest.mark.parametrize("force", [False, True])
def test_devices_pipes_and_folders_are_no_outputs(force: bool, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    for name, reason in (
        ("pipe", "not a regular file"),
        ("null", "not a regular file"),
        (".", "a folder"),
    ):
        with pytest.raises(OutputError, match=reason):
            write_file(tmp_path / name, b"", NPZ_RESULTS, force=force)
    assert Path("/dev/null").is_char_device()


def test_a_link_to_a_file_of_ours_is_followed(tmp_path: Path) -> None:
    write_file(tmp_path / "real.npz", b"umakit results 1", NPZ_RESULTS)
    (tmp_path / "link.npz").symlink_to("real.npz")
    write_file(tmp_path / "link.npz", b"umakit results 2", NPZ_RESULTS)
    assert (tmp_path / "real.npz").read_bytes() == b"umakit results 2"
    assert (tmp_path / "link.npz").is_symlink()


def test_a_changed_tar_file_is_a_refusal(tmp_path: Path) -> None:
    path = tmp_path / "out.tar"
    write_tar(path, FIRST)
    write_tar(path, SECOND)
    with tarfile.open(path) as archive:
        files = {m.name: archive.extractfile(m).read() for m in archive}  # type: ignore[union-attr]
    for changed in ({**files, "thesis.txt": b"mine"}, {**files, "README.md": b"mine"}):
        path.write_bytes(tar_bytes(changed))
        with pytest.raises(OutputError, match=r"(thesis\.txt|README\.md)' in it was changed"):
            write_tar(path, FIRST)
    for foreign in (b"", b"text", tar_bytes({"metadata.json": '{"umakit": 1}'})):
        path.write_bytes(foreign)
        if foreign:
            with pytest.raises(OutputError, match=r"out.tar: exists and is not a umakit library"):
                check_file(path, LIBRARY_TAR)
    write_tar(path, FIRST, force=True)
    check_file(path, LIBRARY_TAR)


# --- faults -------------------------------------------------------------------------------------

STEPS = ("mkdir", "write_bytes", "rename", "chmod", "unlink", "rmdir", "replace")


def count_steps(monkeypatch: pytest.MonkeyPatch, fail: Callable[[int], None]) -> Callable[[], int]:
    """Call a function at each step of `pathlib` that changes something."""
    counter = itertools.count()
    count = 0

    def watched(method: Callable[..., object]) -> Callable[..., object]:
        def step(*arguments: object, **options: object) -> object:
            nonlocal count
            count = next(counter) + 1
            fail(count)
            return method(*arguments, **options)

        return step

    for name in STEPS:
        monkeypatch.setattr(Path, name, watched(getattr(Path, name)))
    return lambda: count


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("fault", ["full", "interrupt"])
def test_at_every_moment_the_old_library_or_the_new_one_is_whole(
    fault: str, exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchange:
        monkeypatch.setattr(staging, "_exchange", lambda one, other: False)

    def at(wanted: int) -> Callable[[int], None]:
        def fail(number: int) -> None:
            if number == wanted and fault == "full":
                raise OSError(28, "No space left on device")
            if number == wanted:
                signal.raise_signal(signal.SIGINT)

        return fail

    outcomes = set()
    for wanted in itertools.count(1):
        out = tmp_path / str(wanted) / "out"
        export(out, FIRST)
        put(out, MINE)
        with monkeypatch.context() as patched:
            steps = count_steps(patched, at(wanted))
            try:
                export(out, SECOND)
                outcome = "written"
            except OutputError as error:
                assert str(error) == f"{out}: cannot be written: No space left on device"
                outcome = "refused"
            except KeyboardInterrupt:
                outcome = "interrupted"
        found = tree(out)
        new = found["README.md"] == "second"
        kept = with_manifest(SECOND if new else FIRST)
        assert all(found[path] == text for path, text in kept.items()), (wanted, found)
        # What the system refused to move over lies beside.
        beside = {re.sub(r"^(out|[^/]*/old)/", "", name) for name in tree(out.parent)}
        assert set(MINE) <= beside, wanted
        if not new or outcome == "interrupted":
            assert found == {**kept, **MINE}
        assert outcome != "written" or new
        outcomes.add((outcome, new))
        if steps() < wanted:
            break
    assert ("written", True) in outcomes
    failed = "refused" if fault == "full" else "interrupted"
    assert (failed, False) in outcomes


def test_a_full_disk_leaves_a_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_file(tmp_path / "out.npz", b"umakit results", NPZ_RESULTS)

    def full(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutputError, match=r"out.npz: cannot be written: No space left"):
        write_file(tmp_path / "out.npz", b"umakit results 2", NPZ_RESULTS)
    assert tree(tmp_path) == {"out.npz": "umakit results"}


WRITER = """
import sys
from pathlib import Path
from umakit.library.metadata import LIBRARY_FOLDER
from umakit.files.staging import write_folder
name = sys.argv[1]
files = {"README.md": name, **{f"src/{name}{n}.c": name * 1000 for n in range(20)}}
for turn in range(40):
    write_folder(Path(sys.argv[2]), files, LIBRARY_FOLDER)
"""


def test_writers_of_one_folder_do_not_mix(tmp_path: Path) -> None:
    out = tmp_path / "out"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, name, str(out)], stderr=subprocess.PIPE)
        for name in "ab"
    ]
    for writer in writers:
        _, error = writer.communicate()
        assert writer.returncode == 0, error
    found = tree(out)
    name = found.pop("README.md")
    assert name in ("a", "b")
    assert set(found) == {"SHA256SUMS", *(f"src/{name}{number}.c" for number in range(20))}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    check_folder(out, LIBRARY_FOLDER)


def test_writing_works_in_another_thread(tmp_path: Path) -> None:
    thread = threading.Thread(target=export, args=(tmp_path / "out", FIRST))
    thread.start()
    thread.join()
    assert tree(tmp_path / "out") == with_manifest(FIRST)
