# SPDX-License-Identifier: Apache-2.0
"""From an exported library to its other forms. Imports neither TVM nor the pipeline."""

from __future__ import annotations

from pathlib import Path

from umakit.errors import LibraryError
from umakit.library_metadata import load_metadata
from umakit.packages.arduino import arduino_files, check_arduino_destination
from umakit.packages.tar import SUFFIX, check_tar_destination, library_folder, write_tar
from umakit.staging import write_folder

FORMATS = ("tar", "arduino")
LEFT_OUT = ("build", "__pycache__")
"""Folders below a library that tools make."""


def package_library(library: Path, kind: str, destination: Path | None = None) -> Path:
    """Write a library in another form, all of it or nothing.

    Args:
        library: what `uma compile` wrote, a folder or a tar file.
        kind: `tar` or `arduino`.
        destination: the file or folder to write, one that umakit wrote earlier is replaced;
            default: named after the library, in the working directory.

    Returns:
        What was written.

    Raises:
        LibraryError: the library is missing or damaged, or the destination is something else or
            cannot be written.
    """
    if kind not in FORMATS:
        raise LibraryError(f"format {kind!r} is none of {', '.join(FORMATS)}")
    metadata = load_metadata(library)
    if destination is None:
        interface = metadata["umakit"]["interface"]
        destination = Path(f"{interface}{SUFFIX}" if kind == "tar" else interface)
    _refuse_inside(library, destination)
    if kind == "tar":
        if destination.suffix != SUFFIX:
            raise LibraryError(
                f"does not end in {SUFFIX}", where=str(destination), fix="choose another name"
            )
        check_tar_destination(destination)
        write_tar(destination, read_files(library))
    else:
        check_arduino_destination(destination)
        write_folder(destination, arduino_files(read_files(library), metadata, str(library)))
    return destination


def read_files(library: Path) -> dict[str, str | bytes]:
    """All files of a library by their path, without what was built in it.

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


def _refuse_inside(library: Path, destination: Path) -> None:
    """A library that holds its own package would grow with each."""
    inner, outer = destination.resolve(), library.resolve()
    if library.is_dir() and inner != outer and inner.is_relative_to(outer):
        raise LibraryError(
            "lies inside the library", where=str(destination), fix="choose another place"
        )
