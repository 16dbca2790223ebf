# SPDX-License-Identifier: Apache-2.0
"""The C files of drivers in an export, and the files of umakit that these files need."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from umakit import sim
from umakit.codegen.driver_names import (
    device_file,
    exported_includes,
    exported_path,
    is_simulated,
    kit_simulator,
)
from umakit.errors import LibraryError
from umakit.library.own_simulators import own_simulator_files
from umakit.registration.backend import Backend
from umakit.text.rendering import render

INCLUDED = re.compile(r'^\s*#\s*include\s*[<"](umakit/[^>"]*)[>"]', re.MULTILINE)


def files_of_driver(backend: Backend) -> dict[str, str]:
    """Return the files of a driver and of its simulator, by path below `codegen/host`."""
    backends = {backend.target_name: backend}
    files = driver_files(backends)
    add_files(files, inline_headers(files, own_simulator_files(backends)), str(backend.folder))
    return files | with_found_includes(files, backends)


def driver_files(backends: Mapping[str, Backend]) -> dict[str, str]:
    """Return the files of drivers and of their simulators, by path below `codegen/host`."""
    files: dict[str, str] = {}
    for name, backend in sorted(backends.items()):
        for driver_file in (*backend.driver.sources, *backend.driver.headers):
            source = backend.folder / driver_file
            if not source.is_file():
                raise LibraryError(
                    "the driver file is missing",
                    where=str(source),
                    fix=f"see _register_driver in the backend {name}",
                )
            text = driver_text(source)
            add_files(files, {f"src/{exported_path(backend, driver_file)}": text}, str(source))
        if is_simulated(backend):
            add_files(files, _simulator_files(name, backend), str(backend.folder))
    return files


def driver_text(source: Path) -> str:
    try:
        return source.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        pass
    if source.suffix in (".lib", ".dll", ".dylib", ".obj"):
        raise LibraryError(
            "is compiled code of a form that is not linked",
            where=str(source),
            fix="register .o, .a or .so files, or sources",
        )
    raise LibraryError("is no UTF-8 text", where=str(source), fix="store it as UTF-8")


def with_found_includes(
    files: Mapping[str, str], backends: Mapping[str, Backend]
) -> dict[str, str]:
    """Return the files in the folders of backends, with includes that need no include path."""
    others = {path.removeprefix("src/") for path in files}
    found = {}
    for name, backend in backends.items():
        paths = {
            exported_path(backend, driver_file): driver_file
            for driver_file in (*backend.driver.sources, *backend.driver.headers)
        }
        if kit_simulator(backend):
            devices = [device_file(name, suffix) for suffix in ("c", "h")]
            paths |= {path: PurePosixPath(path).name for path in devices}
        for path, driver_file in paths.items():
            text = files[f"src/{path}"]
            found[f"src/{path}"] = exported_includes(backend, text, driver_file, others)
    return found


def add_files(files: dict[str, str], more: Mapping[str, str], where: str) -> None:
    """Add files to others; equal files, such as files of the simulator, may be added twice."""
    for path, text in more.items():
        if files.setdefault(path, text) != text:
            raise LibraryError(
                f"two different files would become {path}",
                where=where,
                fix="give the driver's file another name",
            )


def inline_headers(sources: Mapping[str, str], simulators: Mapping[str, bytes]) -> dict[str, str]:
    """Return the headers of inline functions that C files or simulators include."""
    simulated = (content.decode("utf-8", "replace") for content in simulators.values())
    texts = [*sources.values(), *simulated]
    # Looking for the name first takes a fiftieth of the time in megabytes of constants.
    included = {name for text in texts if "umakit/" in text for name in INCLUDED.findall(text)}
    found: dict[str, str] = {}
    for path, others in sim.INLINE_HEADERS.items():
        if path.removeprefix("include/") in included:
            for each in (path, *others):
                text = (sim.source_directory() / each).read_text(encoding="utf-8")
                found[f"src/{each.removeprefix('include/')}"] = text
    return found


def _simulator_files(name: str, backend: Backend) -> dict[str, str]:
    folder = sim.source_directory()
    kind = kit_simulator(backend)
    sources: tuple[str, ...] = (*sim.SIMULATOR_SOURCES, *sim.COMMON_SOURCES)
    headers: tuple[str, ...] = (*sim.COMMON_HEADERS, *sim.SIMULATOR_HEADERS)
    if kind is not None:
        sources += sim.KINDS[kind].sources
        headers += (*sim.KINDS[kind].driver_headers, *sim.KINDS[kind].headers)
    files = {
        f"{place}/{Path(path).name}": (folder / path).read_text(encoding="utf-8")
        for place, paths in (("src", sources), ("src/umakit", headers))
        for path in paths
    }
    for suffix in ("c", "h") if kind is not None else ():
        files[f"src/{device_file(name, suffix)}"] = render(
            f"device/{kind}_device.{suffix}.j2",
            name=name,
            array=backend.configuration.array,
            dma=backend.configuration.dma,
            device=backend.configuration.device,
            scratchpad=next(iter(backend.configuration.scratchpads), None),
        )
    return files
