# SPDX-License-Identifier: Apache-2.0
"""The files of an exported library that a package is made of."""

from __future__ import annotations

from pathlib import Path

from umakit.errors import LibraryError
from umakit.library.tar_files import library_folder

LEFT_OUT = ("build", "__pycache__")
"""Folders below a library that tools create and that are not packaged."""


def read_files(library: Path) -> dict[str, str | bytes]:
    """Return all files of a library by path, without files that were built in it.

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
