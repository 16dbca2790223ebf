# SPDX-License-Identifier: Apache-2.0
"""Objects and libraries of drivers and of simulators in an export."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from umakit.codegen.driver_names import exported_path
from umakit.errors import LibraryError
from umakit.files.compiled_files import is_shared, read_compiled
from umakit.library.roles import COMPILED_FOLDER
from umakit.machine.simulator_config import NAME
from umakit.registration.backend import Backend


def compiled_content(source: Path) -> bytes:
    """Return the content of an object or a library.

    Raises:
        LibraryError: the file is missing, cannot be read, or does not match its suffix.
    """
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

    Args:
        folder: folder of the backend.
        name: path relative to the folder.

    Raises:
        LibraryError: the file is missing, cannot be read, or has no plain name.
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
    """Return the objects and libraries of drivers, by backend and path in `codegen/host/lib`.

    Raises:
        LibraryError: a file is missing, cannot be read, does not match its suffix, or shares its
            path with another file.
    """
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
