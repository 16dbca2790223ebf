# SPDX-License-Identifier: Apache-2.0
"""Objects that tests keep for the next run are those that compiling again would give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import compiler_flags
import pytest
from compiler_flags import _digest_of

COMPILER = ["cc", "-std=c99", "-O0"]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return _write(tmp_path / "library")


def _write(folder: Path) -> Path:
    """A library of two sources, with a header in another folder and one that it includes."""
    for name, text in {
        "src/tvmgen_net.c": '#include "../include/net.h"\n#include <math.h>\nint run = SIZE;\n',
        "src/main.c": '#include "../include/net.h"\nint main(void) { return 0; }\n',
        "include/net.h": '#include "sizes.h"\n',
        "runtime/sizes.h": "#define SIZE 3\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def _digest(library: Path, *flags: str) -> str | None:
    sources = [library / "src/tvmgen_net.c", library / "src/main.c"]
    return _digest_of(sources, COMPILER, [f"-I{library}/runtime", *flags])


def test_the_folder_makes_no_difference(library: Path, tmp_path: Path) -> None:
    assert _digest(library) == _digest(_write(tmp_path / "other")) is not None
    assert _digest(library, "-lm", "-Wl,-z,now") == _digest(library)


@pytest.mark.parametrize(
    "name", ["src/tvmgen_net.c", "src/main.c", "include/net.h", "runtime/sizes.h"]
)
def test_any_file_makes_a_difference(name: str, library: Path) -> None:
    before = _digest(library)
    with (library / name).open("a", encoding="utf-8") as file:
        file.write("#define MORE 1\n")
    assert _digest(library) not in (before, None)


@pytest.mark.parametrize("flag", ["-DNET_PROFILE", "-fsanitize=address", "-m32"])
def test_flags_make_a_difference(flag: str, library: Path) -> None:
    assert _digest(library, flag) not in (_digest(library), None)


def test_compilers_make_a_difference(library: Path) -> None:
    sources = [library / "src/main.c"]
    flags = [f"-I{library}/runtime"]
    assert _digest_of(sources, COMPILER, flags) != _digest_of(sources, ["gcc"], flags)


@pytest.mark.parametrize(
    "change",
    [
        lambda library: (library / "runtime/sizes.h").unlink(),
        lambda library: (library / "src/main.c").unlink(),
        lambda library: (library / "src/main.c").write_text("const char *x = __FILE__;\n"),
        lambda library: (library / "src/main.c").write_text("#include NAME\n"),
    ],
)
def test_what_is_not_known_is_not_kept(change: Callable[[Path], object], library: Path) -> None:
    change(library)
    assert _digest(library) is None


def test_debugging_information_has_names_of_folders(library: Path) -> None:
    assert _digest(library, "-g") is None


def test_an_object_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiled: list[Path] = []

    def compile_to(output: Path) -> None:
        compiled.append(output)
        output.write_bytes(b"object")

    first, second = (compiler_flags._kept("digest", compile_to) for _ in range(2))
    assert first == second and first.read_bytes() == b"object" and len(compiled) == 1
