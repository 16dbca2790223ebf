# SPDX-License-Identifier: Apache-2.0
"""The files that a command reads, those of backends among them: none of them is ever an output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from umakit.backend.base import UMABackend


def input_files(
    *paths: Path | None, backends: Iterable[UMABackend] = (), model: Iterable[Path] = ()
) -> list[Path]:
    """What a command reads.

    Args:
        paths: files, and folders that are read as a whole; None is left out.
        backends: whose folders are read, but may hold other things than what is read.
        model: files of a model, see `frontend.model_files`.
    """
    found = [path for path in paths if path is not None]
    found += model
    for backend in backends:
        found += _files_of(backend)
    return found


def _files_of(backend: UMABackend) -> Iterator[Path]:
    """The files in a backend's folder, and what it takes from folders below: C and modules."""
    yield from (path for path in backend.folder.iterdir() if path.is_file())
    yield from (backend.folder / name for name in backend.driver.sources)
    yield from (backend.folder / name for name in backend.driver.headers)
    folder = str(backend.folder)
    for module in list(sys.modules.values()):
        file = vars(module).get("__file__")
        if isinstance(file, str) and file.startswith(f"{folder}{os.sep}"):
            yield Path(file)
