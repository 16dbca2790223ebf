# SPDX-License-Identifier: Apache-2.0
"""Reading `metadata.json` of an exported library. Imports nothing of the pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from umakit.errors import LibraryError
from umakit.library_layout import METADATA
from umakit.manifest import NAME
from umakit.outputs import FolderKind
from umakit.packages.tar import library_folder
from umakit.packages.version_0_1_0 import library_names

__all__ = ["LIBRARY_FOLDER", "METADATA", "load_metadata"]


class _Tensor(BaseModel):
    name: str
    c_name: str
    shape: list[int]
    dtype: Literal[
        "float32", "float64", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16",
        "uint32", "uint64",
    ]  # fmt: skip
    size_bytes: int


class _Layer(BaseModel):
    name: str
    where: str
    macs: int


class _Pool(BaseModel):
    name: str
    used_bytes: int
    alignment_bytes: int


class _Memory(BaseModel):
    arena_bytes: int
    live_set_bound_bytes: int
    constants_bytes: int
    pools: list[_Pool]


class _Backend(BaseModel):
    name: str
    simulated: bool


class _Description(BaseModel):
    name: str
    interface: str
    weights: Literal["c", "blob"]
    inputs: list[_Tensor]
    outputs: list[_Tensor]
    layers: list[_Layer]
    memory: _Memory
    backends: list[_Backend]


class _Metadata(BaseModel):
    """What running a library relies on."""

    umakit: _Description


def weights_path(name: str) -> str:
    """Where a library keeps its weights blob, relative to its folder."""
    return f"parameters/{name}.weights.bin"


def _files_of_0_1_0(folder: Path) -> frozenset[str]:
    path = folder / METADATA
    return library_names(path.read_bytes()) if path.is_file() else frozenset()


LIBRARY_FOLDER = FolderKind("umakit library", NAME, _files_of_0_1_0)


def load_metadata(library: Path) -> dict[str, Any]:
    """`metadata.json` of an exported library, a folder or a tar file.

    Raises:
        LibraryError: the folder or file is missing or damaged.
    """
    path = library_folder(library) / METADATA
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        _Metadata.model_validate(data)
    except (FileNotFoundError, NotADirectoryError):
        raise LibraryError(
            f"is no umakit library: there is no {METADATA}",
            where=str(library),
            fix="export one with `uma compile`",
        ) from None
    except (ValueError, OSError):
        raise LibraryError("is damaged", where=str(path), fix="export the library again") from None
    return data


def read_weights(library: Path) -> bytes:
    """The weights blob of a library that has one.

    Raises:
        LibraryError: it is missing or cannot be read.
    """
    path = library_folder(library) / weights_path(load_metadata(library)["umakit"]["name"])
    try:
        return path.read_bytes()
    except OSError as error:
        raise LibraryError(
            f"cannot be read: {error.strerror}", where=str(path), fix="export the library again"
        ) from None
