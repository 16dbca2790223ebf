# SPDX-License-Identifier: Apache-2.0
"""Input files of a command, including files of backends; none of them may be an output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from umakit.machine.rtl_config import design_paths
from umakit.registration.backend import Backend
from umakit.registration.sources.tree import library_paths


def input_files(
    *paths: Path | None, backends: Iterable[Backend] = (), model: Iterable[Path] = ()
) -> list[Path]:
    """Return the files that a command reads.

    Args:
        paths: files, and folders that count as a whole; None is skipped.
        backends: backends, for the files in their folders that the kit reads.
        model: files of a model, see `frontend.model_files`.
    """
    found = [path for path in paths if path is not None]
    found += model
    folders = []
    for backend in backends:
        found += _files_of(backend)
        folders.append(f"{backend.folder}{os.sep}")
    found += _modules_in(tuple(folders))
    return list(dict.fromkeys(reversed(found)))[::-1]  # modules are files of the folder too


def _files_of(backend: Backend) -> Iterator[Path]:
    """Return the files in a backend's folder, and C files in its subfolders."""
    with os.scandir(backend.folder) as entries:
        yield from [Path(entry) for entry in entries if entry.is_file()]
    yield from (backend.folder / name for name in backend.driver.sources)
    yield from (backend.folder / name for name in backend.driver.headers)
    yield from (backend.folder / name for name in backend.driver.compiled)
    yield from library_paths(backend)
    yield from design_paths(backend.configuration.rtl, backend.folder)


def _modules_in(folders: tuple[str, ...]) -> list[Path]:
    """Return the imported Python modules in some folders, whose paths end in `/`."""
    if not folders:
        return []
    files = [vars(module).get("__file__") for module in list(sys.modules.values())]
    return [Path(file) for file in files if isinstance(file, str) and file.startswith(folders)]
