# SPDX-License-Identifier: Apache-2.0
"""How tests compile C; conftest.py chooses for each test."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from umakit.devices import build, objects, simulators
from umakit.library.layout import cache_folder

OPTIMIZED = build.FLAGS
"""Flags with which users' programs are compiled: of `make soak`, and of tests marked `optimized`,
those of the README's commands and of networks of many layers."""

QUICK = tuple(flag.replace("-O3", "-O0") for flag in OPTIMIZED)
"""Flags of other tests, which would spend most of their time in the optimizer."""

OPTIMIZED_SIMULATORS = simulators.FLAGS
"""Flags with which the simulators of users' backends are compiled."""

QUICK_SIMULATORS = tuple(flag.replace("-O2", "-O0") for flag in OPTIMIZED_SIMULATORS)
assert QUICK_SIMULATORS != OPTIMIZED_SIMULATORS

SHARED_LEVEL = "-O1"
"""How far files that many networks share are optimized where `QUICK` flags are used."""

KEPT_OBJECTS = "tests"
"""Folder of the user's cache with objects that tests compiled, for the next run of them."""

KEPT_SECONDS = 7 * 24 * 3600

PLACES = ("-g", "-include", "-iquote", "-isystem", "-idirafter", "--coverage", "-fprofile")
"""Starts of flags with which an object depends on names of folders, or on files elsewhere."""

DEPENDING = re.compile(
    rb"__FILE__|__BASE_FILE__|__DATE__|__TIME|__has_include|incbin|include_next|assert\.h"
)
"""What depends on more than the text of a file and of those that it includes."""

SETTING = "UMAKIT_TEST_C"
"""Environment variable that tells commands which tests start whether to compile `quick`."""

_with_shared_objects = build.with_shared_objects
_numbers = itertools.count()


def choose(*, optimized: bool, optimized_simulators: bool = False) -> None:
    """Compile as users do, or without optimizing and with the files of a network in one.

    Reading headers of the C library four times is most of the time of a small network. That the
    files compile one by one is checked by tests that call compilers themselves (test_codegen.py),
    and by those marked `optimized`.
    """
    build.FLAGS = OPTIMIZED if optimized else QUICK
    optimized_simulators = optimized or optimized_simulators
    simulators.FLAGS = OPTIMIZED_SIMULATORS if optimized_simulators else QUICK_SIMULATORS
    build.with_shared_objects = _with_shared_objects if optimized else _with_joined_files


def _with_joined_files(
    sources: Sequence[Path], compiler: Sequence[str], flags: Sequence[str], run: objects.Compile
) -> list[Path]:
    """Do what `with_shared_objects` does, and put the files of a network in one."""
    # Compiled once and run by many tests: to optimize simulators a little pays.
    shared = [SHARED_LEVEL if word == "-O0" else word for word in compiler]
    files = _with_shared_objects(sources, shared, flags, run)
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
    others = [path for path in files if path not in joined]
    digest = _digest_of(joined, compiler, flags)
    if digest is None:
        return [file, *others]

    def compile_to(output: Path) -> None:
        run([*compiler, *objects.compiling(flags), "-c", str(file), "-o", str(output)])

    return [_kept(digest, compile_to), *others]


def _digest_of(
    sources: Sequence[Path], compiler: Sequence[str], flags: Sequence[str]
) -> str | None:
    """Return a digest of all that an object of joined files depends on; None if it is not known.

    Headers in neither the library nor its runtime are taken for those of the compiler, whose
    version is in the digest.
    """
    if any(flag.startswith(PLACES) for flag in flags):
        return None
    folders = [Path(flag[2:]) for flag in flags if flag.startswith("-I")]
    words = [*compiler, *(flag for flag in objects.compiling(flags) if not flag.startswith("-I"))]
    digest = hashlib.sha256(repr([words, objects.version_of(compiler[0])]).encode())
    waiting, seen = list(reversed(sources)), set[str]()
    while waiting:
        path = waiting.pop()
        name = os.path.normpath(path)
        if name in seen:
            digest.update(b"again")
            continue
        seen.add(name)
        try:
            content = path.read_bytes()
        except OSError:
            return None  # the compiler says so
        if DEPENDING.search(content):
            return None
        digest.update(hashlib.sha256(content).digest())
        for own, standard in objects.ANY_INCLUDED.findall(content):
            places = [path.parent, *folders] if own else folders
            included = os.fsdecode(own or standard)
            found = next((each for each in places if (each / included).is_file()), None)
            if found is not None:
                waiting.append(found / included)
            elif own or not standard:
                return None
            else:
                digest.update(standard)
    return digest.hexdigest()[:32]


def delete_old() -> None:
    """Delete objects that no test has used for a while."""
    for path in cache_folder(KEPT_OBJECTS).glob("*.o"):
        if objects.modified(path) < time.time() - KEPT_SECONDS:
            path.unlink(missing_ok=True)


def _kept(digest: str, compile_to: Callable[[Path], None]) -> Path:
    """Return an object that a test has compiled before, in this run or an earlier one."""
    folder = cache_folder(KEPT_OBJECTS)
    kept = folder / f"{digest}.o"
    if kept.exists():
        os.utime(kept)
    else:
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            built = Path(temporary) / kept.name
            compile_to(built)
            built.replace(kept)
    return kept


@functools.cache
def _folder(process: int) -> Path:
    """Return a folder of this process, deleted when it ends."""
    folder = tempfile.TemporaryDirectory(prefix="umakit-joined-")
    _folders.append(folder)
    return Path(folder.name)


_folders: list[tempfile.TemporaryDirectory[str]] = []
