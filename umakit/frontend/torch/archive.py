# SPDX-License-Identifier: Apache-2.0
"""Files of PyTorch: detecting exported programs, and reading them without running code.

`torch.export.load` trusts its file. In torch 2.13 it unpickles weights, constants and example
inputs, maps shared objects of AOTInductor, imports modules that trees name, calls any function
named as operator, and evaluates names and sizes as Python. No network needs that: the archive is
written anew in memory with plain numbers and a graph of known fields (`schema`), without example
inputs. A file that needs more is refused.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import math
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from umakit.errors import ModelError
from umakit.frontend.model import MOST_ELEMENTS

if TYPE_CHECKING:
    import torch

HOW_TO_EXPORT = (
    "export a program: "
    "torch.export.save(torch.export.export(model.eval(), (example,)), 'model.pt2')"
)
ZIP_MAGIC = b"PK\x03\x04"
LEGACY_MAGIC = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
"""The pickled number that `torch.save` wrote first until torch 1.6."""

DAMAGES = (
    KeyError, TypeError, ValueError, AttributeError, OSError, RuntimeError, RecursionError,
    NotImplementedError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
ENCRYPTED = 1
SMALL_ARCHIVE, LARGEST_RATIO = 2**26, 64
"""Bytes that an archive may hold whatever its size, and how often its size it may hold else."""

COPIED = {"archive_format": b"pt2", "archive_version": b"0", "byteorder": b"little"}
"""Members with the format, version and byte order of the archive."""


def is_torch_file(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            head = stream.read(16)
        if head.startswith(ZIP_MAGIC):
            return bool(_members(path))
    except DAMAGES:
        return path.suffix in (".pt", ".pt2", ".pth")
    return LEGACY_MAGIC in head or path.suffix in (".pt", ".pt2", ".pth")


def register_quantized_operators() -> None:
    """Register PT2E's quantize and dequantize, which saved programs name."""
    with contextlib.suppress(ImportError):
        importlib.import_module("torch.ao.quantization.fx._decomposed")


def load_program(path: Path) -> torch.export.ExportedProgram:
    """Read an exported program. The module's docstring lists the parts that are not read."""
    members = _check_kind(path)
    import torch

    register_quantized_operators()
    archive = _plain_archive(path, members)
    try:
        return torch.export.load(archive)
    except Exception as error:  # torch raises arbitrary exceptions for damaged files
        raise ModelError(
            f"cannot be put together by torch {torch.__version__}: it is damaged, or of another "
            "version",
            where=str(path),
            fix="export it again with this version of torch",
        ) from error


def _members(path: Path) -> dict[str, zipfile.ZipInfo]:
    """Return members by name, without torch's top-level folder; empty for other archives."""
    with zipfile.ZipFile(path) as archive:
        infos = [info for info in archive.infolist() if not info.is_dir()]
    _check_sizes(infos, path.stat().st_size)
    roots = {info.filename.split("/", 1)[0] for info in infos if "/" in info.filename}
    if len(roots) == 1:
        inside = {info.filename.partition("/")[2]: info for info in infos}
        if inside.keys() & {"archive_format", "data.pkl", "constants.pkl"}:
            return inside
    flat = {info.filename: info for info in infos}
    return flat if "serialized_exported_program.json" in flat else {}


def _check_sizes(infos: list[zipfile.ZipInfo], size: int) -> None:
    """Refuse duplicate member names, and archives that unpack to far more than their size.

    Raises:
        zipfile.BadZipFile: names the defect.
    """
    names = {info.filename for info in infos}
    if len(names) != len(infos):
        raise zipfile.BadZipFile("two members have one name")
    if sum(info.file_size for info in infos) > max(SMALL_ARCHIVE, LARGEST_RATIO * size):
        raise zipfile.BadZipFile("its members are larger than the archive could hold")


def _check_kind(path: Path) -> dict[str, zipfile.ZipInfo]:
    try:
        members = _members(path) if zipfile.is_zipfile(path) else {}
    except DAMAGES:
        raise ModelError(
            "is a damaged archive", where=str(path), fix="copy or export it again"
        ) from None
    kind = "is not an exported program of PyTorch: perhaps a pickled checkpoint, which is code and "
    kind += "is not opened"
    if "models/model.json" in members and "archive_version" in members:
        return members
    if "serialized_exported_program.json" in members:
        kind = "is an exported program in a format before torch 2.8"
    elif any(name.startswith("data/aotinductor/") for name in members):
        kind = "holds machine code of AOTInductor, not a program"
    elif "archive_format" in members:
        kind = "is a PyTorch archive without a program called model"
    elif "constants.pkl" in members and any(name.startswith("code/") for name in members):
        kind = "is a TorchScript module, not an exported program"
    elif "data.pkl" in members:
        kind = "is a checkpoint (weights or a pickled module), not an exported program"
    raise ModelError(kind, where=str(path), fix=HOW_TO_EXPORT)


def _plain_archive(path: Path, members: dict[str, zipfile.ZipInfo]) -> io.BytesIO:
    """Return a copy of the archive with nothing to unpickle, import, evaluate or execute."""
    from umakit.frontend.torch.schema import Refused, plain_program

    copy = io.BytesIO()
    try:
        with zipfile.ZipFile(path) as source:
            kept = {n: _read(source, members, n) for n in COPIED if n in members}
            if {**COPIED, **{n: data.strip() for n, data in kept.items()}} != COPIED:
                raise _Damaged("it was written for another version of torch or another computer")
            graph = json.loads(_read(source, members, "models/model.json"))
            kept["models/model.json"] = json.dumps(plain_program(graph)).encode()
            for kind in ("weights", "constants"):
                kept.update(_payloads(path, source, members, kind))
    except DAMAGES as error:
        reason = f": {error}" if isinstance(error, _Damaged) else ""
        raise ModelError(f"is damaged{reason}", where=str(path)) from None
    except Refused as error:
        raise ModelError(
            str(error), where=str(path), fix="export a network of plain tensors and operators"
        ) from None
    with zipfile.ZipFile(copy, "w") as target:
        for name, data in kept.items():
            target.writestr(f"model/{name}", data)
        target.writestr("model/.data/version", b"6\n")
        target.writestr("model/data/sample_inputs/model.pt", b"")
    copy.seek(0)
    return copy


class _Damaged(ValueError):
    """A part of the archive that torch does not write. The message names it."""


def _read(source: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], name: str) -> bytes:
    """Return the bytes of a member.

    Raises:
        KeyError, ValueError, zipfile.BadZipFile: the member is missing, damaged or encrypted.
    """
    info = members[name]
    if info.flag_bits & ENCRYPTED:
        raise _Damaged(f"{name!r} is encrypted")
    with source.open(info) as stream:
        data = stream.read(info.file_size + 1)
    if len(data) != info.file_size:
        raise _Damaged(f"{name!r} has another size than the archive says")
    return data


def _payloads(
    path: Path, source: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], kind: str
) -> dict[str, bytes]:
    """Return the table of weights or constants, and the members with their values."""
    from umakit.frontend.torch.schema import plain_payloads

    folder = f"data/{kind}/"
    table, pickled = f"{folder}model_{kind}_config.json", [f"{folder}model.pt"]
    if pickled[0] not in members:
        content = json.loads(_read(source, members, table))
        # Report a pickle before any defect of its table.
        pickled = [
            repr(name) for name, payload in content["config"].items()
            if payload["use_pickle"] or payload["tensor_meta"] is None
        ]  # fmt: skip
    if pickled:
        raise ModelError(
            f"{pickled[0]} is stored as a pickle, which could run any code",
            where=str(path),
            fix="export the model with plain tensors",
        )
    content = plain_payloads(content)
    kept = {table: json.dumps(content).encode()}
    for name, payload in content["config"].items():
        member = folder + payload["path_name"]
        if member not in kept:
            kept[member] = _read(source, members, member)
        # torch would read zeros from an empty member.
        sizes = [size["as_int"] for size in payload["tensor_meta"]["sizes"]]
        if not kept[member] and 0 not in sizes:
            raise _Damaged(f"{name!r} has no values")
        if min(sizes, default=0) < 0 or math.prod(sizes) > MOST_ELEMENTS:
            raise _Damaged(f"{name!r} has the shape {sizes}")
    return kept
