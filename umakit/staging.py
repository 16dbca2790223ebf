# SPDX-License-Identifier: Apache-2.0
"""Writing folders and files all at once or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from umakit.errors import LibraryError


def write_folder(destination: Path, files: Mapping[str, str | bytes]) -> None:
    """Write a folder beside the destination, then put it in place.

    What was there is moved aside first and deleted last, so that a failure loses nothing.

    Raises:
        LibraryError: it cannot be written.
    """
    destination = destination.resolve()
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{destination.name}.", dir=destination.parent
        ) as temporary:
            staged, old = Path(temporary) / "library", Path(temporary) / "old"
            for path, content in files.items():
                target = staged / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(as_bytes(content))
            if destination.exists():
                destination.rename(old)
            try:
                staged.rename(destination)
            except OSError:
                if old.exists():
                    old.rename(destination)
                raise
    except OSError as error:
        raise LibraryError(
            f"cannot be written: {error.strerror}", where=str(destination)
        ) from error


def write_file(destination: Path, content: bytes) -> None:
    """Write a file beside the destination, then put it in place.

    Raises:
        LibraryError: it cannot be written.
    """
    destination = destination.resolve()
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{destination.name}.", dir=destination.parent
        ) as temporary:
            staged = Path(temporary) / "file"
            staged.write_bytes(content)
            staged.replace(destination)
    except OSError as error:
        raise LibraryError(
            f"cannot be written: {error.strerror}", where=str(destination)
        ) from error


def as_bytes(content: str | bytes) -> bytes:
    """Contents of a file as they lie on the disk."""
    return content if isinstance(content, bytes) else content.encode("utf-8")
