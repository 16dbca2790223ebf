# SPDX-License-Identifier: Apache-2.0
"""Compiling the libraries of C functions in an exported library. Imports no TVM."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from umakit.devices.device import Device
from umakit.devices.objects import cached_object, of_no_model, version_of
from umakit.errors import BuildError, LibraryError
from umakit.files.compiled_files import CompiledFile, Machine, is_shared, read_compiled
from umakit.library.metadata import read_description
from umakit.library.roles import COMPILED_FOLDER, SOURCE_FOLDER
from umakit.library.schema import KernelLibrary
from umakit.library.tar_files import library_folder
from umakit.machine.simulator_config import CXX_SUFFIXES

TRANSITIVE = "-Wl,--disable-new-dtags"
"""Makes the loader search the same folders for indirectly needed shared libraries."""

Run = Callable[[Sequence[str], list[str]], None]
"""Runs a compiler, given as its command and arguments; raises `BuildError`."""


def driver_libraries(library: Path) -> list[Path]:
    """Return the objects and libraries of drivers in an exported library, in linking order."""
    folder = library_folder(library) / COMPILED_FOLDER
    if not folder.is_dir():
        return []
    compiled = read_description(library).sources.compiled
    return [folder / path for paths in compiled.values() for path in paths]


def check_compiled(files: Sequence[Path], device: Device, run: Run) -> str:
    """Refuse objects and libraries that do not fit a device; return the first file that needs C++,
    or an empty name."""
    read = [read_file(path) for path in files]
    for path, compiled in zip(files, read, strict=True):
        if is_shared(path.name) and not device.is_host:
            raise BuildError(
                f"{path.name} is a shared library, which programs for {device.name} cannot load",
                fix="make it a static library (.a) for that device",
            )
        if compiled.machine is not None:
            check_machine(path, compiled.machine, machine_of(device, run), device.name)
    in_cxx = (path.name for path, each in zip(files, read, strict=True) if each.needs_cxx)
    return next(in_cxx, "")


def check_machine(path: Path, machine: Machine | None, wanted: Machine | None, target: str) -> None:
    """Refuse an object or a library for another processor."""
    if machine is not None and wanted is not None and machine != wanted:
        raise BuildError(
            f"{path.name} is compiled for {machine}, programs for {target} are for {wanted}",
            fix=f"compile it for {target}, or choose a device that it fits",
        )


def read_file(path: Path) -> CompiledFile:
    """Return the properties of an object or a library."""
    try:
        return read_compiled(path.name, path.read_bytes(), str(path))
    except OSError as error:
        raise BuildError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except LibraryError as error:
        raise BuildError(error.what, where=error.where, fix=error.fix) from None


def linker_arguments(files: Sequence[Path]) -> list[str]:
    """Return the linker arguments for objects and libraries.

    Programs find shared libraries at their present paths.
    """
    arguments = [str(path.absolute()) for path in files]
    folders = {str(path.absolute().parent): None for path in files if is_shared(path.name)}
    arguments += [f"-Wl,-rpath,{folder}" for folder in folders]
    if folders and sys.platform != "darwin":
        arguments.append(TRANSITIVE)
    return arguments


def machine_of(device: Device, run: Run) -> Machine | None:
    """Return the target processor of a device's compiler; None if its files are not ELF."""
    compiler = device.compiler()

    def compile_to(output: Path) -> None:
        source = output.with_suffix(".c")
        source.write_text("int umakit_nothing;\n", encoding="utf-8")
        run(compiler, ["-c", str(source), "-o", str(output)])

    key = repr([compiler, version_of(compiler[0])]).encode()
    return read_file(cached_object("nothing", key, compile_to)).machine


@dataclass(frozen=True)
class CallableLibrary:
    """A library of C functions in an exported library."""

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
        """Return the compiler arguments for one of its files, without the file."""
        is_cxx = source.suffix in CXX_SUFFIXES
        given = [flag for flag in flags if not (is_cxx and flag.startswith("-std="))]
        return [*given, *self.words, *self.files.flags]


def libraries_of(library: Path) -> list[CallableLibrary]:
    """Return the libraries of C functions in an exported library, a folder or a tar file."""
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
            line = [*arguments, "-c", str(source.absolute())]
            objects.append(compiled_object(source.stem, key, run, compiler, line))
    return objects


def compiled_object(
    stem: str, key: bytes, run: Run, compiler: Sequence[str], arguments: Sequence[str]
) -> Path:
    """Return an object of the cache, compiled if missing; arguments as for `cached_object`."""
    return cached_object(stem, key, lambda to: run(compiler, [*arguments, "-o", str(to)]))
