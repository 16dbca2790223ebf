# SPDX-License-Identifier: Apache-2.0
"""The manifest of a folder or tar file: the files that umakit wrote, with their SHA-256.

The manifest has the format of coreutils' `sha256sum`: `sha256sum --check SHA256SUMS` verifies an
export, and one signature of the manifest covers all files. umakit replaces and removes only files
that a manifest lists.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

NAME = "SHA256SUMS"
HEADER = "# umakit manifest, version 1: the files that umakit wrote here\n"
LONGEST = 2**24
"""Maximum size in bytes of a manifest: 100 times that of the largest library."""

_LINE = re.compile(r"(\\?)([0-9a-f]{64}) [ *](.+)")
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def manifest_text(files: Mapping[str, bytes]) -> str:
    return HEADER + "".join(_line(path, content) for path, content in sorted(files.items()))


def parse_manifest(text: str | bytes) -> dict[str, str] | None:
    """Return SHA-256 digests by path; None if the text is not a valid manifest of umakit.

    A manifest with an absolute path, or with `..` in a path, is invalid: a manifest must not make
    umakit replace files outside its folder.
    """
    try:
        lines = (text.decode("utf-8") if isinstance(text, bytes) else text).split("\n")
    except UnicodeDecodeError:
        return None
    if f"{lines[0]}\n" != HEADER or lines[-1] != "":
        return None
    found: dict[str, str] = {}
    for line in lines[1:-1]:
        match = _LINE.fullmatch(line)
        path = _unescaped(match[3]) if match and match[1] else match[3] if match else ""
        if match is None or not _is_below(path) or path in found:
            return None
        found[path] = match[2]
    return found


def read_manifest(path: Path) -> dict[str, str] | None:
    """Parse a manifest file; None if the file is no manifest, too large, or unreadable."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > LONGEST:
            return None
        return parse_manifest(path.read_bytes())
    except OSError:
        return None


def _line(path: str, content: bytes) -> str:
    escaped = "".join(_ESCAPES.get(character, character) for character in path)
    return f"{chr(92) if escaped != path else ''}{sha256(content)}  {escaped}\n"


def _unescaped(path: str) -> str:
    characters = {escape: character for character, escape in _ESCAPES.items()}
    return re.sub(r"\\.", lambda found: characters.get(found[0], "/"), path)


def _is_below(path: str) -> bool:
    parts = path.split("/")
    plain = all(part not in ("", ".", "..") and "\0" not in part for part in parts)
    return plain and not PurePosixPath(path).is_absolute()
