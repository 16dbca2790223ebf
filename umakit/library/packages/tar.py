# SPDX-License-Identifier: Apache-2.0
"""A library as one tar file."""

from __future__ import annotations

from pathlib import Path

from umakit.errors import LibraryError
from umakit.files.outputs import check_file
from umakit.library.tar_files import LIBRARY_TAR, SUFFIX, library_folder, write_tar


def write_package(library: Path, destination: Path, force: bool) -> None:
    """Write a library as a tar file, atomically.

    Args:
        library: folder or tar file of an exported library.
        destination: file to write.
        force: whether to replace also a file of other origin.

    Raises:
        LibraryError: the destination has another suffix, or a file of the library cannot be read.
        OutputError: the destination must not be replaced, or cannot be written.
    """
    if destination.suffix != SUFFIX:
        raise LibraryError(
            f"does not end in {SUFFIX}", where=str(destination), fix="choose another name"
        )
    check_file(destination, LIBRARY_TAR, [library], force=force)
    write_tar(destination, read_files(library), [library], force=force)


LEFT_OUT = ("build", "__pycache__")
"""Folders below a library that tools create and that are not packaged."""


def read_files(library: Path) -> dict[str, str | bytes]:
    """Return all files of a library by path, without build results in its folder.

    Raises:
        LibraryError: a file cannot be read, or is a link.
    """
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
