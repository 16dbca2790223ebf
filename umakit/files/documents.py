# SPDX-License-Identifier: Apache-2.0
"""JSON files of umakit with a format and a version."""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from umakit.errors import UmakitError, short_path

Content = TypeVar("Content")


@dataclass(frozen=True)
class Document(Generic[Content]):
    """A kind of JSON file with a format name and a version.

    Attributes:
        holds: noun for the content, for messages.
        is_strict: whether values of convertible types are refused too.
        instead_of_special: advice for a path that is no regular file.
        instead_of_another: advice for a missing file, or one of another kind.
        instead_of_damaged: advice for a file that is damaged or has another version.
    """

    format: str
    version: int
    holds: str
    adapter: TypeAdapter[Content]
    error: type[UmakitError]
    is_strict: bool
    instead_of_special: str
    instead_of_another: str
    instead_of_damaged: str

    def read(self, path: Path) -> Content:
        where = short_path(path)
        if is_special(path):
            raise self.error("is not a regular file", where=where, fix=self.instead_of_special)
        another, damaged = self.instead_of_another, self.instead_of_damaged
        try:
            text = path.read_text(encoding="utf-8")
            header = json.loads(text)
        except FileNotFoundError:
            raise self.error("no such file", where=where, fix=another) from None
        except OSError as error:
            raise self.error(f"cannot be read: {error.strerror}", where=where) from None
        except (ValueError, RecursionError):
            what = f"is not valid JSON, and no {self.holds}"
            raise self.error(what, where=where, fix=damaged) from None
        if not isinstance(header, dict) or header.get("format") != self.format:
            raise self.error(f"holds no {self.holds}", where=where, fix=another)
        if header.get("version") != self.version:
            version = json.dumps(header.get("version"))[:40]
            what = f"is of version {version}, this umakit reads {self.version}"
            raise self.error(what, where=where, fix=damaged)
        try:
            return self.adapter.validate_json(text, strict=self.is_strict or None)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(str(part) for part in first["loc"])
            raise self.error(f"{key}: {first['msg']}", where=where, fix=damaged) from None


def is_special(path: Path) -> bool:
    """Whether a path is a pipe, a socket or a device, where reading might never end."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
