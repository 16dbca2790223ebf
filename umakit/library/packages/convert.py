# SPDX-License-Identifier: Apache-2.0
"""From an exported library to its other forms. Imports neither TVM nor the pipeline."""

from __future__ import annotations

from pathlib import Path

from umakit.errors import LibraryError
from umakit.files.outputs import check_file, check_folder
from umakit.files.staging import write_folder
from umakit.library.metadata import load_metadata
from umakit.library.packages.arduino import ARDUINO_FOLDER, arduino_files, check_arduino_name
from umakit.library.tar_files import LIBRARY_TAR, SUFFIX, library_folder, write_tar

FORMATS = ("tar", "arduino")
LEFT_OUT = ("build", "__pycache__")
"""Folders below a library that tools make."""


def package_library(
    library: Path, kind: str, destination: Path | None = None, *, force: bool = False
) -> Path:
    """Write a library in another form, all of it or nothing.

    Args:
        library: what `uma compile` wrote, a folder or a tar file.
        kind: `tar` or `arduino`.
        destination: the file or folder to write; what umakit wrote there earlier is replaced.
            Default: named after the library, in the working directory.
        force: whether files in the way that were changed, or that something else wrote, are
            replaced too.

    Returns:
        What was written.

    Raises:
        LibraryError: the library is missing or damaged, or the destination is not ours to write
            or cannot be written.
    """
    if kind not in FORMATS:
        raise LibraryError(f"format {kind!r} is none of {', '.join(FORMATS)}")
    metadata = load_metadata(library)
    if destination is None:
        interface = metadata["umakit"]["interface"]
        destination = Path(f"{interface}{SUFFIX}" if kind == "tar" else interface)
    if kind == "tar":
        if destination.suffix != SUFFIX:
            raise LibraryError(
                f"does not end in {SUFFIX}", where=str(destination), fix="choose another name"
            )
        check_file(destination, LIBRARY_TAR, [library], force=force)
        write_tar(destination, read_files(library), [library], force=force)
    else:
        check_arduino_name(destination)
        check_folder(destination, ARDUINO_FOLDER, [library], force=force)
        files = arduino_files(read_files(library), metadata, str(library))
        write_folder(destination, files, ARDUINO_FOLDER, [library], force=force)
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
