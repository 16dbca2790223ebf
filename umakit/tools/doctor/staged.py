# SPDX-License-Identifier: Apache-2.0
"""A driver's files in the layout of a library."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from umakit.codegen.driver_names import library_headers
from umakit.devices import Device
from umakit.devices.libraries import CallableLibrary
from umakit.errors import short_path
from umakit.registration.backend import Backend


@dataclass
class StagedDriver:
    """A driver's files in the layout of a library.

    Attributes:
        backend: the backend of the driver.
        device: target device of the driver.
        folder: parent of `src`, and base of the paths in compiler messages.
        places: the user's files by path in `folder`.
        objects: objects of the sources that could be compiled, by path in `folder`.
        compiled: objects and libraries of the driver, in linking order.
        library: the library of C functions that the backend calls.
    """

    backend: Backend
    device: Device
    folder: Path
    places: dict[str, Path] = field(default_factory=dict)
    objects: dict[str, Path] = field(default_factory=dict)
    compiled: list[Path] = field(default_factory=list)
    library: CallableLibrary | None = None

    @property
    def words(self) -> list[str]:
        """Compiler flags for all C files that may include headers of the library."""
        return self.library.words if self.library is not None else []

    def where(self, file: str, line: int) -> str:
        """Return the user's file and line for a place in a compiler's message."""
        return f"{short_path(self.places[posixpath.normpath(file)])}:{line}"

    def texts(self) -> dict[Path, str]:
        return {
            path: path.read_text(encoding="utf-8", errors="replace")
            for path in self.places.values()
        }

    def line_of(self, name: str, paths: Sequence[Path] | None = None) -> str:
        """Return file and line of the first mention of a C function; empty if there is none."""
        for path, text in self.texts().items():
            if paths is not None and path not in paths:
                continue
            for number, line in enumerate(text.splitlines(), 1):
                if re.search(rf"\b{re.escape(name)}\s*\(", line):
                    return f"{short_path(path)}:{number}"
        return ""

    @property
    def headers(self) -> list[Path]:
        """The user's headers, and the library's headers that generated C includes."""
        found = [self.backend.folder / name for name in self.backend.driver.headers]
        names = {f"src/{path}" for path in library_headers(self.backend)}
        return [*found, *(path for place, path in self.places.items() if place in names)]

    @property
    def sources(self) -> list[Path]:
        return [self.backend.folder / name for name in self.backend.driver.sources]

    def definition_of(self, name: str) -> str:
        """Return file and line of the definition of a C function; empty without one."""
        for path, text in self.texts().items():
            found = re.search(rf"\b{re.escape(name)}\s*\([^;{{}}]*\)\s*\{{", text)
            if path not in self.headers and found:
                return f"{short_path(path)}:{text.count(chr(10), 0, found.start()) + 1}"
        return ""
