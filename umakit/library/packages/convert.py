# SPDX-License-Identifier: Apache-2.0
"""Conversion of an exported library to package formats. Imports neither TVM nor the pipeline."""

from __future__ import annotations

from pathlib import Path

from umakit.errors import LibraryError
from umakit.library.metadata import load_metadata
from umakit.library.packages.formats import FORMATS


def package_library(
    library: Path, kind: str, destination: Path | None = None, *, force: bool = False
) -> Path:
    """Write a library in a package format, atomically.

    Args:
        library: folder or tar file that `uma compile` wrote.
        kind: a name of `umakit.library.packages.formats.FORMATS`.
        destination: the file or folder to write; files that umakit wrote earlier are replaced.
            Default: named after the library, in the working directory.
        force: whether files in the way that were changed, or that something else wrote, are
            replaced too.

    Returns:
        The path of the package.

    Raises:
        LibraryError: the library is missing or damaged, or the destination is not ours to write
            or cannot be written.
    """
    if kind not in FORMATS:
        raise LibraryError(f"format {kind!r} is none of {', '.join(FORMATS)}")
    form = FORMATS[kind]
    interface = load_metadata(library)["umakit"]["interface"]
    destination = destination or Path(f"{interface}{form.suffix}")
    form.write(library, destination, force)
    return destination
