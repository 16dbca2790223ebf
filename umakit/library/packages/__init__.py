# SPDX-License-Identifier: Apache-2.0
"""Package formats of a library, for other build systems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from umakit.errors import LibraryError
from umakit.library.metadata import load_metadata

Write = Callable[[Path, Path, bool], None]
"""(library, destination, force) -> None: checks the destination and writes the package."""


@dataclass(frozen=True)
class PackageFormat:
    """A package format of a library.

    Attributes:
        name: value of `uma package --format`.
        suffix: suffix of the default destination; the stem is the prefix of the C interface.
        write: function that writes the package atomically; raises LibraryError for an invalid
            destination and OutputError if existing files must not be replaced.
    """

    name: str
    description: str
    suffix: str
    write: Write


def _write_tar(library: Path, destination: Path, force: bool) -> None:
    from umakit.library.tar_files import write_package

    write_package(library, destination, force)


def _write_arduino(library: Path, destination: Path, force: bool) -> None:
    from umakit.library.packages.arduino import write_package

    write_package(library, destination, force)


FORMATS = {
    form.name: form
    for form in (
        PackageFormat("tar", "one file", ".tar", _write_tar),
        PackageFormat("arduino", "a library folder", "", _write_arduino),
    )
}
"""All formats by name."""


def package_library(
    library: Path, kind: str, destination: Path | None = None, *, force: bool = False
) -> Path:
    """Write a library in a package format, atomically.

    Args:
        destination: the file or folder to write; earlier files of umakit are replaced. Default:
            named after the library, in the working directory.

    Returns:
        The path of the package.

    Raises:
        LibraryError: the library is missing or damaged, or the destination must not or cannot be
            written.
    """
    if kind not in FORMATS:
        raise LibraryError(f"format {kind!r} is none of {', '.join(FORMATS)}")
    form = FORMATS[kind]
    interface = load_metadata(library)["umakit"]["interface"]
    destination = destination or Path(f"{interface}{form.suffix}")
    form.write(library, destination, force)
    return destination
