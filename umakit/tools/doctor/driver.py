# SPDX-License-Identifier: Apache-2.0
"""Checks of a driver's files: they exist, are text, and compile alone."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Sequence
from pathlib import Path

from umakit.codegen.driver_names import exported_path
from umakit.devices import Device
from umakit.devices.designs import design_from, wiring
from umakit.devices.libraries import CallableLibrary
from umakit.devices.verilator import verilator
from umakit.errors import AcceleratorConfigError, BuildError, UmakitError, short_path
from umakit.files.staging import as_bytes
from umakit.library import own_simulators
from umakit.library.driver_files import driver_text, files_of_driver
from umakit.library.kernel_libraries import kernel_libraries
from umakit.library.roles import SOURCE_FOLDER, device_source
from umakit.machine.simulator_config import CXX_SUFFIXES
from umakit.registration.backend import Backend
from umakit.registration.sources.needed import header_contents
from umakit.registration.sources.tree import source_tree
from umakit.text.escaping import shell_word
from umakit.text.spelling import closest
from umakit.tools.doctor.checks import Check, failed, ok, refused
from umakit.tools.doctor.compiling import StagedDriver, compiled, first_error, mend_of

FILES, SOURCES, HEADERS = "driver files", "driver sources", "driver headers"

PROGRAM = "src/umakit_doctor_calls.c"
"""A program with the includes of generated code, which refers to the called functions."""


def file_checks(backend: Backend) -> list[Check]:
    driver, faults = backend.driver, []
    for name in (*driver.sources, *driver.headers):
        path = backend.folder / name
        if not path.is_file():
            what = "is not a file" if path.exists() else "does not exist"
            faults.append(
                failed(FILES, what, where=short_path(path), mend=_mend_of_file(backend, name))
            )
            continue
        try:
            driver_text(path)
        except OSError as error:
            mend = f"let it be read: chmod u+r {shell_word(short_path(path))}"
            message = f"cannot be read: {error.strerror}"
            faults.append(failed(FILES, message, where=short_path(path), mend=mend))
        except UmakitError as error:
            faults.append(failed(FILES, error.what, where=short_path(path), mend=error.fix))
    for name in driver.compiled:
        try:
            own_simulators.exported_name(backend.folder, name)
            own_simulators.compiled_content(backend.folder / name)
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


def _mend_of_file(backend: Backend, name: str) -> str:
    registered = (*backend.driver.sources, *backend.driver.headers)
    others = [path.relative_to(backend.folder).as_posix()
              for path in backend.folder.rglob(f"*{Path(name).suffix}")]  # fmt: skip
    close = closest(name, [each for each in others if each not in registered])
    return f"write {close} in _register_driver" if close else "write it"


def stage(
    backend: Backend, device: Device, folder: Path, called: Sequence[str] = ()
) -> StagedDriver:
    """Write a driver's files into an empty folder in the layout of a library."""
    staged = StagedDriver(backend, device, folder)
    for name, text in files_of_driver(backend).items():
        _write(folder / name, text)
    write_stand_in(backend, folder / "src")
    for place, content in own_simulators.own_simulator_files(
        {backend.target_name: backend}
    ).items():
        _write(folder / place, content)
    for libraries in own_simulators.driver_libraries({backend.target_name: backend}).values():
        for name, content in libraries.items():
            staged.compiled.append(_write(folder / "lib" / name, content))
    for name in (*backend.driver.sources, *backend.driver.headers):
        staged.places[f"src/{exported_path(backend, name)}"] = backend.folder / name
    staged.library, places = stage_library(backend, folder, called, staged.texts().values())
    staged.places |= places
    return staged


def _write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(as_bytes(content))
    return path


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
    """Compile a header alone; return the compiler's output on failure.

    A header of a C++ driver may be C++, whatever its suffix.
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
    """Return the first fault in a compiler's output, at `otherwise` without a place."""
    error = first_error(messages)
    mend = mend_of(messages, staged)
    if not error.file:
        return failed(name, error.message, where=otherwise, mend=mend)
    file = posixpath.normpath(error.file)
    if file == PROGRAM:
        message = f"what _register_codegen(includes=...) returns: {error.message}"
        return failed(name, message, where=otherwise, mend=mend)
    if file not in staged.places:  # a header outside the driver
        message = f"in {error.file.removeprefix('src/')}:{error.line}: {error.message}"
        return failed(name, message, where=otherwise, mend=mend)
    return failed(name, error.message, where=staged.where(error.file, error.line), mend=mend)


# A backend's library of C functions: its files exist, and have the layout of an export.

LIBRARY = "library"


def library_checks(backend: Backend) -> list[Check]:
    """Check that the files of `[sources]` exist and can be read; no checks without a library."""
    try:
        tree = source_tree(backend)
        if tree is None:
            return []
        header_contents(backend)
        tree.licences()
        count = len(tree.sources)
    except AcceleratorConfigError:  # the check of accel.toml says so
        return []
    except UmakitError as error:
        return [refused(LIBRARY, error)]
    what = f"{count} C files" if tree.section.files else ", ".join(tree.section.link)
    return [ok(LIBRARY, f"{what} of {short_path(tree.root)}")]


def stage_library(
    backend: Backend, folder: Path, called: Collection[str], texts: Collection[str]
) -> tuple[CallableLibrary | None, dict[str, Path]]:
    """Write the needed parts of a library; return it, if any, and the user's files by path."""
    name, tree = backend.target_name, source_tree(backend)
    if tree is None:
        return None, {}
    given = {f"src/{number}.c": text for number, text in enumerate([" ".join(called), *texts])}
    exported = kernel_libraries({name: backend}, given)[name]
    for place, content in exported.files.items():
        _write(folder / "src" / place.removeprefix(f"{SOURCE_FOLDER}/"), content)
    own = (*exported.view.sources, *exported.view.included)
    places = {f"src/{path}": tree.root / path.removeprefix(f"{name}/") for path in own}
    return CallableLibrary(name, folder / "src", exported.view), places


DESIGN = "RTL"


def design_checks(backend: Backend) -> list[Check]:
    """Check with Verilator that the ports of the design in `[rtl]` fit; no checks without one.

    A machine without Verilator is a fault, as commands with `--rtl` need Verilator.
    """
    section = backend.configuration.rtl
    if section is None:
        return []
    try:
        version, _ = verilator()
    except BuildError as error:
        where = short_path(backend.folder / "accel.toml")
        what = f"the design was not read: {error.what}"
        return [failed(DESIGN, what, where=where, mend=error.fix)]
    try:
        found = wiring(design_from(backend.configuration, backend.folder))
    except UmakitError as error:
        return [refused(DESIGN, error)]
    memory = f", memory by {section.memory.bus} of {found.memory_bits} bits" if found.memory else ""
    version = " ".join(version.split()[:2])
    text = f"{section.top}: registers by {section.registers.bus}{memory}, read by {version}"
    return [ok(DESIGN, text)]


def write_stand_in(backend: Backend, folder: Path) -> None:
    """Write a stand-in for the device function of a backend that only has a design.

    The driver can thus be linked without the design.
    """
    if backend.configuration.is_only_rtl:
        name = backend.target_name
        text = f'#include "umakit/device.h"\n\numakit_device *{name}_device(void);\n'
        text += f"umakit_device *{name}_device(void) {{ return 0; }}\n"
        (folder / device_source(name)).write_text(text, encoding="utf-8")
