# SPDX-License-Identifier: Apache-2.0
"""Arduino libraries: all C files in one folder, a sketch, and `library.properties`.

By the Arduino library specification, revision 1.5 and later. Imports neither TVM nor the pipeline.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from umakit.errors import LibraryError, OutputError
from umakit.files.manifest import NAME
from umakit.files.outputs import FolderKind, check_folder
from umakit.files.staging import as_bytes, write_folder
from umakit.library.build_files import numeric_version
from umakit.library.layout import METADATA
from umakit.library.metadata import load_metadata
from umakit.library.packages.files import read_files
from umakit.library.roles import HEADER_FOLDER, SOURCE_FOLDER, read_roles
from umakit.library.version_0_1_0 import arduino_names
from umakit.text.rendering import render
from umakit.version import __version__

PROPERTIES = "library.properties"
DESCRIPTION = f"extras/{METADATA}"
"""File by which umakit recognizes its own folders; Arduino ignores the folder `extras`."""

C_TYPES = {"float32": "float", "float64": "double", "bool": "bool"}
INCLUDE = re.compile(r'^(\s*#\s*include\s*)"([^"\n]+)"', re.MULTILINE)


def write_package(library: Path, destination: Path, force: bool) -> None:
    """Write a library as an Arduino library, atomically.

    Args:
        library: folder or tar file of an exported library.
        destination: folder to write; of an earlier one, the files that umakit wrote are replaced.
        force: whether files in the way that were changed, or that something else wrote, are
            replaced too.

    Raises:
        LibraryError: the library has no form for Arduino, or a file of it cannot be read.
        OutputError: Arduino does not accept the name, or the folder must not be replaced or
            cannot be written.
    """
    check_arduino_name(destination)
    check_folder(destination, ARDUINO_FOLDER, [library], force=force)
    files = arduino_files(read_files(library), load_metadata(library), str(library))
    write_folder(destination, files, ARDUINO_FOLDER, [library], force=force)


def arduino_files(
    files: Mapping[str, str | bytes], metadata: Mapping[str, Any], where: str
) -> dict[str, str | bytes]:
    """Return the files of an Arduino library, by path.

    Args:
        files: files of an exported library, by path.
        metadata: content of its `metadata.json`.
        where: path that errors name.

    Raises:
        LibraryError: the library was exported by an older umakit, its weights are a blob, or two
            files get the same name.
    """
    description = metadata["umakit"]
    if description["weights"] == "blob":
        raise LibraryError(
            "its weights are a file of their own, which an Arduino library has no place for",
            where=where,
            fix="compile with --weights c",
        )
    prefix = description["interface"]
    start = render("arduino/source_start.c.j2")
    values = {
        "umakit_version": __version__,
        "version": numeric_version(),
        "name": description["name"],
        "prefix": prefix,
        "prefix_upper": prefix.upper(),
        "inputs": [_tensor_view(tensor) for tensor in description["inputs"]],
        "outputs": [_tensor_view(tensor) for tensor in description["outputs"]],
        "simulated": read_roles(metadata, where).simulated,
        "devices": [item["name"] for item in description["backends"] if item["simulated"]],
        "workspace_size": description["memory"]["arena_bytes"],
    }
    return {
        PROPERTIES: render("arduino/library.properties.j2", **values),
        "keywords.txt": render("arduino/keywords.txt.j2", **values),
        "README.md": render("arduino/README.md.j2", **values),
        f"examples/{prefix}/{prefix}.ino": render("arduino/sketch.ino.j2", **values),
        DESCRIPTION: as_bytes(files[METADATA]),
        **{
            f"src/{name}": (start if name.endswith(".c") else "") + text
            for name, text in flat_sources(files, where).items()
        },
    }


def flat_sources(files: Mapping[str, str | bytes], where: str) -> dict[str, str]:
    """Rename C files and headers to names without folders, and rewrite their includes.

    Raises:
        LibraryError: two files get the same name.
    """
    chosen = [
        path
        for path in sorted(files)
        if path.startswith((f"{SOURCE_FOLDER}/", f"{HEADER_FOLDER}/"))
        and path.endswith((".c", ".h"))
    ]
    names = {path: _flat_name(path) for path in chosen}
    taken: dict[str, str] = {}
    for path, name in names.items():
        # Names that differ in case only are one file on some machines that run Arduino's IDE.
        other = taken.setdefault(name.lower(), path)
        if other != path:
            raise LibraryError(f"{other} and {path} would both be {name}", where=where)
    return {
        name: _with_flat_includes(as_bytes(files[path]).decode("utf-8"), path, names)
        for path, name in names.items()
    }


def _files_of_0_1_0(folder: Path) -> frozenset[str]:
    path = folder / DESCRIPTION
    return arduino_names(path.read_bytes()) if path.is_file() else frozenset()


ARDUINO_FOLDER = FolderKind("Arduino library of umakit", f"extras/{NAME}", _files_of_0_1_0)


def check_arduino_name(destination: Path) -> None:
    """Refuse a destination whose name Arduino does not accept.

    Raises:
        OutputError: the name is not accepted; states the rules.
    """
    name = Path(os.path.realpath(destination)).name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", name):
        raise OutputError(
            f"is not a name for an Arduino library: {name!r}",
            where=str(destination),
            fix="use up to 63 letters, digits and _ . - and no spaces",
        )


def _flat_name(path: str) -> str:
    """Return the name without folders: `codegen/host/src/umakit/status.h` as `umakit_status.h`."""
    for folder in (SOURCE_FOLDER, HEADER_FOLDER):
        if path.startswith(f"{folder}/"):
            return path.removeprefix(f"{folder}/").replace("/", "_")
    raise ValueError(path)


def _with_flat_includes(text: str, path: str, names: Mapping[str, str]) -> str:
    folder = str(PurePosixPath(path).parent)

    def replaced(match: re.Match[str]) -> str:
        for start in (folder, SOURCE_FOLDER):
            included = posixpath.normpath(posixpath.join(start, match[2]))
            if included in names:
                return f'{match[1]}"{names[included]}"'
        return match[0]

    return INCLUDE.sub(replaced, text)


def _tensor_view(tensor: Mapping[str, Any]) -> dict[str, Any]:
    dtype = tensor["dtype"]
    return {
        "name": tensor["c_name"],
        "c_type": C_TYPES.get(dtype, f"{dtype}_t"),
        "is_empty": tensor["size_bytes"] == 0,
    }
