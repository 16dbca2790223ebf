# SPDX-License-Identifier: Apache-2.0
"""From an exported library to its other forms. Imports neither TVM nor the pipeline."""

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
"""(library, destination, whether files in the way are replaced) -> None: check, then write."""


@dataclass(frozen=True)
class PackageFormat:
    """A form in which other projects take in a library.

    Attributes:
        name: what `uma package --format` calls it.
        suffix: of the default destination, which is called as the library's C interface.
        write: all of it or nothing; raises LibraryError where the destination is not ours to
            write, and OutputError where files in the way are not.
    """

    name: str
    suffix: str
    write: Write


LEFT_OUT = ("build", "__pycache__")
"""Folders below a library that tools make."""


def package_library(
    library: Path, kind: str, destination: Path | None = None, *, force: bool = False
) -> Path:
    """Write a library in another form, all of it or nothing.

    Args:
        library: what `uma compile` wrote, a folder or a tar file.
        kind: a name of `FORMATS`.
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
