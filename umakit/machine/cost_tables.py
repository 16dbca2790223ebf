# SPDX-License-Identifier: Apache-2.0
"""Tables of numbers for formulas of `accel.toml`: CSV files in the backend's folder.

The first line names the columns. The last column is the value, the other columns are the key.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class CostTable:
    """The contents of a table.

    Attributes:
        file: path below the backend's folder.
        keys: names of all columns but the last.
        rows: values by key.
        digest: SHA-256 of the file.
    """

    file: str
    keys: tuple[str, ...]
    rows: Mapping[tuple[int, ...], int]
    digest: str


def read_table(folder: Path, file: str) -> CostTable:
    """Read a table.

    Raises:
        ValueError: the file is missing or is no table; the message is a sentence for the user.
    """
    if not (folder / file).is_file():
        raise ValueError(f"there is no file {file} in the backend's folder")
    try:
        content = (folder / file).read_bytes()
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError):
        raise ValueError(f"{file} cannot be read as text") from None
    try:
        lines = [
            (number, [cell.strip() for cell in row])
            for number, row in enumerate(csv.reader(io.StringIO(text)), 1)
            if row and not row[0].startswith("#")
        ]
    except csv.Error as error:
        raise ValueError(f"{file} is no CSV: {error}") from None
    (_, header), *rest = lines or [(1, [])]
    if len(header) < 2 or not all(map(NAME.fullmatch, header)):
        raise ValueError(
            f"{file}: the first line has to name the columns, of which the last is the value: "
            "lower-case letters, digits and _"
        )
    rows: dict[tuple[int, ...], int] = {}
    for number, row in rest:
        if len(row) != len(header):
            raise ValueError(f"{file}, line {number}: {len(row)} columns, not {len(header)}")
        *key, value = (_number(cell, file, number) for cell in row)
        if rows.setdefault(tuple(key), value) != value:
            raise ValueError(f"{file}, line {number}: the same key has another value above")
    return CostTable(file, tuple(header[:-1]), rows, hashlib.sha256(content).hexdigest())


def _number(cell: str, file: str, line: int) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", cell):
        raise ValueError(f"{file}, line {line}: {cell!r} is no number of 0 or more")
    return int(cell)
