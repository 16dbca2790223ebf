# SPDX-License-Identifier: Apache-2.0
"""Objects of C files that libraries share: never those of another text, compiler or header."""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path

import pytest

from umakit.devices import build, objects

SOURCE = '#include "umakit/answer.h"\nint answer(void);\nint answer(void) { return ANSWER; }\n'


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the C files that compilers read, with an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    names: list[str] = []
    call = build.call_compiler

    def counted(command: list[str], *others: object) -> None:
        names.extend(Path(word).name for word in command if word.endswith(".c"))
        call(command, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(build, "call_compiler", counted)
    return names


def library(folder: Path, answer: int = 42, source: str = SOURCE) -> Path:
    (folder / "umakit").mkdir(parents=True)
    (folder / "umakit" / "answer.h").write_text(f"#define ANSWER {answer}\n")
    (folder / "umakit_answer.c").write_text(source)
    return folder


def answer(folder: Path, *flags: str) -> int:
    shared = folder / f"answer{len(list(folder.glob('*.so')))}.so"
    build.compile_c([folder / "umakit_answer.c"], shared, ["-shared", "-fPIC", *flags])
    return int(ctypes.CDLL(str(shared)).answer())


def test_libraries_share_what_is_equal_only(tmp_path: Path, compiled: list[str]) -> None:
    first, second = library(tmp_path / "first"), library(tmp_path / "second")
    assert answer(first, "-DTVMGEN_FIRST_PROFILE", f"-I{first}") == 42
    assert answer(second, "-DTVMGEN_SECOND_PROFILE", f"-I{second}") == 42
    assert compiled == ["umakit_answer.c"]
    assert answer(library(tmp_path / "header", 43)) == 43
    assert answer(library(tmp_path / "source", source=SOURCE.replace("rn A", "rn -A"))) == -42
    (second / "umakit" / "answer.h").write_text("#define ANSWER 44\n")
    assert answer(second) == 44
    assert answer(first, "-DANSWERS=1") == 42
    assert len(compiled) == 5


@pytest.mark.parametrize("place", ["source", "header"])
def test_a_file_that_includes_others_is_compiled_each_time(
    place: str, tmp_path: Path, compiled: list[str]
) -> None:
    folder = library(tmp_path / "own")
    (folder / "own.h").write_text("#define OWN 1\n")
    changed = folder / {"source": "umakit_answer.c", "header": "umakit/answer.h"}[place]
    text = changed.read_text().replace("ANSWER;", "OWN;").replace("42", "OWN")
    changed.write_text(f'#include "{"" if place == "source" else "../"}own.h"\n{text}')
    assert answer(folder) == 1
    (folder / "own.h").write_text("#define OWN 2\n")
    assert answer(folder) == 2
    assert len(compiled) == 2


DRIVER = '#include "npu.h"\n#include <stdint.h>\nint answer(void) { return ANSWER; }\n'
NPU = '#include "../umakit/answer.h"\nint answer(void);\n'


def driver(folder: Path, source: str = DRIVER, header: str = NPU, answer: int = 42) -> Path:
    """A library with a driver."""
    root = folder / "codegen" / "host" / "src"
    library(root, answer)
    (root / "npu").mkdir()
    (root / "npu" / "npu.h").write_text(header)
    (root / "npu" / "npu.c").write_text(source)
    return root / "npu"


def answer_of_driver(folder: Path, *flags: str) -> int:
    shared = folder / f"npu{len(list(folder.glob('*.so')))}.so"
    build.compile_c([folder / "npu.c"], shared, ["-shared", "-fPIC", *flags])
    return int(ctypes.CDLL(str(shared)).answer())


def test_libraries_share_drivers_with_equal_headers(tmp_path: Path, compiled: list[str]) -> None:
    first, second = driver(tmp_path / "first"), driver(tmp_path / "second")
    assert answer_of_driver(first, "-DTVMGEN_FIRST_PROFILE") == 42
    assert answer_of_driver(second, "-DTVMGEN_SECOND_PROFILE") == 42
    assert compiled == ["npu.c"]
    # A header of a header, a header, the source, a flag.
    (second.parent / "umakit" / "answer.h").write_text("#define ANSWER 43\n")
    assert answer_of_driver(second) == 43
    (second / "npu.h").write_text("int answer(void);\n#define ANSWER 44\n")
    assert answer_of_driver(second) == 44
    (second / "npu.c").write_text(DRIVER.replace("ANSWER", "-ANSWER"))
    assert answer_of_driver(second) == -44
    assert answer_of_driver(first, "-DANSWERS=1") == 42
    assert len(compiled) == 5
    assert answer_of_driver(first) == 42 and len(compiled) == 5


@pytest.mark.parametrize(
    "line",
    [
        "#ifdef TVMGEN_ONE_PROFILE\n#endif",
        "#include <assert.h>",
        "#include <own.h>",
        '#include "own.h"',
        "#define OWN <stdint.h>\n#include OWN",
        '#inc\\\nlude "own.h"',
        '# /* own */ include "own.h"',
        '%:include "own.h"',
        "const char *file = __FILE__;",
        "#if __has_include(<own.h>)\n#endif",
    ],
)
@pytest.mark.parametrize("place", ["source", "header"])
def test_a_driver_that_depends_on_more_is_compiled_each_time(
    place: str, line: str, tmp_path: Path, compiled: list[str]
) -> None:
    source, header = (f"{line}\n{DRIVER}", NPU) if place == "source" else (DRIVER, f"{line}\n{NPU}")
    folder = driver(tmp_path / "library", source, header)
    (tmp_path / "own.h").write_text("#include <stdint.h>\n")
    for _ in range(2):
        assert answer_of_driver(folder, f"-I{tmp_path}") == 42
    assert compiled == ["npu.c", "npu.c"]


def test_another_compiler_is_another_object(
    tmp_path: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = library(tmp_path / "library")
    for compiler in ("gcc", "gcc -g", "gcc"):
        monkeypatch.setenv("CC", compiler)
        assert answer(folder) == 42
    assert len(compiled) == 2


def test_old_objects_are_deleted(
    tmp_path: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "KEPT_OBJECTS", 2)
    for number in range(5):
        assert answer(library(tmp_path / str(number), number)) == number
    assert len(list((tmp_path / "cache" / "umakit" / "objects").iterdir())) <= 3
    shutil.rmtree(tmp_path / "cache")
    assert answer(tmp_path / "0") == 0


def test_an_object_that_is_used_during_a_cleanup_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process would link it a moment later."""
    monkeypatch.setattr(objects, "KEPT_OBJECTS", 8)
    paths = [tmp_path / f"{number}.o" for number in range(12)]
    for number, path in enumerate(paths):
        path.touch()
        os.utime(path, (number, number))
    original, looked = objects.modified, []

    def modified(path: Path) -> float:
        looked.append(path)
        time = original(path)
        if len(looked) == len(paths):  # all times are known
            os.utime(paths[1])
        return time

    monkeypatch.setattr(objects, "modified", modified)
    objects._delete_old(tmp_path)
    gone = set(paths) - set(tmp_path.iterdir())
    assert sorted(path.name for path in gone) == ["0.o", "2.o", "3.o"]
