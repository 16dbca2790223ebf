# SPDX-License-Identifier: Apache-2.0
"""Copies of a backend whose `accel.toml` has other values."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import tomli_w

from umakit.backend.base import UMABackend
from umakit.backend.registry import load_backend_folder
from umakit.errors import AcceleratorConfigError, StorageError, UmakitError, short_path
from umakit.files.staging import temporary_folder
from umakit.tools.sweeps.settings import Settings, configured, read_configuration

NOT_COPIED = ("__pycache__", ".git", ".hg", ".venv", "venv", "node_modules", ".pytest_cache")
"""Names of files and folders that a backend consists of in no case."""

PACKAGE = re.compile(r"umakit_backend_(\w+)_[0-9a-f]{8}")
LINE = re.compile(r"(accel\.toml):\d+")


@contextmanager
def machine_with(folder: Path, settings: Settings) -> Iterator[UMABackend]:
    """Load a copy of a backend with other values in `accel.toml`; delete it after the block.

    Args:
        folder: folder of the backend, which stays unchanged.
        settings: values by key of `accel.toml`.

    Raises:
        InputError: a key is unknown, or does not take the value.
        BackendError: the backend refuses the values. Neither this error nor errors of the block
            name the copy: their texts name the backend's own folder.
        StorageError: the folder cannot be copied.
    """
    changed = configured(read_configuration(folder), settings)
    root = (changed.get("sources") or {}).get("root")
    if isinstance(root, str) and ".." in Path(root).parts:  # outside of the copied folder
        changed["sources"]["root"] = str((folder / root).resolve())
    with temporary_folder("umakit-sweep-") as temporary:
        copy = temporary.resolve() / folder.name
        _copy(folder, copy)
        (copy / "accel.toml").write_text(tomli_w.dumps(changed), encoding="utf-8")
        try:
            backend = load_backend_folder(copy)
            _ = backend.configuration
            backend.notices = tuple(renamed(each, copy, folder) for each in backend.notices)
            yield backend
        except UmakitError as error:
            for name in ("what", "where", "fix"):
                setattr(error, name, renamed(getattr(error, name), copy, folder))
            if error.where == "accel.toml" and isinstance(error, AcceleratorConfigError):
                error.where = ""
            error.args = (str(error),)
            raise
        finally:
            _forget(copy)


def _copy(folder: Path, copy: Path) -> None:
    try:
        shutil.copytree(
            folder, copy, ignore=shutil.ignore_patterns(*NOT_COPIED), ignore_dangling_symlinks=True
        )
    except (OSError, shutil.Error) as error:
        problems = error.args[0] if isinstance(error, shutil.Error) else None
        reason = problems[0][2] if problems else getattr(error, "strerror", None) or str(error)
        raise StorageError(
            f"the folder cannot be copied: {reason}",
            where=short_path(folder),
            fix="keep in it what the backend consists of only",
        ) from None


def renamed(text: str, copy: Path, folder: Path, before: str = "") -> str:
    """Return a text with the backend's own name in place of its copy's, and `before` in front of
    the files of the folder.

    Lines of `accel.toml` are omitted: in the copy, the file was rewritten.
    """
    for path in dict.fromkeys((str(copy), short_path(copy))):
        text = text.replace(f"{path}{os.sep}", before).replace(path, folder.name)
    return LINE.sub(r"\1", PACKAGE.sub(r"\1", text))


def _forget(copy: Path) -> None:
    for name, module in sys.modules.copy().items():
        file = getattr(module, "__file__", None)
        paths = [str(file)] if file else [str(each) for each in getattr(module, "__path__", ())]
        if any(path == str(copy) or path.startswith(f"{copy}{os.sep}") for path in paths):
            del sys.modules[name]


def backend_digest(folder: Path, other: Collection[Path] = ()) -> str:
    """Return the SHA-256 of all files in a copy of a backend, in hexadecimal.

    Args:
        other: files that do not belong to the backend, such as outputs of a command.
    """
    skipped = {os.path.realpath(path) for path in other}
    digest = hashlib.sha256()
    for place, folders, names in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if name not in NOT_COPIED)
        for name in sorted(set(names) - set(NOT_COPIED)):
            path = Path(place, name)
            if os.path.realpath(path) in skipped or not path.is_file():
                continue
            content = path.read_bytes()
            relative = path.relative_to(folder).as_posix()
            digest.update(f"{relative}\0{len(content)}\0".encode("utf-8", "surrogateescape"))
            digest.update(content)
    return digest.hexdigest()
