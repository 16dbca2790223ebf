# SPDX-License-Identifier: Apache-2.0
"""Paths of driver files in an export: a folder for each backend, so that names do not collide."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath

from umakit.errors import LibraryError
from umakit.registration.backend import Backend
from umakit.registration.sources.needed import header_contents
from umakit.text.names import plain_file_name

MACRO = re.compile(r"^\s*#\s*define\s+(\w*[a-z]\w*)(?![\w(])", re.MULTILINE)
"""Definition of a macro without parameters. Names in capitals are excluded for tensors anyway
(`umakit.text.names`)."""

INCLUDE = re.compile(r'^(\s*#\s*include\s*)"([^"\n]+)"', re.MULTILINE)


def is_simulated(backend: Backend) -> bool:
    """Whether a simulator stands for the device of a backend on the host."""
    return backend.configuration.device.simulator != "none"


def kit_simulator(backend: Backend) -> str | None:
    """Return the kind of a backend's simulator of umakit, a key of `sim.KINDS`; None for others."""
    kind: str = backend.configuration.device.simulator
    return kind if kind not in ("none", "own", "rtl") else None


def device_file(backend: str, suffix: str) -> str:
    """Return the exported path of a simulated device's source or header."""
    return f"{backend}/{backend}_device.{suffix}"


def exported_path(backend: Backend, driver_file: str) -> str:
    """Return the exported path of a driver file, relative to `codegen/host/src`.

    `kernels/conv2d.c` becomes `<target>/kernels/conv2d.c`. A file outside of the backend's folder
    keeps its path below the common folder, an absolute path only its name.

    Args:
        driver_file: path relative to the backend's folder.
    """
    path = PurePosixPath(posixpath.normpath(driver_file))
    parts = [path.name] if path.is_absolute() else [part for part in path.parts if part != ".."]
    return "/".join([backend.target_name, *map(plain_file_name, parts)])


def library_headers(backend: Backend) -> list[str]:
    """Return the exported paths of the library headers that generated C includes."""
    section = backend.configuration.sources
    names = section.headers if section is not None else ()
    return [f"{backend.target_name}/{posixpath.normpath(name)}" for name in names]


def exported_includes(
    backend: Backend, text: str, driver_file: str = "", others: Collection[str] = ()
) -> str:
    """Rewrite includes in C text so that a compiler finds them without an include path.

    A compiler finds headers next to the file anyway. Other headers of the backend, and umakit's
    headers, get a path relative to the file, so that two backends may have headers of the same
    name.

    Args:
        driver_file: path of the file relative to the backend's folder; empty for a generated file
            in `codegen/host/src`.
        others: exported paths of files that may be included relative to `codegen/host/src`.
    """
    folder = posixpath.dirname(exported_path(backend, driver_file)) if driver_file else ""

    def replaced(match: re.Match[str]) -> str:
        target = _included(backend, match[2], driver_file)
        if target is None and match[2] in others:
            target = match[2]
        if target is None:
            return match[0]
        return f'{match[1]}"{posixpath.relpath(target, folder or ".")}"'

    return INCLUDE.sub(replaced, text)


def _included(backend: Backend, name: str, driver_file: str) -> str | None:
    """Return the exported path of an included header; None if it is not the backend's."""
    headers = {
        posixpath.normpath(header): exported_path(backend, header)
        for header in backend.driver.headers
    }
    if kit_simulator(backend):
        device = device_file(backend.target_name, "h")
        headers.setdefault(PurePosixPath(device).name, device)
    for folder in (posixpath.dirname(driver_file), ""):
        path = posixpath.normpath(posixpath.join(folder, name))
        if path in headers:
            return headers[path]
    ending = posixpath.normpath(name)
    found = sorted(path for path in headers if f"/{path}".endswith(f"/{ending}"))
    if len(found) > 1:
        raise LibraryError(
            f'includes "{name}", which may be {" or ".join(found)}',
            where=str(backend.folder / driver_file),
            fix="include it by its path from the backend's folder",
        )
    return headers[found[0]] if found else None


def names_taken_by(backends: Mapping[str, Backend]) -> list[str]:
    """Return the identifiers that driver files define, and no tensor may have."""
    names: list[str] = []
    for name, backend in sorted(backends.items()):
        names += [f"{name}_device", f"{name}_counters", f"{name}_simulator"]
        if backend.completion is not None:
            names.append(backend.completion)
        for header in backend.driver.headers:
            path = backend.folder / header
            if path.is_file():
                names += MACRO.findall(path.read_text(encoding="utf-8", errors="replace"))
        for content in header_contents(backend):
            names += MACRO.findall(content.decode("utf-8", "replace"))
    return names
