# SPDX-License-Identifier: Apache-2.0
"""Building an exported library with the host's C compiler. Imports neither TVM nor the pipeline."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from umakit.errors import BuildError
from umakit.library_layout import user_cache
from umakit.packages.tar import library_folder

COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-std=c99", "-O3")
"""Without -ffast-math and, because of -std=c99, without contraction: results are reproducible."""


KEPT_PROGRAMS = 4
"""Older builds of a library are deleted."""


def compiler() -> list[str]:
    """The C compiler to use: `$CC`, which may hold flags, or the first of cc, gcc, clang.

    Raises:
        BuildError: there is none, or `$CC` cannot be read.
    """
    chosen = os.environ.get("CC", "")
    try:
        command = shlex.split(chosen)
    except ValueError as error:
        raise BuildError(f"CC={chosen!r} cannot be read: {error}") from None
    if command:
        return command
    for name in COMPILERS:
        found = shutil.which(name)
        if found:
            return [found]
    raise BuildError("there is no C compiler", fix="install gcc or clang, or set CC")


def compile_c(sources: list[Path], output: Path, flags: list[str]) -> None:
    """Compile and link C sources.

    Args:
        sources: `.c` files.
        output: the program or shared library to write.
        flags: in addition to the C standard and optimization.

    Raises:
        BuildError: the compiler refused; carries its first error.
    """
    command = [*compiler(), *FLAGS, *flags, *map(str, sources), "-o", str(output), "-lm"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"cannot run {command[0]}: {error.strerror}") from None
    if result.returncode != 0:
        lines = [line for line in result.stderr.splitlines() if "error" in line]
        first = lines[0] if lines else (result.stderr.strip() or "no message").splitlines()[-1]
        raise BuildError(
            f"{shlex.join(compiler())} refused: {first.strip()}",
            fix=f"compile {sources[0].parent} by hand to see the rest",
        )


def library_sources(library: Path) -> list[Path]:
    """The C files of an exported library, a folder or a tar file.

    Raises:
        LibraryError: it is a tar file that cannot be unpacked.
    """
    return sorted((library_folder(library) / "codegen" / "host" / "src").glob("*.c"))


def build_runner(library: Path, interface: str, profile: bool) -> Path:
    """Build the program that runs a library on the host; kept until its sources change.

    Args:
        library: an exported library, a folder or a tar file.
        interface: its `tvmgen_NAME` prefix.
        profile: whether layers are counted one by one.

    Returns:
        Path of the program, in `build/` of the library, or in the user's cache when the library
        is read-only.

    Raises:
        BuildError: the compiler is missing or refused.
        LibraryError: the library is a tar file that cannot be unpacked.
    """
    library = library_folder(library)
    sources = [*library_sources(library), library / "runtime" / "main.c"]
    flags = [f"-D{interface.upper()}_PROFILE"] if profile else []
    program = _build_folder(library) / f"run-{_fingerprint(library, flags)}"
    if program.exists():
        return program
    programs = sorted(program.parent.glob("run-*"), key=lambda path: path.stat().st_mtime)
    for stale in programs[:-KEPT_PROGRAMS]:
        stale.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as temporary:
        built = Path(temporary) / program.name
        compile_c(sources, built, flags)
        built.replace(program)
    return program


def _build_folder(library: Path) -> Path:
    folder = library / "build"
    try:
        folder.mkdir(exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    folder = user_cache() / hashlib.sha256(str(library.resolve()).encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _fingerprint(library: Path, flags: list[str]) -> str:
    digest = hashlib.sha256(repr([compiler(), FLAGS, flags]).encode())
    for pattern in ("codegen/host/**/*.[ch]", "runtime/*.[ch]"):
        for path in sorted(library.glob(pattern)):
            digest.update(str(path.relative_to(library)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
