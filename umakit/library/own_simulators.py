# SPDX-License-Identifier: Apache-2.0
"""Simulators of backends' own in an export: a folder `simulator/NAME` for each, apart from the
product's C."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from umakit import sim
from umakit.codegen.driver_names import exported_path, is_simulated, kit_simulator
from umakit.errors import LibraryError
from umakit.files.compiled_files import is_compiled, is_shared, read_compiled
from umakit.library.roles import ADAPTER, COMPILED_FOLDER, SIMULATOR_FOLDER, device_source
from umakit.library.schema import OwnSimulator
from umakit.machine.simulator_config import NAME, SimulatorSection, simulator_files
from umakit.registration.backend import Backend
from umakit.text.escaping import shortened
from umakit.text.rendering import render


def compiled_content(source: Path) -> bytes:
    try:
        content = source.read_bytes()
    except FileNotFoundError:
        raise LibraryError(
            "there is no such file", where=str(source), fix="add it, or correct its path"
        ) from None
    except OSError as error:
        raise LibraryError(f"cannot be read: {error.strerror}", where=str(source)) from None
    read_compiled(source.name, content, str(source))
    return content


def exported_name(folder: Path, name: str) -> str:
    """Return the path of an object or a library in an export.

    A shared library gets the name by which programs load it.
    """
    path, source = PurePosixPath(name), folder / name
    if is_shared(path.name):
        loaded_as = read_compiled(path.name, compiled_content(source), str(source)).loaded_as
        path = path.with_name(loaded_as) if loaded_as and "/" not in loaded_as else path
        if "/" in loaded_as:
            raise LibraryError(
                f"is looked for at {loaded_as}, whatever its name is",
                where=str(source),
                fix="link it with -Wl,-soname, and its name",
            )
    if not NAME.fullmatch(path.name):
        raise LibraryError(
            f"has no plain name: {path.name!r}",
            where=str(source),
            fix="use letters, digits and _ + - . only",
        )
    return path.as_posix()


def driver_libraries(backends: Mapping[str, Backend]) -> dict[str, dict[str, bytes]]:
    """Return the objects and libraries of drivers, by backend and path in `codegen/host/lib`."""
    found: dict[str, dict[str, bytes]] = {}
    for backend, registered in sorted(backends.items()):
        files: dict[str, bytes] = {}
        for name in registered.driver.compiled:
            source = registered.folder / name
            path = exported_path(registered, exported_name(registered.folder, name))
            content = compiled_content(source)
            if files.setdefault(path, content) != content:
                raise LibraryError(
                    f"two different files would become {COMPILED_FOLDER}/{path}",
                    where=str(source),
                    fix="give one another name",
                )
        if files:
            found[backend] = files
    return found


def compiled_values(libraries: Mapping[str, Mapping[str, bytes]]) -> dict[str, Any]:
    """Return the template values of `driver_libraries`: files, and link options for `cc`."""
    shown, in_cxx = {}, False
    linked: list[str] = []
    folders: dict[str, None] = {}
    for backend, files in libraries.items():
        read = {path: read_compiled(path, content, path) for path, content in files.items()}
        paths = [f"{COMPILED_FOLDER}/{path}" for path in files]
        machine = next((each.machine for each in read.values() if each.machine), None)
        shown[backend] = {"files": paths, "machine": machine}
        in_cxx |= any(each.needs_cxx for each in read.values())
        # The whole path lets programs find a shared library from everywhere.
        linked += [f'"$PWD"/{path}' if is_shared(path) else path for path in paths]
        shared = filter(is_shared, paths)
        folders |= {f'-Wl,-rpath,"$PWD"/{PurePosixPath(path).parent}': None for path in shared}
    options = [*folders, *(["-Wl,--disable-new-dtags"] if folders else [])]
    options += ["-lstdc++"] if in_cxx else []
    return {"compiled": shown, "linked": "".join(f" {word}" for word in [*linked, *options])}


MOST_TITLE = 80
"""Maximum number of characters of a program and its arguments in messages."""


def own_simulators(backends: Mapping[str, Backend]) -> dict[str, OwnSimulator]:
    """Return the builds of backends' own simulators, by backend."""
    found = {}
    for name, backend in sorted(backends.items()):
        section = backend.configuration.filled_simulator
        if is_simulated(backend) and kit_simulator(backend) is None and section is not None:
            sources = [*section.sources, device_source(name)]
            if section.program:
                sources += [program_source(name), *ADAPTER]
            found[name] = OwnSimulator(
                sources=sources,
                include=[folder for folder in section.include if folder != "."],
                defines=section.defines,
                libraries=[
                    exported_name(backend.folder, name) if is_compiled(name) else name
                    for name in section.libraries
                ],
                program=section.program,
                timeout=section.timeout,
            )
    return found


def program_source(backend: str) -> str:
    return f"{backend}_program.c"


def _program_files(name: str, section: SimulatorSection, folder: Path) -> dict[str, bytes]:
    """Return the files that start a simulator program, by path in the simulator's folder."""
    source = render(
        "device/own_program.c.j2",
        name=name,
        title=shortened(" ".join(section.program), MOST_TITLE),
        folder=str(folder.resolve()),
        words=section.program,
        milliseconds=round(section.timeout * 1000),
    )
    files = {program_source(name): source.encode()}
    for prefix, paths in (("", sim.PROGRAM_SOURCES), ("umakit/", sim.PROGRAM_HEADERS)):
        for path in paths:
            content = (sim.source_directory() / path).read_bytes()
            files[f"{prefix}{PurePosixPath(path).name}"] = content
    return files


def own_simulator_files(backends: Mapping[str, Backend]) -> dict[str, bytes]:
    """Return the files of backends' own simulators, by path in the export."""
    files: dict[str, bytes] = {}
    for name in own_simulators(backends):
        section, folder = backends[name].configuration.filled_simulator, backends[name].folder
        assert section is not None
        start, generated = f"{SIMULATOR_FOLDER}/{name}", device_source(name)
        files[f"{start}/{generated}"] = render("device/own_device.c.j2", name=name).encode()
        if section.program:
            for path, content in _program_files(name, section, folder).items():
                files[f"{start}/{path}"] = content
        for path, source in simulator_files(section, folder).items():
            if path == generated:
                raise LibraryError(
                    f"the simulator's file has the name of one that umakit writes, {generated}",
                    where=str(source),
                    fix="give it another name",
                )
            if is_compiled(path):
                files[f"{start}/{exported_name(folder, path)}"] = compiled_content(source)
                continue
            try:
                files[f"{start}/{path}"] = source.read_bytes()
            except OSError as error:
                raise LibraryError(f"cannot be read: {error.strerror}", where=str(source)) from None
    return files
