# SPDX-License-Identifier: Apache-2.0
"""Compiling the libraries of C functions in an exported library. Imports no TVM."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from umakit.devices.compiled import Run
from umakit.devices.device import Device
from umakit.devices.objects import cached_object, of_no_model, version_of
from umakit.library.metadata import read_description
from umakit.library.roles import SOURCE_FOLDER
from umakit.library.schema import KernelLibrary
from umakit.library.tar_files import library_folder
from umakit.machine.simulator_config import CXX_SUFFIXES


@dataclass(frozen=True)
class CallableLibrary:
    """A library of C functions in an exported library.

    Attributes:
        backend: name of the calling backend.
        folder: the folder `codegen/host/src`.
        files: files of the library with compiler options.
    """

    backend: str
    folder: Path
    files: KernelLibrary

    @property
    def words(self) -> list[str]:
        """Compiler arguments for its files and all users of its headers."""
        folders = [f"-I{(self.folder / path).absolute()}" for path in self.files.include]
        return [*folders, *(f"-D{define}" for define in self.files.defines)]

    @property
    def sources(self) -> list[Path]:
        """The source files to compile."""
        return [self.folder / path for path in self.files.sources]

    @property
    def paths(self) -> list[Path]:
        names = (*self.files.sources, *self.files.included, *self.files.licence)
        return [self.folder / name for name in names]

    @property
    def is_cxx(self) -> bool:
        return any(name.endswith(CXX_SUFFIXES) for name in self.files.sources)

    def digest(self) -> str:
        """Return a digest of its files and their compiler options."""
        digest = hashlib.sha256(self.files.model_dump_json().encode())
        for path in self.paths:
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()

    def arguments(self, source: Path, flags: Sequence[str]) -> list[str]:
        """Return the compiler arguments for one of its files, without the file.

        Args:
            source: the file.
            flags: flags of all files, before the library's own.
        """
        is_cxx = source.suffix in CXX_SUFFIXES
        given = [flag for flag in flags if not (is_cxx and flag.startswith("-std="))]
        return [*given, *self.words, *self.files.flags]


def libraries_of(library: Path) -> list[CallableLibrary]:
    """Return the libraries of C functions in an exported library, a folder or a tar file.

    Raises:
        LibraryError: the exported library is missing or damaged.
    """
    found: Mapping[str, KernelLibrary] = read_description(library).sources.libraries
    folder = library_folder(library) / SOURCE_FOLDER if found else library
    return [CallableLibrary(name, folder, files) for name, files in found.items()]


def library_objects(
    libraries: Sequence[CallableLibrary],
    standard: Sequence[str],
    flags: Sequence[str],
    device: Device,
    run: Run,
) -> list[Path]:
    """Return the objects of libraries, from the cache or compiled.

    Args:
        standard: flags of all files of programs.
        flags: flags of the program; linker flags and flags of the model are ignored.
        device: target device.
        run: runs a compiler.

    Raises:
        BuildError: a compiler is missing or refused a source.
    """
    objects = []
    for library in libraries:
        content = library.digest()
        for source in library.sources:
            is_cxx = source.suffix in CXX_SUFFIXES
            compiler = device.cxx_compiler(source.name) if is_cxx else device.compiler()
            arguments = library.arguments(source, [*standard, *of_no_model(flags)])
            # Folder paths vary per export; the digest covers the files in them.
            depends = [word for word in arguments if not word.startswith("-I")]
            name = source.relative_to(library.folder).as_posix()
            key = repr([compiler, version_of(compiler[0]), depends, name, content]).encode()
            digest = hashlib.sha256(key).hexdigest()[:24]
            line = [*arguments, "-c", str(source.absolute())]
            objects.append(
                cached_object(source.stem, digest, partial(_compile, run, compiler, line))
            )
    return objects


def _compile(run: Run, compiler: Sequence[str], arguments: Sequence[str], output: Path) -> None:
    run(compiler, [*arguments, "-o", str(output)])
