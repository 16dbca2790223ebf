# SPDX-License-Identifier: Apache-2.0
"""A library as one tar file."""

from __future__ import annotations

from pathlib import Path

from umakit.errors import LibraryError
from umakit.files.outputs import check_file
from umakit.library.packages.files import read_files
from umakit.library.tar_files import LIBRARY_TAR, SUFFIX, write_tar


def write_package(library: Path, destination: Path, force: bool) -> None:
    """Write a library as a tar file, atomically.

    Args:
        library: folder or tar file of an exported library.
        destination: file to write.
        force: whether a file in the way that umakit did not write is replaced too.

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
