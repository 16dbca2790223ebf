# SPDX-License-Identifier: Apache-2.0
"""Cache of objects of C files that many libraries share.

Simulators dominate the compile time of a library. The files of simulators, the platform, emulated
devices and drivers are compiled once per compiler and flags. Imports no TVM.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from umakit.devices.device import SUPPORT, Device
from umakit.library.layout import RUNTIME, cache_folder
from umakit.library.roles import SOURCE_FOLDER

KEPT_OBJECTS = 1024
"""Number of objects kept by a cleanup, which begins at an eighth more. Thus few compilations check
the times of all objects."""

SHARED = "umakit_*"
"""Form of the names of files that are the same in many libraries."""

INCLUDED = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"]*)"', re.MULTILINE)

ANY_INCLUDED = re.compile(rb"#[ \t]*include[ \t]*(?:\"([^\"\n]*)\"|<([^>\n]*)>)?")
"""Directives that include a file, in comments too; without a group if a macro names the file."""

STANDARD = frozenset(
    b"complex.h ctype.h errno.h fenv.h float.h inttypes.h limits.h locale.h math.h setjmp.h "
    b"signal.h stdarg.h stdbool.h stddef.h stdint.h stdio.h stdlib.h string.h tgmath.h "
    b"time.h".split()
)
"""Headers of the C library that drivers may include; `assert.h` is missing, because it inserts file
names."""

DEPENDING = re.compile(
    rb"TVMGEN_|__FILE__|__BASE_FILE__|__DATE__|__TIME|__has_include|incbin"
    rb"|#[ \t]*(?:/[*/]|include_next|import|embed)|%:|[?][?]="
)
"""Constructs that depend on more than the text of a driver, or hide an include."""

FOR_LINKING = ("-Wl,", "-l", "-shared", "-static", "-nostartfiles", "-T")
"""Starts of flags that only the linker reads."""

OF_A_MODEL = ("-I", "-DTVMGEN_")
"""Prefixes of flags that shared files do not need: their headers have relative paths."""

Compile = Callable[[list[str]], None]
"""Runs the compiler with arguments behind its own; raises `BuildError`."""


def with_shared_objects(
    sources: Sequence[Path], compiler: Sequence[str], flags: Sequence[str], run: Compile
) -> list[Path]:
    """Return the sources, with shared files replaced by objects of the cache."""
    wanted = [*compiler, *of_no_model(flags), f"-I{RUNTIME}"]
    start = repr([*wanted, version_of(compiler[0])]).encode()
    shared = [source for source in sources if _is_shared(source)]
    headers = {folder: _headers(folder) for folder in {source.parent for source in shared}}

    def replaced(source: Path) -> Path:
        if source.parent in headers and _is_shared(source):
            text = _digest_of_shared(source, headers[source.parent])
        else:
            text = _digest_of_driver(source) if _is_driver(source) else None
        if text is None:
            return source
        arguments = [*wanted, "-c", str(source.absolute()), "-o"]
        return cached_object(source.stem, start + text, lambda to: run([*arguments, str(to)]))

    return [replaced(source) for source in sources]


def compiling(flags: Sequence[str]) -> list[str]:
    """Return the flags without linker-only flags."""
    kept, previous = [], ""
    for flag in flags:
        if previous != "-T" and not flag.startswith(FOR_LINKING):
            kept.append(flag)
        previous = flag
    return kept


def of_no_model(flags: Sequence[str]) -> list[str]:
    """Return the flags without linker-only flags and flags of a model."""
    return [flag for flag in compiling(flags) if not flag.startswith(OF_A_MODEL)]


@functools.cache
def version_of(compiler: str) -> tuple[int, int]:
    """A value that changes with each installed version of a compiler."""
    found = shutil.which(compiler)
    status = Path(found).stat() if found else None
    return (status.st_mtime_ns, status.st_size) if status else (0, 0)


@dataclass(frozen=True)
class _Headers:
    """Headers that a shared file may include: their names, and a digest of their content."""

    names: frozenset[str]
    digest: bytes


def _headers(folder: Path) -> _Headers | None:
    places = [(folder, SHARED), (folder, "umakit/*")]
    if folder == SUPPORT:
        places = [(SUPPORT, "*"), (RUNTIME, "*")]
    files = [path for place, form in places for path in sorted(place.glob(f"{form}.h"))]
    contents = {path: path.read_bytes() for path in files}
    names = {path.name for path in files} | {f"umakit/{path.name}" for path in files}
    if not all(_includes(content) <= names for content in contents.values()):
        return None
    digest = hashlib.sha256()
    for path, content in contents.items():
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(content).digest())
    return _Headers(frozenset(names), digest.digest())


def _includes(content: bytes) -> set[str]:
    return {name.decode(errors="replace") for name in INCLUDED.findall(content)}


def _is_shared(source: Path) -> bool:
    return source.parent == SUPPORT or source.match(f"{SHARED}.c")


def _digest_of_shared(source: Path, headers: _Headers | None) -> bytes | None:
    """Return the dependences of a shared file's object; None if it includes other files."""
    content = source.read_bytes()
    if headers is None or not _includes(content) <= headers.names:
        return None
    return headers.digest + source.name.encode() + b"\0" + content


def _is_driver(source: Path) -> bool:
    """Whether a file lies in the folder of a backend, below the sources of a library."""
    return source.suffix == ".c" and source.parent.parent.match(SOURCE_FOLDER)


def _digest_of_driver(source: Path) -> bytes | None:
    """Return the dependences of a driver's object; None if some are outside the library."""
    parts, seen, waiting = [], set(), [source]
    while waiting:
        path = waiting.pop()
        name = os.path.relpath(path, source.parent)
        if name in seen:
            continue
        seen.add(name)
        try:
            content = path.read_bytes()
        except OSError:
            return None  # the compiler reports the missing file, or finds it elsewhere
        lines = content.replace(b"\\\r\n", b"").replace(b"\\\n", b"")
        if DEPENDING.search(lines):
            return None
        for own, standard in ANY_INCLUDED.findall(lines):
            if own:
                waiting.append(path.parent / os.fsdecode(own))
            elif standard not in STANDARD:
                return None
        parts += [os.fsencode(name), b"\0", hashlib.sha256(content).digest()]
    return b"".join(parts)


def cached_object(stem: str, key: bytes, compile_to: Callable[[Path], None]) -> Path:
    """Return an object of the cache, compiled if missing; `key` holds all its dependences."""
    folder = cache_folder("objects")
    cached = folder / f"{stem}-{hashlib.sha256(key).hexdigest()[:24]}.o"
    if cached.exists():
        with contextlib.suppress(OSError):
            os.utime(cached)  # mark as used, so that the object is kept
        return cached
    _delete_old(folder)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        built = Path(temporary) / cached.name
        compile_to(built)
        built.replace(cached)
    return cached


def _delete_old(folder: Path) -> None:
    objects = list(folder.glob("*.o"))
    if len(objects) > KEPT_OBJECTS * 9 // 8:
        times = {each: modified(each) for each in objects}
        for stale in sorted(objects, key=times.__getitem__)[:-KEPT_OBJECTS]:
            if modified(stale) == times[stale]:  # else another process links it now
                stale.unlink(missing_ok=True)


def modified(path: Path) -> float:
    """Return the modification time of a file in seconds; 0 if another process deleted it."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


SCRIPTS = ("*.ld", "*.lds", "*.inc")
"""File name patterns of linker scripts and of their included files."""


def digest_of(device: Device) -> str:
    """Return a digest of a user's device files: preprocessed C, and scripts."""
    digest = hashlib.sha256()
    for source in (*device.sources, *device.replaced):
        if source.parent != SUPPORT:
            digest.update(_preprocessed(device, source))
    if device.linker_script is not None and device.linker_script.parent != SUPPORT:
        folder = device.linker_script.parent
        scripts = {device.linker_script, *(path for form in SCRIPTS for path in folder.glob(form))}
        for path in sorted(scripts):
            digest.update(_content(path))
    return digest.hexdigest()


def _preprocessed(device: Device, source: Path) -> bytes:
    command = [*device.compiler(), "-std=c99", f"-I{RUNTIME}", f"-I{SUPPORT}", "-E", str(source)]
    ended = subprocess.run(command, capture_output=True, check=False)
    return ended.stdout + bytes([ended.returncode != 0])  # the compiler reports the mistake later


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # the linker says so


# Programs that time the calls of `umakit/device.h`. Imports no TVM.
# The device's functions are renamed, and `support/device_times.c` defines functions with the
# original names. Thus precompiled drivers are timed too.


DEVICE = "umakit_simulator.c"
"""Name of the file with the functions of `umakit/device.h`, which dispatch to all simulators."""

FUNCTIONS = ("read32", "write32", "map", "unmap", "wait", "barrier")
"""Names of these functions, without the prefix `umakit_device_`."""

RENAMED = [f"-Dumakit_device_{name}=umakit_untimed_{name}" for name in FUNCTIONS]

TIMES = SUPPORT / "device_times.c"


def calls_device(sources: Sequence[Path]) -> bool:
    """Whether the sources of a program include a device for drivers."""
    return any(source.name == DEVICE for source in sources)


def with_timed_device(
    sources: Sequence[Path],
    compiler: Sequence[str],
    flags: Sequence[str],
    folder: Path,
    run: Callable[[list[str]], None],
) -> list[Path]:
    """Return the sources of a program with timed device calls."""
    command = [*compiler, *RENAMED]
    (device,) = (source for source in sources if source.name == DEVICE)
    (found,) = with_shared_objects([device], command, flags, run)
    if found == device:  # its headers are not an exported library's
        found = folder / "device.o"
        run([*command, *compiling(flags), "-c", str(device.absolute()), "-o", str(found)])
    return [*(source for source in sources if source != device), found, TIMES]
