# SPDX-License-Identifier: Apache-2.0
"""Recognition of exported libraries, and the cache folder for builds."""

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
LICENSE = "LICENSE"
NOTICE = "NOTICE"

RUNTIME = Path(__file__).parent / "runtime"
"""Folder with the sources of `runtime` of a library: `main.c` and the platform interface."""

PLATFORM_HEADER = "umakit_platform.h"
HOSTED_PLATFORM = "umakit_platform_hosted.c"


def describes_library(text: str | bytes) -> bool:
    """Whether the text of a `metadata.json` was written by umakit, even if it is damaged."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and "umakit" in data


def cache_folder(*parts: str) -> Path:
    """Return a folder in the user's cache, or a temporary one if the cache is not writable."""
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
    """Return umakit's folder in the user's cache.

    Raises:
        RuntimeError: the user's home folder cannot be determined.
    """
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(chosen) if Path(chosen).is_absolute() else Path.home() / ".cache") / "umakit"
