# SPDX-License-Identifier: Apache-2.0
"""NumPy's npz format: written reproducibly, read with limits on memory.

Array format: numpy.lib.format (NEP 1). A damaged archive may claim arrays larger than memory: array
sizes are checked against the file and the header before any allocation.
"""

from __future__ import annotations

import io
import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.errors import InputError
from umakit.text.names import c_identifier, unique

SUFFIX = ".npy"
ENCRYPTED = 1
LARGEST_RATIO = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}
"""Maximum ratio of uncompressed to compressed bytes, by compression method (deflate: RFC 1951)."""

HEADER_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
NUMBER_KINDS = "biufcSU"
"""Accepted values of `dtype.kind`: numbers and text (labels), but no objects, records or times."""

DAMAGES = (
    ValueError, TypeError, KeyError, OSError, EOFError, NotImplementedError, RuntimeError,
    OverflowError, SyntaxError, RecursionError, AttributeError, UnicodeError, MemoryError,
    tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


LONGEST_NAME = 60_000
"""Maximum length in bytes of a member's name; the zip format stores the length in 16 bits."""


def npz_bytes(arrays: Mapping[str, npt.NDArray[Any]], mark: bytes = b"") -> bytes:
    """Return an npz file whose bytes depend only on the arrays; NumPy's own writer adds the time.

    Any array name is accepted, also `file`, which NumPy refuses. A name that an archive cannot hold
    (with a NUL, longer than 60,000 bytes, or no UTF-8) is replaced by its C identifier.

    Args:
        mark: comment of the archive, by which umakit recognizes its own files.
    """
    buffer = io.BytesIO()
    taken = {name.lower() for name in arrays}
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in sorted(arrays.items()):
            member = io.BytesIO()
            np.lib.format.write_array(member, array)
            stored = name if _fits(name) else unique(c_identifier(name), taken)
            information = zipfile.ZipInfo(f"{stored}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            archive.writestr(information, member.getvalue())
        archive.comment = mark
    return buffer.getvalue()


def _fits(name: str) -> bool:
    try:
        return "\0" not in name and len(name.encode("utf-8")) <= LONGEST_NAME
    except UnicodeEncodeError:
        return False


def read_npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of an npz file by name, in native byte order and C order."""
    if not path.is_file():
        raise InputError("no such file", where=str(path))
    try:
        with zipfile.ZipFile(path) as archive:
            return _read_arrays(archive, path)
    except DAMAGES:
        raise InputError(
            "is not an npz file of plain arrays, or it is damaged",
            where=str(path),
            fix="write it with numpy.savez",
        ) from None


def _read_arrays(archive: zipfile.ZipFile, path: Path) -> dict[str, npt.NDArray[Any]]:
    members = [info for info in archive.infolist() if info.filename.endswith(SUFFIX)]
    names = [info.filename.removesuffix(SUFFIX) for info in members]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"has two arrays called {name!r}", where=str(path))
    total = sum(info.file_size for info in members)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if total > memory // 2:
        raise InputError(
            f"holds {total} bytes of arrays, which is more than half of the memory",
            where=str(path),
            fix="run fewer inferences at a time",
        )
    return {name: _read_array(archive, info) for name, info in zip(names, members, strict=True)}


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> npt.NDArray[Any]:
    """Read one array after checking its size; raise ValueError if it cannot be right."""
    ratio = LARGEST_RATIO.get(info.compress_type, 0)
    if info.flag_bits & ENCRYPTED or info.file_size > ratio * max(info.compress_size, 1):
        raise ValueError
    with archive.open(info) as stream:
        shape, _, dtype = HEADER_READERS[np.lib.format.read_magic(stream)](stream)
        length = stream.tell()
        if dtype.kind not in NUMBER_KINDS or dtype.hasobject or min(shape, default=1) < 0:
            raise ValueError
        if length + math.prod(shape) * dtype.itemsize != info.file_size:
            raise ValueError
    with archive.open(info) as stream:
        array = np.lib.format.read_array(stream, allow_pickle=False)
    return np.asarray(array, dtype=dtype.newbyteorder("="), order="C")
