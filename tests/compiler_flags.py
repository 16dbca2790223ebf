# SPDX-License-Identifier: Apache-2.0
"""How tests compile C; conftest.py chooses for each test."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from umakit.devices import HOST, Device, build, objects
from umakit.errors import BuildError

OPTIMIZED = build.FLAGS
"""Flags with which users' programs are compiled: of `make soak`, and of tests marked `optimized`,
those of the README's commands and of networks of many layers."""

QUICK = tuple(flag.replace("-O3", "-O0") for flag in OPTIMIZED)
"""Flags of other tests, which would spend most of their time in the optimizer."""

SETTING = "UMAKIT_TEST_C"
"""Environment variable that tells commands which tests start whether to compile `quick`."""

FAST_LINKER = "-fuse-ld=gold"
"""Flag for a linker that takes a third of the time of the usual one, a quarter of a small build."""

_with_shared_objects = build.with_shared_objects
_call_compiler = build.call_compiler
_numbers = itertools.count()


def choose(*, optimized: bool) -> None:
    """Compile as users do, or without optimizing and with the files of a network in one.

    Reading headers of the C library four times is most of the time of a small network. That the
    files compile one by one is checked by tests that call compilers themselves (test_codegen.py),
    and by those marked `optimized`.
    """
    build.FLAGS = OPTIMIZED if optimized else QUICK
    build.with_shared_objects = _with_shared_objects if optimized else _with_joined_files
    build.call_compiler = _call_compiler if optimized else _call_with_fast_linker


def _call_with_fast_linker(command: list[str], name: str, folder: Path, device: Device) -> None:
    """Do what `call_compiler` does, with FAST_LINKER if it is there and has no complaint."""
    if device is HOST and "-c" not in command and _has_fast_linker():
        try:
            return _call_compiler([*command, FAST_LINKER], name, folder, device)
        except BuildError:
            pass  # users get messages of the usual linker
    _call_compiler(command, name, folder, device)


@functools.cache
def _has_fast_linker() -> bool:
    return shutil.which("ld.gold") is not None


def _with_joined_files(
    sources: Sequence[Path], compiler: Sequence[str], flags: Sequence[str], run: objects.Compile
) -> list[Path]:
    """Do what `with_shared_objects` does, and put the files of a network in one."""
    files = _with_shared_objects(sources, compiler, flags, run)
    # Timelines have tables that are named as functions of drivers.
    programs = () if any("_TIMELINE=" in flag for flag in flags) else ("main.c", "_probe.c")
    generated = [path for path in files if path.name.startswith("tvmgen_") and path.suffix == ".c"]
    joined = [*generated, *(path for path in files if path.name.endswith(programs))]
    writable = not any(letter in str(path) for path in joined for letter in '"\n')
    if "-O0" not in compiler or not generated or not writable:
        return files
    text = "".join(f'#include "{path.absolute()}"\n' for path in joined)
    file = _folder(os.getpid()) / f"joined{next(_numbers)}.c"
    file.write_bytes(os.fsencode(text))
    return [file, *(path for path in files if path not in joined)]


@functools.cache
def _folder(process: int) -> Path:
    """Return a folder of this process, deleted when it ends."""
    folder = tempfile.TemporaryDirectory(prefix="umakit-joined-")
    _folders.append(folder)
    return Path(folder.name)


_folders: list[tempfile.TemporaryDirectory[str]] = []
