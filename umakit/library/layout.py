# SPDX-License-Identifier: Apache-2.0
"""How an exported library is told from other folders, and where umakit keeps what it builds."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import tempfile
from pathlib import Path

from umakit.errors import StorageError

METADATA = "metadata.json"

RUNTIME = Path(__file__).parent / "runtime"
"""What the program `runtime/main.c` of a library asks of a machine, and an answer in C's stdio."""

PLATFORM_HEADER = "umakit_platform.h"
HOSTED_PLATFORM = "umakit_platform_hosted.c"


def describes_library(text: str | bytes) -> bool:
    """Whether a `metadata.json` is umakit's, damaged or not."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and "umakit" in data


def cache_folder(*parts: str) -> Path:
    """A folder in the user's cache; where none can be written, one that this process deletes.

    Raises:
        StorageError: there is no place for temporary files either.
    """
    try:
        folder = user_cache().joinpath(*parts)
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    except (OSError, RuntimeError):  # read-only, full, or a user without a home
        pass
    folder = _own_cache().joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@functools.cache
def _own_cache() -> Path:
    try:
        folder = tempfile.mkdtemp(prefix="umakit-cache-")
    except OSError as error:
        raise StorageError(
            f"no temporary folder can be made: {error.strerror}",
            fix="set TMPDIR to a folder that can be written",
        ) from None
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def user_cache() -> Path:
    """umakit's folder in the user's cache.

    Raises:
        RuntimeError: the user has no home.
    """
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(chosen) if Path(chosen).is_absolute() else Path.home() / ".cache") / "umakit"
