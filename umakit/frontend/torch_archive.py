# SPDX-License-Identifier: Apache-2.0
"""Files of PyTorch: which are exported programs, and how these are read without running code.

`torch.export.load` trusts its file. In torch 2.13 it unpickles weights and constants that ask for
it and, when its first attempt fails, example inputs too; it maps shared objects of AOTInductor; and
it hands size expressions to sympy, which evaluates them as Python. None of that is needed for a
network, so nothing of it reaches torch here: the archive is written anew in memory with the
members that hold plain numbers and the graph, the graph's expressions are checked to be arithmetic,
and the example inputs are left out. A file that needs more is refused.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from umakit.errors import ModelError
from umakit.frontend.model import last_line

HOW_TO_EXPORT = (
    "export a program: "
    "torch.export.save(torch.export.export(model.eval(), (example,)), 'model.pt2')"
)
ZIP_MAGIC = b"PK\x03\x04"
LEGACY_MAGIC = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
"""The pickled number that `torch.save` wrote first until torch 1.6."""

EXPRESSION_NODES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Name, ast.Load, ast.keyword,
    ast.operator, ast.unaryop, ast.cmpop,
)  # fmt: skip
EXPRESSION_FUNCTIONS = frozenset(
    "Abs Add And CeilDiv CeilToInt CleanDiv Eq Equality Float FloatPow FloatTrueDiv FloorDiv "
    "FloorToInt Ge GreaterThan Gt Identity IntTrueDiv Integer Le LessThan Lt Max Min Mod "
    "ModularIndexing Mul Ne Not Or Pow PowByNatural PythonMod Rational StrictGreaterThan "
    "StrictLessThan Symbol ToFloat TruncToFloat TruncToInt Unequality Where".split()
)
DAMAGES = (KeyError, TypeError, ValueError, OSError, RuntimeError, zipfile.BadZipFile)
PLAIN_TEXT = re.compile(r"[\w.+-]+")
"""What names of symbols and digits of numbers are made of: nothing that could be called."""


def is_torch_file(path: Path) -> bool:
    """Whether a file is an archive or a pickle of PyTorch, of whatever kind."""
    try:
        with path.open("rb") as stream:
            head = stream.read(16)
        if head.startswith(ZIP_MAGIC):
            return bool(_members(path))
    except (OSError, zipfile.BadZipFile):
        return path.suffix == ".pt2"
    return LEGACY_MAGIC in head or path.suffix in (".pt", ".pt2", ".pth")


def load_program(path: Path) -> Any:
    """Read an exported program; see the module's docstring for what is not read.

    Raises:
        ModelError: the file is something else, damaged, or needs code to be run.
    """
    members = _check_kind(path)
    archive = _plain_archive(path, members)
    import torch

    with contextlib.suppress(ImportError):
        # Registers quantize and dequantize, which a saved program names.
        importlib.import_module("torch.ao.quantization.fx._decomposed")
    try:
        return torch.export.load(archive)
    except Exception as error:  # torch raises whatever a damaged file makes it stumble over
        raise ModelError(
            f"cannot be read by torch {torch.__version__}: {last_line(error)}",
            where=str(path),
            fix="export it again with this version of torch",
        ) from error


def _members(path: Path) -> dict[str, zipfile.ZipInfo]:
    """Members by name without the folder that torch puts around them; empty for other archives."""
    with zipfile.ZipFile(path) as archive:
        infos = [info for info in archive.infolist() if not info.is_dir()]
    roots = {info.filename.split("/", 1)[0] for info in infos if "/" in info.filename}
    if len(roots) == 1:
        inside = {info.filename.partition("/")[2]: info for info in infos}
        if inside.keys() & {"archive_format", "data.pkl", "constants.pkl"}:
            return inside
    flat = {info.filename: info for info in infos}
    return flat if "serialized_exported_program.json" in flat else {}


def _check_kind(path: Path) -> dict[str, zipfile.ZipInfo]:
    """The members of an exported program.

    Raises:
        ModelError: says what the file is instead.
    """
    try:
        members = _members(path) if zipfile.is_zipfile(path) else {}
    except (OSError, zipfile.BadZipFile) as error:
        raise ModelError(f"is damaged: {error}", where=str(path), fix="export it again") from None
    kind = "is no exported program of PyTorch: perhaps a pickled checkpoint, which is code and is "
    kind += "not opened"
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
    """The same archive with nothing in it that is unpickled, evaluated or executed."""
    copy = io.BytesIO()
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(copy, "w") as target:
        try:
            kept = {name: source.read(members[name]) for name in _needed(source, members)}
            graph = json.loads(kept["models/model.json"])
        except DAMAGES as error:
            raise ModelError(
                f"is damaged: {last_line(error)}", where=str(path), fix="export it again"
            ) from None
        except _NeedsPickle as error:
            raise ModelError(
                f"{error} is stored as a pickle, which could run any code",
                where=str(path),
                fix="export the model with plain tensors",
            ) from None
        for expression in _expressions(graph):
            if not is_arithmetic(expression):
                raise ModelError(f"size {expression!r} is no arithmetic", where=str(path))
        for name, data in kept.items():
            target.writestr(f"model/{name}", data)
        target.writestr("model/data/sample_inputs/model.pt", b"")
    copy.seek(0)
    return copy


class _NeedsPickle(Exception):
    """A weight or constant that only a pickle holds."""


def _needed(source: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]) -> Iterator[str]:
    """Names of the members that are numbers, and of the tables that describe them.

    Raises:
        _NeedsPickle: names the weight or constant.
    """
    yield from ("archive_format", "archive_version", "models/model.json")
    yield from (name for name in ("byteorder", ".data/version") if name in members)
    for folder, table in (
        ("data/weights/", "data/weights/model_weights_config.json"),
        ("data/constants/", "data/constants/model_constants_config.json"),
    ):
        if f"{folder}model.pt" in members:
            raise _NeedsPickle(f"{folder}model.pt")
        yield table
        payloads = json.loads(source.read(members[table]))["config"]
        for name, payload in payloads.items():
            if payload["use_pickle"] or payload["tensor_meta"] is None:
                raise _NeedsPickle(repr(name))
            # Where there is nothing, torch reads zeros.
            sizes = [size["as_int"] for size in payload["tensor_meta"]["sizes"]]
            if not members[folder + payload["path_name"]].file_size and 0 not in sizes:
                raise ValueError(f"{name!r} has no values")
        yield from dict.fromkeys(folder + payload["path_name"] for payload in payloads.values())


def _expressions(value: Any) -> Iterator[str]:
    """Every text of a graph that torch hands to sympy."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "expr_str":
                yield str(inner)
            else:
                yield from _expressions(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _expressions(inner)


def is_arithmetic(text: str) -> bool:
    """Whether an expression holds numbers, symbols, operators and known functions only."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            text_is_plain = isinstance(node.value, str) and PLAIN_TEXT.fullmatch(node.value)
            if not isinstance(node.value, (int, float)) and not text_is_plain:
                return False
        elif isinstance(node, ast.Call):
            known = isinstance(node.func, ast.Name) and node.func.id in EXPRESSION_FUNCTIONS
            if not known:
                return False
        elif not isinstance(node, EXPRESSION_NODES):
            return False
    return True
