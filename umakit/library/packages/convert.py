# SPDX-License-Identifier: Apache-2.0
"""Conversion of an exported library to package formats. Imports neither TVM nor the pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from umakit.errors import LibraryError
from umakit.files.outputs import check_file, check_folder
from umakit.files.staging import write_folder
from umakit.library.metadata import load_metadata
from umakit.library.packages.arduino import ARDUINO_FOLDER, arduino_files, check_arduino_name
from umakit.library.tar_files import LIBRARY_TAR, SUFFIX, library_folder, write_tar

Write = Callable[[Path, Path, bool], None]
"""(library, destination, force) -> None: checks the destination and writes the package."""


@dataclass(frozen=True)
class PackageFormat:
    """A package format of a library.

    Attributes:
        name: value of `uma package --format`.
        suffix: suffix of the default destination, whose stem is the prefix of the C interface.
        write: function that writes the package atomically; raises LibraryError for an invalid
            destination and OutputError if existing files must not be replaced.
    """

    name: str
    suffix: str
    write: Write


LEFT_OUT = ("build", "__pycache__")
"""Folders below a library that tools create and that are not packaged."""


def package_library(
    library: Path, kind: str, destination: Path | None = None, *, force: bool = False
) -> Path:
    """Write a library in a package format, atomically.

    Args:
        library: folder or tar file that `uma compile` wrote.
        kind: a name of `FORMATS`.
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


def _write_tar(library: Path, destination: Path, force: bool) -> None:
    if destination.suffix != SUFFIX:
        raise LibraryError(
            f"does not end in {SUFFIX}", where=str(destination), fix="choose another name"
        )
    check_file(destination, LIBRARY_TAR, [library], force=force)
    write_tar(destination, read_files(library), [library], force=force)


def _write_arduino(library: Path, destination: Path, force: bool) -> None:
    check_arduino_name(destination)
    check_folder(destination, ARDUINO_FOLDER, [library], force=force)
    files = arduino_files(read_files(library), load_metadata(library), str(library))
    write_folder(destination, files, ARDUINO_FOLDER, [library], force=force)


FORMATS = {
    form.name: form
    for form in (
        PackageFormat("tar", SUFFIX, _write_tar),
        PackageFormat("arduino", "", _write_arduino),
    )
}
"""All formats by name."""


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
