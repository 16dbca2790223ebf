# SPDX-License-Identifier: Apache-2.0
"""Checks of a driver's files: they exist, are text, and compile alone."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from umakit.codegen.driver_names import exported_path, is_simulated, library_headers
from umakit.devices import Device
from umakit.devices.libraries import CallableLibrary
from umakit.errors import UmakitError, short_path
from umakit.library.compiled import compiled_content, driver_libraries, exported_name
from umakit.library.export import driver_text, files_of_driver
from umakit.library.own_simulators import own_simulator_files
from umakit.machine.simulator_config import CXX_SUFFIXES
from umakit.registration.backend import Backend
from umakit.text.spelling import closest
from umakit.tools.doctor.checks import Check, failed, ok, refused
from umakit.tools.doctor.compiling import compiled, first_error
from umakit.tools.doctor.design import write_stand_in
from umakit.tools.doctor.library import LIBRARY, library_checks, stage_library

FILES, SOURCES, HEADERS = "driver files", "driver sources", "driver headers"

PROGRAM = "src/umakit_doctor_calls.c"
"""A program that includes what generated code includes, and refers to what that calls."""

MISSING_FILE = re.compile(r"^'?([^':]+)'?(?:: No such file| file not found)")
UNKNOWN_NAME = re.compile(r"(?:function|identifier)? ?['`\u2018](\w+)['\u2019] undeclared"
                          r"|(?:undeclared identifier|undeclared function|declaration of function)"
                          r" ['`\u2018](\w+)['\u2019]")  # fmt: skip


@dataclass
class StagedDriver:
    """A driver's files as they are in a library.

    Attributes:
        backend: whose driver it is.
        device: the device that it is compiled for.
        folder: where `src` is; messages of compilers name paths that start there.
        places: the user's files by path in `folder`.
        objects: objects of the sources that could be compiled, by path in `folder`.
        compiled: objects and libraries of the driver, as they are linked.
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
        """Flags of the compiler for all C that may include headers of the library."""
        return self.library.words if self.library is not None else []

    def where(self, file: str, line: int) -> str:
        """Return the user's file and line for those that a compiler named in `places`."""
        return f"{short_path(self.places[posixpath.normpath(file)])}:{line}"

    def texts(self) -> dict[Path, str]:
        """Return the user's C files and their texts."""
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
        """The user's headers, and those of the library that generated C includes."""
        found = [self.backend.folder / name for name in self.backend.driver.headers]
        names = {f"src/{path}" for path in library_headers(self.backend)}
        return [*found, *(path for place, path in self.places.items() if place in names)]


def file_checks(backend: Backend) -> list[Check]:
    """Check that a driver's files exist and can be read."""
    driver, faults = backend.driver, []
    for name in (*driver.sources, *driver.headers):
        path = backend.folder / name
        if not path.is_file():
            what = "is not a file" if path.exists() else "does not exist"
            mend = f"write it, or correct _register_driver in {short_path(backend.folder)}"
            faults.append(failed(FILES, f"{what}", where=short_path(path), mend=mend))
            continue
        try:
            driver_text(path)
        except OSError as error:
            mend = "see who may read it"
            message = f"cannot be read: {error.strerror}"
            faults.append(failed(FILES, message, where=short_path(path), mend=mend))
        except UmakitError as error:
            faults.append(failed(FILES, error.what, where=short_path(path), mend=error.fix))
    for name in driver.compiled:
        try:
            exported_name(backend.folder, name)
            compiled_content(backend.folder / name)
        except UmakitError as error:
            where = short_path(backend.folder / name)
            faults.append(failed(FILES, error.what, where=where, mend=error.fix))
    of_library = library_checks(backend)
    if faults:
        return [*faults, *of_library]
    if of_library and not (driver.sources or driver.compiled):
        return of_library
    if not (driver.sources or driver.compiled):
        return [ok(FILES, "no source is registered")]
    names = ", ".join((*driver.sources, *driver.headers, *driver.compiled))
    return [ok(FILES, f"{names} can be read"), *of_library]


def stage(
    backend: Backend, device: Device, folder: Path, called: Sequence[str] = ()
) -> StagedDriver:
    """Write a driver's files into a folder as a library has them.

    Args:
        backend: the backend.
        device: the device that they are compiled for.
        folder: an empty folder.
        called: C functions that generated code calls.

    Raises:
        LibraryError: two files have one path, or an include may be two headers.
        AcceleratorConfigError: a file of the backend's own simulator is missing.
    """
    staged = StagedDriver(backend, device, folder)
    for name, text in files_of_driver(backend).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    write_stand_in(backend, folder / "src")
    for place, content in own_simulator_files({backend.target_name: backend}).items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for libraries in driver_libraries({backend.target_name: backend}).values():
        for name, content in libraries.items():
            path = folder / "lib" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            staged.compiled.append(path)
    for name in (*backend.driver.sources, *backend.driver.headers):
        staged.places[f"src/{exported_path(backend, name)}"] = backend.folder / name
    texts = [*staged.texts().values()]
    staged.library, places = stage_library(backend, folder, called, texts)
    staged.places |= places
    return staged


def compile_checks(staged: StagedDriver) -> list[Check]:
    """Compile each source and each header of a driver alone."""
    backend, checks = staged.backend, []
    for name in backend.driver.sources:
        path = f"src/{exported_path(backend, name)}"
        output, messages = compiled(
            staged.folder / path, staged.device, staged.folder, staged.words
        )
        if messages:
            checks.append(fault_of(SOURCES, messages, staged, short_path(backend.folder / name)))
        else:
            staged.objects[path] = output
    if not checks and backend.driver.sources:
        count = len(backend.driver.sources)
        checks.append(ok(SOURCES, f"{count} of {count} compile alone"))
    return [*checks, *_header_checks(staged), *_library_checks(staged)]


def _library_checks(staged: StagedDriver) -> list[Check]:
    """Compile those files of a library that calls need."""
    library, checks = staged.library, []
    if library is None:
        return []
    for name in library.files.sources:
        path, words = f"src/{name}", [*staged.words, *library.files.flags]
        output, messages = compiled(staged.folder / path, staged.device, staged.folder, words)
        if messages:
            checks.append(fault_of(LIBRARY, messages, staged, short_path(staged.places[path])))
        else:
            staged.objects[path] = output
    count = len(library.files.sources)
    if not checks and count:
        checks.append(ok(LIBRARY, f"calls need {count} of its C files, which compile"))
    return checks


def _header_checks(staged: StagedDriver) -> list[Check]:
    headers, checks = staged.backend.driver.headers, []
    for name in headers:
        messages = _compiled_header(name, staged)
        if messages:
            where = short_path(staged.backend.folder / name)
            checks.append(fault_of(HEADERS, messages, staged, where))
    if headers and not checks:
        checks.append(ok(HEADERS, f"{len(headers)} of {len(headers)} compile alone"))
    return checks


def _compiled_header(name: str, staged: StagedDriver) -> str:
    """Compile a header alone; return what the compiler printed if it failed.

    A header of a driver in C++ may be of C++, whatever its name ends in.
    """
    messages = ""
    has_cxx = any(source.endswith(CXX_SUFFIXES) for source in staged.backend.driver.sources)
    for suffix in (".c", ".cc") if has_cxx else (".c",):
        alone = staged.folder / "src" / f"umakit_doctor_header{suffix}"
        path = exported_path(staged.backend, name)
        alone.write_text(f'#include "{path}"\n', encoding="utf-8")
        _, printed = compiled(alone, staged.device, staged.folder, staged.words)
        if not printed:
            return ""
        messages = messages or printed
    return messages


def fault_of(name: str, messages: str, staged: StagedDriver, otherwise: str) -> Check:
    """Return the fault that a compiler reports first.

    Args:
        name: of the check.
        messages: what the compiler printed.
        staged: the driver.
        otherwise: place to name if the compiler named none.
    """
    error = first_error(messages)
    mend = mend_of(error.message, staged)
    if not error.file:
        return failed(name, error.message, where=otherwise, mend=mend)
    file = posixpath.normpath(error.file)
    if file == PROGRAM:
        message = f"what _register_codegen(includes=...) returns: {error.message}"
        return failed(name, message, where=otherwise, mend=mend)
    if file not in staged.places:  # a header that is not the driver's
        message = f"in {error.file.removeprefix('src/')}:{error.line}: {error.message}"
        return failed(name, message, where=otherwise, mend=mend)
    return failed(name, error.message, where=staged.where(error.file, error.line), mend=mend)


def mend_of(message: str, staged: StagedDriver) -> str:
    """Return what to do about an error of a compiler."""
    missing = MISSING_FILE.search(message)
    if missing:
        return _mend_of_include(missing[1], staged)
    unknown = UNKNOWN_NAME.search(message)
    if unknown:
        return _mend_of_name(unknown[1] or unknown[2], staged)
    if "conflicting types" in message or "too many arguments" in message:
        return "give the function the same arguments in the header and in the source"
    if "too few arguments" in message:
        return "give the function the same arguments in the header and in the source"
    if message.startswith("#error") or re.match(r'"?.*decide ', message):
        return "do what the line says, then remove it"
    if "unknown type name" in message:
        return "include the header that defines it, above this line"
    return "correct this line, or the one above it"


def _mend_of_include(header: str, staged: StagedDriver) -> str:
    backend = staged.backend
    if header == f"{backend.target_name}_device.h":
        return (
            "it belongs to umakit's simulators: set simulator in [device] of accel.toml, or do "
            "not include it"
        )
    if header.startswith("umakit/") and not is_simulated(backend):
        return (
            "headers of umakit's devices come with a simulator: set simulator in [device] of "
            "accel.toml"
        )
    registered = [*backend.driver.headers]
    found = [path for path in sorted(backend.folder.rglob("*")) if path.name == Path(header).name]
    for path in found:
        name = path.relative_to(backend.folder).as_posix()
        if name not in registered:
            return f"name it: _register_driver(headers=[..., {name!r}])"
    close = closest(header, registered)
    return f"write it, or include {close}" if close else "write it, or remove the #include"


def _mend_of_name(name: str, staged: StagedDriver) -> str:
    if name.startswith("umakit_"):
        return "include the header of umakit that declares it, such as umakit/device.h"
    declared = staged.line_of(name, staged.headers)
    if declared:
        return f"include the header that declares it ({declared})"
    known = {
        match
        for text in staged.texts().values()
        for match in re.findall(r"\b([A-Za-z_]\w*)\s*\(", text)
    }
    close = closest(name, known - {name})
    if close:
        return f"write {close}, or declare {name}"
    return "include the header that declares it, or define it above this line"


def staging_fault(error: UmakitError) -> Check:
    """Return the fault of a driver whose files cannot be put side by side."""
    return refused(FILES, error)
