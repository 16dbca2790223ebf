# SPDX-License-Identifier: Apache-2.0
"""Package formats of a library, for other build systems."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from umakit.errors import LibraryError
from umakit.library.metadata import read_description


@dataclass(frozen=True)
class PackageFormat:
    """A package format of a library.

    Attributes:
        name: value of `uma package --format`.
        suffix: suffix of the default destination; the stem is the prefix of the C interface.
        module: module whose `write_package` checks the destination and writes the package.
    """

    name: str
    description: str
    suffix: str
    module: str


FORMATS = {
    form.name: form
    for form in (
        PackageFormat("tar", "one file", ".tar", "umakit.library.tar_files"),
        PackageFormat("arduino", "a library folder", "", "umakit.library.packages.arduino"),
    )
}


def package_library(
    library: Path, kind: str, destination: Path | None = None, *, force: bool = False
) -> Path:
    """Write a library in a format of `FORMATS`, by default named after the library; return the
    path."""
    if kind not in FORMATS:
        raise LibraryError(f"format {kind!r} is none of {', '.join(FORMATS)}")
    form = FORMATS[kind]
    destination = destination or Path(f"{read_description(library).interface}{form.suffix}")
    import_module(form.module).write_package(library, destination, force)
    return destination
