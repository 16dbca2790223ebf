# SPDX-License-Identifier: Apache-2.0
"""The file of a sweep's finished machines, in JSON Lines, for resuming the sweep.

A line holds the answer to one question about a machine, with a key that identifies model, backend,
settings and version. One file can hold lines of several sweeps.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from umakit.errors import OutputError, RecordsError, short_path
from umakit.files.documents import is_special
from umakit.files.outputs import FileKind, check_file
from umakit.files.staging import write_file

FORMAT = "umakit sweep records"
RECORDS = FileKind("file of sweep records", FORMAT.encode())
VERSION = 1
HEADER = json.dumps({"format": FORMAT, "version": VERSION})
ANOTHER = "name another file, which is written"

Answer = TypeVar("Answer")


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Line:
    """A line of the file.

    Attributes:
        key: identifier of model, backend, settings, version and question.
    """

    key: str
    answer: dict[str, Any]


_LINE = TypeAdapter(Line)


class SweepRecords:
    """Recorded answers, and their file.

    Args:
        path: path of the file, which need not exist; None to record nothing.
        inputs: input files, which must not be overwritten.
    """

    def __init__(self, path: Path | None, inputs: Iterable[Path] = ()) -> None:
        self._path = path
        self._inputs = list(inputs)
        self._lines: dict[str, dict[str, Any]] = {}
        if path is not None:
            check_records(path, self._inputs)
            self._lines = _read(path)

    def find(self, key: str, kind: type[Answer]) -> Answer | None:
        """Return the recorded answer to a question; None if there is none."""
        found = self._lines.get(key)
        if found is None:
            return None
        try:
            return TypeAdapter(kind).validate_python(found)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"])
            raise RecordsError(
                f"a record is damaged: {name}: {first['msg']}", where=short_path(str(self._path)),
                fix=ANOTHER,
            ) from None  # fmt: skip

    def add(self, key: str, answer: object) -> None:
        """Record an answer, and replace the file atomically.

        Lines that another process added meanwhile stay.
        """
        self._lines[key] = TypeAdapter(type(answer)).dump_python(answer, mode="json")
        if self._path is None:
            return
        path = self._path

        def content() -> bytes:
            there = _read(path)
            self._lines = {**there, **{k: v for k, v in self._lines.items() if k not in there}}
            lines = [json.dumps({"key": k, "answer": v}) for k, v in self._lines.items()]
            return "".join(f"{line}\n" for line in [HEADER, *lines]).encode()

        try:
            write_file(path, content, RECORDS, self._inputs)
        except OutputError as error:
            raise RecordsError(error.what, where=error.where, fix=error.fix) from None


def check_records(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Refuse a file that records must not be written to."""
    if not path.parent.is_dir():
        raise RecordsError("no such folder", where=short_path(path.parent))
    try:
        check_file(path, RECORDS, inputs)
    except OutputError as error:
        raise RecordsError(error.what, where=error.where, fix=ANOTHER) from None


def _read(path: Path) -> dict[str, dict[str, Any]]:
    where = short_path(path)
    if is_special(path):
        raise RecordsError("is not a regular file", where=where, fix=ANOTHER)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise RecordsError(f"cannot be read: {reason}", where=where, fix=ANOTHER) from None
    if not lines:
        return {}
    if lines[0] != HEADER:
        raise RecordsError(
            f"does not begin as sweep records of version {VERSION} do", where=f"{where}:1",
            fix=ANOTHER,
        )  # fmt: skip
    found = {}
    for number, line in enumerate(lines[1:], start=2):
        try:
            read = _LINE.validate_json(line, strict=True)
        except ValidationError as error:
            raise RecordsError(
                f"is damaged: {error.errors()[0]['msg']}", where=f"{where}:{number}", fix=ANOTHER
            ) from None
        found[read.key] = read.answer
    return found
