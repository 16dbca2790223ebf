# SPDX-License-Identifier: Apache-2.0
"""Libraries as tar files, written reproducibly and unpacked safely.

Imports neither TVM nor the pipeline.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from umakit.errors import LibraryError, OutputError
from umakit.files.manifest import NAME as MANIFEST
from umakit.files.manifest import parse_manifest, sha256
from umakit.files.outputs import FORCE, FileKind, check_file
from umakit.files.staging import as_bytes, with_manifest, write_file, write_new_folder
from umakit.library.layout import METADATA, cache_folder, describes_library

SUFFIX = ".tar"
MOST_BYTES = 2**31
MOST_FILES = 10_000
KEPT_LIBRARIES = 16
"""Number of unpacked libraries in the cache; the least recently used ones are deleted."""

END_OF_ARCHIVE = bytes(2 * tarfile.BLOCKSIZE)


def tar_bytes(files: Mapping[str, str | bytes]) -> bytes:
    """Return a tar file whose bytes depend only on the files: no times, no owners, sorted."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, content in sorted(files.items()):
            data = as_bytes(content)
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


class _LibraryTar(FileKind):
    """The kind of file of libraries in tar files, recognized by their content."""

    def wrote(self, path: Path) -> bool:
        if path.stat().st_size > MOST_BYTES:
            return False
        try:
            files = read_tar(path.read_bytes(), str(path))
        except LibraryError:
            return False
        listed = parse_manifest(files.pop(MANIFEST, b"")) or {}
        for name, content in files.items() if listed else ():
            if listed.get(name) != sha256(content):
                raise OutputError(
                    f"{name!r} in it was changed or added since umakit wrote it",
                    where=str(path),
                    fix=FORCE,
                )
        return bool(listed)


LIBRARY_TAR = _LibraryTar("umakit library", b"")


def write_tar(
    destination: Path,
    files: Mapping[str, str | bytes],
    inputs: Iterable[Path] = (),
    *,
    force: bool = False,
) -> None:
    """Write a library as a tar file with a manifest, atomically."""
    content = tar_bytes(with_manifest(files, MANIFEST))
    write_file(destination, content, LIBRARY_TAR, inputs, force=force)


def library_folder(library: Path) -> Path:
    """Return the folder of a library, or of its tar file, unpacked in the cache by its content."""
    if not library.is_file():
        return library
    try:
        state = library.stat()
        key = (library, cache_folder("libraries"), state.st_mtime_ns, state.st_size)
        folder = _unpacked(*key)
        if not folder.is_dir():
            _unpacked.cache_clear()
            folder = _unpacked(*key)
    except OSError as error:
        raise LibraryError(f"cannot be read: {error.strerror}", where=str(library)) from None
    return folder


@functools.lru_cache(maxsize=32)
def _unpacked(library: Path, cache: Path, time: int, size: int) -> Path:
    """Return the folder of an unpacked tar file; an unchanged file is read only once."""
    where = str(library)
    if size > MOST_BYTES:
        raise LibraryError(f"has {size:,} bytes, a library at most {MOST_BYTES:,}", where=where)
    data = library.read_bytes()
    files = read_tar(data, where)
    if not describes_library(files.get(METADATA, b"")):
        raise _foreign(where)
    folder = cache / hashlib.sha256(data).hexdigest()[:32]
    if not _holds(folder, files):
        _unpack(folder, files, where)
    _forget_old_libraries(folder)
    return folder


def read_tar(data: bytes, where: str) -> dict[str, bytes]:
    """Return the files of a tar file by path; raise LibraryError unless all are plain and below
    it."""
    files: dict[str, bytes] = {}
    spellings: dict[str, str] = {}
    stream = io.BytesIO(data)
    try:
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            for member in archive:
                path = _checked_path(member, where)
                if member.isdir():
                    continue
                if path in files or len(files) == MOST_FILES:
                    raise LibraryError(f"holds {path!r} twice, or too many files", where=where)
                other = spellings.setdefault(path.lower(), path)
                if other != path:
                    raise LibraryError(
                        f"holds {other!r} and {path!r}, which are one file on some machines",
                        where=where,
                    )
                content = archive.extractfile(member)
                files[path] = content.read() if content is not None else b""
            end = archive.offset
    except (tarfile.TarError, EOFError, ValueError, ArithmeticError, RecursionError, OSError):
        raise (_damaged if files else _foreign)(where) from None
    # Python's reader accepts a file that is cut off between two members as complete.
    if data[end : end + len(END_OF_ARCHIVE)] != END_OF_ARCHIVE:
        raise _damaged(where)
    folders = {str(folder) for path in files for folder in PurePosixPath(path).parents}
    if not folders.isdisjoint(files):
        raise _damaged(where)
    return files


def _unpack(folder: Path, files: Mapping[str, bytes], where: str) -> None:
    """Write a folder, unless another process writes it first at the same time."""
    staged = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        shutil.rmtree(folder, ignore_errors=True)
        write_new_folder(staged, files)
        staged.rename(folder)
    except (LibraryError, OSError) as error:
        if not _holds(folder, files):
            raise LibraryError(
                f"cannot be unpacked: {error}",
                where=where,
                fix="set XDG_CACHE_HOME to a folder with room",
            ) from None
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _foreign(where: str) -> LibraryError:
    return LibraryError(
        f"is not a umakit library: there is no {METADATA} of one",
        where=where,
        fix="export one with `uma compile`",
    )


def _damaged(where: str) -> LibraryError:
    return LibraryError("is a damaged tar file", where=where, fix="export the library again")


def _checked_path(member: tarfile.TarInfo, where: str) -> str:
    path = PurePosixPath(member.name)
    is_plain = (member.isreg() and not member.issparse()) or member.isdir()
    if not is_plain:
        raise LibraryError(f"holds {member.name!r}, which is not a regular file", where=where)
    is_below = not path.is_absolute() and ".." not in path.parts and "\\" not in member.name
    if not is_below or "\0" in member.name or (member.isreg() and not path.parts):
        raise LibraryError(f"holds {member.name!r}, a path outside of it", where=where)
    return str(path)


def _holds(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Whether a folder still contains the unpacked files; users may clean caches."""
    try:
        return all((folder / path).read_bytes() == content for path, content in files.items())
    except OSError:
        return False


def _forget_old_libraries(used: Path) -> None:
    try:
        os.utime(used)
        unpacked = sorted(used.parent.iterdir(), key=lambda path: path.stat().st_mtime)
    except OSError:
        return
    for stale in unpacked[:-KEPT_LIBRARIES]:
        shutil.rmtree(stale, ignore_errors=True)


def write_package(library: Path, destination: Path, force: bool) -> None:
    """Write a library as a tar file, atomically."""
    if destination.suffix != SUFFIX:
        raise LibraryError(
            f"does not end in {SUFFIX}", where=str(destination), fix="choose another name"
        )
    check_file(destination, LIBRARY_TAR, [library], force=force)
    write_tar(destination, read_files(library), [library], force=force)


LEFT_OUT = ("build", "__pycache__")
"""Folders below a library that tools create and that are not packaged."""


def read_files(library: Path) -> dict[str, str | bytes]:
    """Return all files of a library by path, without build results in its folder."""
    folder = library_folder(library)
    files: dict[str, str | bytes] = {}
    try:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if any(part in LEFT_OUT for part in name.parts):
                continue
            if path.is_symlink():
                raise LibraryError("is a link", where=str(path), fix="export the library again")
            if path.is_file():
                files[name.as_posix()] = path.read_bytes()
    except OSError as error:
        raise LibraryError(f"cannot be read: {error.strerror}", where=str(library)) from None
    return files
