# SPDX-License-Identifier: Apache-2.0
"""Reading `metadata.json` of an exported library. Imports nothing of the pipeline."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from umakit.errors import LibraryError
from umakit.files.manifest import NAME, read_manifest
from umakit.files.outputs import FolderKind
from umakit.library.layout import METADATA as METADATA
from umakit.library.schema import Description, Metadata
from umakit.library.tar_files import library_folder
from umakit.text.escaping import shortened

MOST_METADATA_BYTES = 2**28
AGAIN = "export the library again"


def weights_path(name: str) -> str:
    """Return the path of a library's weights blob, relative to its folder."""
    return f"parameters/{name}.weights.bin"


READ_FOLDERS = ("build", "codegen", "parameters", "runtime")
"""Folders of a library whose files are read and in which programs are built."""

BUILT_FROM = ("codegen", "parameters", "runtime", "src")
"""Folders of a library whose files are passed to compilers and emulators."""

LIBRARY_FOLDER = FolderKind("umakit library", NAME)


def library_files(library: Path) -> list[Path]:
    """Return the paths of a library's own parts: a tar file, or files and folders.

    Other files in the library's folder belong to the user and stay when the library is exported
    again. In a folder that umakit did not write, all files count as the library.
    """
    manifest = LIBRARY_FOLDER.manifest
    listed = read_manifest(library / manifest)
    if listed is None or METADATA not in listed:
        return [library]
    names = {path.partition("/")[0] for path in listed} | {manifest, *READ_FOLDERS}
    return [library / name for name in sorted(names)]


def load_metadata(library: Path) -> dict[str, Any]:
    """Read and check `metadata.json` of an exported library, a folder or a tar file."""
    return check_metadata(*_read(library))


def _read(library: Path) -> tuple[bytes, str]:
    """Return the text of the metadata of a library, and its path for errors."""
    path = library_folder(library) / METADATA
    _refuse_links(path.parent)
    try:
        if path.stat().st_size > MOST_METADATA_BYTES:
            raise LibraryError(f"has more than {MOST_METADATA_BYTES:,} bytes", where=str(path))
        return path.read_bytes(), str(path)
    except (FileNotFoundError, NotADirectoryError):
        raise LibraryError(
            f"is not a umakit library: there is no {METADATA}",
            where=str(library),
            fix="export one with `uma compile`",
        ) from None
    except OSError as error:
        raise LibraryError(f"cannot be read: {error.strerror}", where=str(path)) from None


def _refuse_links(library: Path) -> None:
    """Refuse links among the files for compilers and emulators.

    Messages of compilers could quote any file behind a link. Other links are not followed.
    """
    waiting = [library / name for name in BUILT_FROM]
    links = [path for path in (library / METADATA, *waiting) if path.is_symlink()]
    while waiting and not links:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:  # entries know their types: no system call for each
                if entry.is_symlink():
                    links.append(Path(entry.path))
                elif entry.is_dir():
                    waiting.append(Path(entry.path))
    if links:
        raise LibraryError("is a link", where=str(links[0]), fix=AGAIN)


def check_metadata(text: str | bytes, where: str) -> dict[str, Any]:
    """Parse and check the text of a `metadata.json`, before writing or after reading."""
    _checked(text, where)
    data: dict[str, Any] = json.loads(text)
    return data


@functools.lru_cache(maxsize=4)
def _checked(text: str | bytes, where: str) -> Metadata:
    """Return the checked content of a text; cached, because a command reads a library several
    times."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise LibraryError("is damaged: it is not JSON", where=where, fix=AGAIN) from None
    section = data.get("umakit") if isinstance(data, dict) else None
    version = section.get("version") if isinstance(section, dict) else None
    if str(version).startswith("0.1."):
        raise LibraryError(f"was exported by umakit {version}", where=where, fix=AGAIN)
    try:
        return Metadata.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        problem = first["msg"].removeprefix("Value error, ")
        what = "is damaged"
        if first["type"] in ("missing", "extra_forbidden"):
            what = "is damaged or was exported by another version of umakit"
        raise LibraryError(
            f"{what}: {shortened(f'{key}: {problem}' if key else problem, 300)}",
            where=where,
            fix=AGAIN,
        ) from None


def read_description(library: Path) -> Description:
    """Return umakit's part of a library's metadata."""
    return _checked(*_read(library)).umakit


def read_weights(library: Path) -> bytes:
    path = library_folder(library) / weights_path(read_description(library).name)
    try:
        return path.read_bytes()
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise LibraryError(what, where=str(path), fix=AGAIN) from None
