# SPDX-License-Identifier: Apache-2.0
"""The files of a library that `[sources]` of `accel.toml` describes."""

from __future__ import annotations

import os
import posixpath
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from umakit.errors import AcceleratorConfigError, LibraryError, UmakitError, short_path
from umakit.machine.config_faults import line_of_value
from umakit.machine.rtl_config import design_paths
from umakit.machine.simulator_config import C_SUFFIXES, CXX_SUFFIXES
from umakit.machine.sources_config import SourcesSection
from umakit.registration.backend import Backend
from umakit.text.spelling import closest

PLAIN = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_+., -]*[A-Za-z0-9_+.,-])?")
"""Names of files and folders that CMake, compilers and shells can be given."""


@dataclass(frozen=True)
class SourceTree:
    """The files of a library, by path relative to its root, for `[sources]` of a file."""

    backend: str
    root: Path
    section: SourcesSection
    where: Path

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The compiled files, in alphabetical order."""
        self.check_folders()
        excluded = {name for form in self.section.exclude for name in self._found(form)}
        names: dict[str, None] = {}
        for form in self.section.files:
            matched = sorted(set(self._found(form)))
            if not matched:
                raise self.error(f"files: no file below {short_path(self.root)} is {form!r}", form)
            names |= dict.fromkeys(name for name in matched if name not in excluded)
        for name in names:
            if not name.endswith((*C_SUFFIXES, *CXX_SUFFIXES)):
                raise self.error(
                    f"files: {name} is not a C or C++ file (.c, .cc, .cpp, .cxx)",
                    fix="name the files that are compiled; headers are found by themselves",
                )
        return self._without_links(sorted(names))

    def _without_links(self, names: Iterable[str]) -> tuple[str, ...]:
        kept: dict[str, str] = {}
        for name in names:
            real = os.path.realpath(self.root / name)
            if real not in kept or real == str(self.root.resolve() / name):
                kept[real] = name
        return tuple(sorted(kept.values()))

    def _found(self, form: str) -> Iterator[str]:
        try:
            for path in self.root.glob(form):
                if path.is_file():
                    yield path.relative_to(self.root).as_posix()
        except (ValueError, NotImplementedError, IndexError) as error:
            raise self.error(f"files: {form!r} is not a pattern of paths: {error}", form) from None

    def check_folders(self) -> None:
        """Refuse a missing root, include folder or header."""
        if not self.root.is_dir():
            raise self.error(f"root: there is no folder {short_path(self.root)}")
        for folder in self.section.include:
            if not (self.root / folder).is_dir():
                raise self.error(
                    f"include: there is no folder {folder} in {short_path(self.root)}", folder
                )
        for name in self.section.headers:
            if not (self.root / name).is_file():
                what = f"headers: there is no file {name} in {short_path(self.root)}"
                close = closest(name, self._found("**/*.h"))
                raise self.error(
                    what, name, f"write {close}" if close else "correct it in [sources]"
                )

    def error(
        self, what: str, value: str = "", fix: str = "correct it in [sources]"
    ) -> AcceleratorConfigError:
        """Return an error of this section. `what` begins with the key and a colon."""
        key = what.partition(":")[0]
        where = line_of_value(self.where, "sources", key, value)
        return AcceleratorConfigError(f"sources.{what}", where=where, fix=fix)

    def content(self, name: str) -> bytes:
        try:
            return (self.root / name).read_bytes()
        except OSError as error:
            raise LibraryError(
                f"cannot be read: {error.strerror}", where=str(self.root / name)
            ) from None

    def included(self, name: str, includer: str, in_quotes: bool) -> str | None:
        """Return the file of an include; None for files outside the library.

        A name in quotes is searched next to the including file first.
        """
        beside = posixpath.dirname(includer)
        folders = [beside] if in_quotes else []
        for folder in (*folders, *self.section.include):
            path = posixpath.normpath(posixpath.join(folder, name))
            if path.startswith(("../", "/")):
                if not name.startswith("/") and (self.root / folder / name).is_file():
                    raise LibraryError(
                        f'includes "{name}", which lies outside of {short_path(self.root)}',
                        where=str(self.root / includer),
                        fix="let root in [sources] be a folder that holds both",
                    )
                continue
            if (self.root / path).is_file():
                return path
        return None

    def licences(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for name in self.section.licence:
            if not (self.root / name).is_file():
                raise self.error(
                    f"licence: there is no file {name} in {short_path(self.root)}", name
                )
            parts = [part for part in PurePosixPath(posixpath.normpath(name)).parts if part != ".."]
            path = "/".join(parts[-1:] if PurePosixPath(name).is_absolute() else parts)
            content = self.content(name)
            if found.setdefault(path, content) != content:
                raise self.error(f"licence: two files would both become {path}")
        return found

    def check_names(self, names: Iterable[str]) -> None:
        """Refuse names that build tools refuse, and names that are equal on some machines."""
        taken: dict[str, str] = {}
        for name in names:
            if not all(map(PLAIN.fullmatch, name.split("/"))):
                raise LibraryError(
                    f"{name!r} is not a path that all build tools take",
                    where=str(self.root),
                    fix="use letters, digits, spaces and _ + - . , in names",
                )
            other = taken.setdefault(name.lower(), name)
            if other != name:
                raise LibraryError(
                    f"{other} and {name} would be one file where names are compared without case",
                    where=str(self.root),
                    fix="rename one, or exclude it in [sources]",
                )


def source_tree(backend: Backend) -> SourceTree | None:
    """Return the library of a backend's `accel.toml`; None without `[sources]`."""
    section = backend.configuration.sources
    if section is None:
        return None
    folder = backend.folder
    root = Path(os.path.normpath(folder / section.root))
    return SourceTree(backend.target_name, root, section, folder / "accel.toml")


def library_paths(backend: Backend) -> list[Path]:
    """Return a library's files except headers; empty if the library cannot be read."""
    try:
        tree = source_tree(backend)
        names = () if tree is None else (*tree.sources, *tree.section.headers, *tree.licences())
        return [] if tree is None else [tree.root / name for name in names]
    except UmakitError:  # the command that reads the library reports the error
        return []


def input_files(
    *paths: Path | None, backends: Iterable[Backend] = (), model: Iterable[Path] = ()
) -> list[Path]:
    """Return the files that a command reads; folders among `paths` count as a whole."""
    found = [path for path in paths if path is not None]
    found += model
    folders = []
    for backend in backends:
        found += _files_of(backend)
        folders.append(f"{backend.folder}{os.sep}")
    found += _modules_in(tuple(folders))
    return list(dict.fromkeys(reversed(found)))[::-1]  # modules are files of the folder too


def _files_of(backend: Backend) -> Iterator[Path]:
    with os.scandir(backend.folder) as entries:
        yield from [Path(entry) for entry in entries if entry.is_file()]
    driver = backend.driver
    names = (*driver.sources, *driver.headers, *driver.compiled)
    yield from (backend.folder / name for name in names)
    yield from library_paths(backend)
    yield from design_paths(backend.configuration.rtl, backend.folder)


def _modules_in(folders: tuple[str, ...]) -> list[Path]:
    if not folders:
        return []
    files = [vars(module).get("__file__") for module in list(sys.modules.values())]
    return [Path(file) for file in files if isinstance(file, str) and file.startswith(folders)]
